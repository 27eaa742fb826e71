/**
 * What is being said, each message and each tool call by itself: they interleave, and subagents may
 * use the same ids. Bounded in three ways: a text is kept up to what a payload can hold and counted
 * from there, only so many are open, and all of them together hold only so much. Past the last two
 * the oldest is ended as if its END had come; what follows of it begins anew.
 */
import { OPEN_IDS_MAX } from "../../agui/sequence.ts";

/** Which construct. */
export interface ConstructPlace {
  readonly kind: "text" | "tool_call";
  /** Its id. */
  readonly key: string;
  /** The subagent that it is from; undefined: the agent itself. */
  readonly owner: string | undefined;
}

/** What a START says. */
export interface Said {
  /** False: somebody else's words, which nobody derives. */
  readonly isAssistants: boolean;
  /** Of a tool. */
  readonly name: string | undefined;
}

export interface OpenConstruct extends ConstructPlace {
  readonly isAssistants: boolean;
  name: string | undefined;
  text: string;
  /** Characters that were not kept. */
  missingChars: number;
  /** What it counts among all that is open. */
  weight: number;
}

/** Of all that is open together: one text as long as a payload, in fragments of a character, or several. */
const OPEN_CHARS_MAX = 24 * 1_048_576;
/** A fragment that was appended is a node of its own in memory until the text is read. */
const FRAGMENT_CHARS = 16;

export class OpenConstructs {
  readonly #open = new Map<string, OpenConstruct>();
  readonly #textCharsMax: number;
  #weight = 0;

  constructor({ textCharsMax }: { readonly textCharsMax: number }) {
    this.#textCharsMax = textCharsMax;
  }

  /** The very one. */
  get(place: ConstructPlace): OpenConstruct | undefined {
    return this.#open.get(nameOf(place));
  }

  /** An event that does not say whose it is may be of the one construct that has its id. */
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

  /** False: it was not open. */
  close(construct: OpenConstruct): boolean {
    const name = nameOf(construct);
    if (this.#open.get(name) !== construct) return false;
    this.#open.delete(name);
    this.#weight -= construct.weight;
    return true;
  }

  /** In the order in which they were opened. */
  all(): readonly OpenConstruct[] {
    return [...this.#open.values()];
  }

  /** The oldest, if there is too much. */
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
