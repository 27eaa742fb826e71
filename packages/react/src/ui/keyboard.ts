/**
 * Keys of the page, or of a view inside of an app. A mounted component has its keys; `?` of the page lists
 * them all. Of two components with the same key, the one that came last has it.
 */
import { createContext, useContext, useEffect, useRef, useSyncExternalStore } from "react";

export interface KeyBinding {
  /** As `KeyboardEvent.key` names them: "j", "?", " ", "ArrowDown". Several do the same. */
  readonly keys: readonly string[];
  /** For the list, like "Next session". */
  readonly does: string;
  readonly run: (event: KeyboardEvent) => void;
  /** Works while the reader types into a field; Escape mostly should. */
  readonly whileTyping?: boolean;
}

interface Group {
  readonly title: string;
  bindings: readonly KeyBinding[];
}

function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.matches("textarea, select")) return true;
  return target.matches("input:not([type=checkbox], [type=radio], [type=range], [type=button])");
}

/** A space or Enter on a control is a press of it. */
function isPress({ key, target }: KeyboardEvent): boolean {
  if (key !== " " && key !== "Enter") return false;
  return target instanceof HTMLElement && target.closest("button, a, summary, input") !== null;
}

/** The keys of one page or view, for the components below its provider. */
export class Keys {
  #groups: readonly Group[] = [];
  readonly #listeners = new Set<() => void>();

  readonly groups = (): readonly Group[] => this.#groups;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Until the returned function is called. */
  add(group: Group): () => void {
    this.#set([...this.#groups, group]);
    return () => this.#set(this.#groups.filter((one) => one !== group));
  }

  /** `around` is the page or the view: while one of its dialogs is open, the keys rest. */
  press(event: KeyboardEvent, around: ParentNode): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (around.querySelector("dialog[open]") !== null || isPress(event)) return;
    const isTyping = isField(event.target);
    for (const { bindings } of this.#groups.toReversed()) {
      const found = bindings.find(
        ({ keys, whileTyping }) => keys.includes(event.key) && (!isTyping || whileTyping === true),
      );
      if (found === undefined) continue;
      event.preventDefault();
      found.run(event);
      return;
    }
  }

  #set(groups: readonly Group[]): void {
    this.#groups = groups;
    for (const listener of this.#listeners) listener();
  }
}

const Context = createContext<Keys | undefined>(undefined);

export const KeysProvider = Context.Provider;

function useAllKeys(): Keys {
  const keys = useContext(Context);
  if (keys === undefined) throw new Error("not inside of keys");
  return keys;
}

/** The keys of a component while it is mounted; `title` heads them in the list. */
export function useKeys(title: string, bindings: readonly KeyBinding[]): void {
  const keys = useAllKeys();
  const group = useRef<Group>(undefined);
  useEffect(() => {
    const mine: Group = { title, bindings: [] };
    group.current = mine;
    return keys.add(mine);
  }, [keys, title]);
  useEffect(() => {
    if (group.current !== undefined) group.current.bindings = bindings;
  });
}

/** All keys of now, for the list. */
export function useKeyGroups(): readonly Group[] {
  const keys = useAllKeys();
  return useSyncExternalStore(keys.subscribe, keys.groups);
}

/** For `ref` of a field that a press of the reader has opened. */
export function focus(field: HTMLElement | null): void {
  field?.focus();
}
