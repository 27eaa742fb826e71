/**
 * Keys of the page. A mounted component has its keys; `?` lists them all. Of two components
 * with the same key, the one that came last has it.
 */
import { useEffect, useRef, useSyncExternalStore } from "react";

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

let groups: readonly Group[] = [];
const listeners = new Set<() => void>();

function setGroups(next: readonly Group[]): void {
  groups = next;
  for (const listener of listeners) listener();
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

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") !== null || isPress(event)) return;
  const isTyping = isField(event.target);
  for (const { bindings } of groups.toReversed()) {
    const found = bindings.find(
      ({ keys, whileTyping }) => keys.includes(event.key) && (!isTyping || whileTyping === true),
    );
    if (found === undefined) continue;
    event.preventDefault();
    found.run(event);
    return;
  }
}

addEventListener("keydown", pressed);

/** The keys of a component while it is mounted; `title` heads them in the list. */
export function useKeys(title: string, bindings: readonly KeyBinding[]): void {
  const group = useRef<Group>(undefined);
  useEffect(() => {
    const mine: Group = { title, bindings: [] };
    group.current = mine;
    setGroups([...groups, mine]);
    return () => setGroups(groups.filter((one) => one !== mine));
  }, [title]);
  useEffect(() => {
    if (group.current !== undefined) group.current.bindings = bindings;
  });
}

/** All keys of now, for the list. */
export function useKeyGroups(): readonly Group[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => groups,
  );
}

/** For `ref` of a field that a press of the reader has opened. */
export function focus(field: HTMLElement | null): void {
  field?.focus();
}
