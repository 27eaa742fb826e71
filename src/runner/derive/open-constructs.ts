/**
 * The open messages and tool calls, each tracked separately: they interleave, and subagents may use
 * the same ids. Three bounds apply. A text is kept up to the size of a payload and only counted
 * beyond it. The number of open constructs is limited. Their total size is limited. Above the last
 * two bounds the oldest construct ends as if its END had come; later fragments of it begin a new
 * one.
 */
import { OPEN_IDS_MAX } from "../../agui/sequence.ts";

/** Identifies a construct. */
export interface ConstructPlace {
  readonly kind: "text" | "tool_call";
  /** Its id. */
  readonly key: string;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
}

/** The fields of a START. */
export interface Said {
  /** False: the text of another role, which derives no message. */
  readonly isAssistants: boolean;
  /** The name of a tool. */
  readonly name: string | undefined;
}

export interface OpenConstruct extends ConstructPlace {
  readonly isAssistants: boolean;
  name: string | undefined;
  text: string;
  /** Characters that were not kept. */
  missingChars: number;
  /** Its share of the total size. */
  weight: number;
}

/**
 * The total of all open constructs: one text as long as a payload in fragments of one character, or
 * several texts.
 */
const OPEN_CHARS_MAX = 24 * 1_048_576;
/** An appended fragment is a separate node in memory until the text is read. */
const FRAGMENT_CHARS = 16;

export class OpenConstructs {
  readonly #open = new Map<string, OpenConstruct>();
  readonly #textCharsMax: number;
  #weight = 0;

  constructor({ textCharsMax }: { readonly textCharsMax: number }) {
    this.#textCharsMax = textCharsMax;
  }

  /** Returns exactly this construct. */
  get(place: ConstructPlace): OpenConstruct | undefined {
    return this.#open.get(nameOf(place));
  }

  /** An event without an owner may belong to the single construct with its id. */
  find(place: ConstructPlace): OpenConstruct | undefined {
    const own = this.get(place);
    if (own !== undefined || place.owner !== undefined) return own;
    const alike = this.all().filter(({ kind, key }) => kind === place.kind && key === place.key);
    return alike.length === 1 ? alike[0] : undefined;
  }

  open({ kind, key, owner }: ConstructPlace, said: Said): OpenConstruct {
    const empty = { text: "", missingChars: 0, weight: 0 };
    const construct = { kind, key, owner, ...said, ...empty };
    this.#open.set(nameOf(construct), construct);
    this.#weigh(construct, FRAGMENT_CHARS + key.length + (owner?.length ?? 0));
    return construct;
  }

  append(construct: OpenConstruct, delta: string): void {
    if (!construct.isAssistants || delta === "") return;
    const kept = delta.slice(0, Math.max(0, this.#textCharsMax - construct.text.length));
    construct.text += kept;
    construct.missingChars += delta.length - kept.length;
    if (kept !== "") this.#weigh(construct, kept.length + FRAGMENT_CHARS);
  }

  /** False: the construct was not open. */
  close(construct: OpenConstruct): boolean {
    const name = nameOf(construct);
    if (this.#open.get(name) !== construct) return false;
    this.#open.delete(name);
    this.#weight -= construct.weight;
    return true;
  }

  /** In the order of their opening. */
  all(): readonly OpenConstruct[] {
    return [...this.#open.values()];
  }

  /** The oldest construct, when a limit is exceeded. */
  overflowing(): OpenConstruct | undefined {
    if (this.#open.size <= OPEN_IDS_MAX && this.#weight <= OPEN_CHARS_MAX) return undefined;
    const [oldest] = this.#open.values();
    return oldest;
  }

  #weigh(construct: OpenConstruct, chars: number): void {
    construct.weight += chars;
    this.#weight += chars;
  }
}

function nameOf({ kind, key, owner }: ConstructPlace): string {
  return owner === undefined ? `${kind}:${key}` : `${kind}${owner.length}:${owner}${key}`;
}
