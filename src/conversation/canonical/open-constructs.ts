/** The constructs that are open, in the order in which they were opened. */
import { OPEN_IDS_MAX } from "../../agui/sequence.ts";
import type { JsonObject } from "../../agui/json.ts";
import { charBytes } from "../transcript/weight.ts";
import type { OpenKind } from "./event.ts";

/**
 * The limit for all open constructs of one session; ids may be long: some hold a provider's
 * signature.
 */
export const OPEN_CHARS_MAX = 1_048_576;

/** The memory of a construct besides the texts of its START. */
const CONSTRUCT_BYTES = 600;

/**
 * The fields of a START that are repeated in a new START; provider payloads and metadata are not
 * kept.
 */
const SAID_AGAIN = [
  "type",
  "timestamp",
  "subagentRunId",
  "messageId",
  "role",
  "name",
  "toolCallId",
  "toolCallName",
  "parentMessageId",
  "stepName",
  "description",
  "parentSubagentRunId",
  "parentToolCallId",
] as const;

export interface OpenConstruct {
  readonly kind: OpenKind;
  /** Distinguishes the construct from others of its kind. */
  readonly key: string;
  /** The START of the construct. */
  readonly opening: JsonObject;
  readonly chars: number;
}

type ByKind = Readonly<Record<OpenKind, Map<string, OpenConstruct>>>;

export class OpenConstructs {
  #byKind: ByKind = copied();
  /** Constructs of all kinds, the oldest first. */
  #inOrder: Set<OpenConstruct> = new Set();
  #chars = 0;

  clone(): OpenConstructs {
    const copy = new OpenConstructs();
    copy.#byKind = copied(this.#byKind);
    copy.#inOrder = new Set(this.#inOrder);
    copy.#chars = this.#chars;
    return copy;
  }

  /** An estimate of its memory. */
  get bytes(): number {
    return this.#inOrder.size * CONSTRUCT_BYTES + charBytes(this.#chars);
  }

  get(kind: OpenKind, key: string): OpenConstruct | undefined {
    return this.#byKind[kind].get(key);
  }

  /** For a construct that is not open. */
  open(kind: OpenKind, key: string, start: JsonObject): void {
    const opening: Record<string, unknown> = {};
    for (const field of SAID_AGAIN) {
      const said = start[field];
      if (said !== undefined) opening[field] = said;
    }
    const chars = JSON.stringify(opening).length;
    const construct = { kind, key, opening, chars };
    this.#byKind[kind].set(key, construct);
    this.#inOrder.add(construct);
    this.#chars += chars;
  }

  close(construct: OpenConstruct): void {
    if (!this.#inOrder.delete(construct)) return;
    this.#byKind[construct.kind].delete(construct.key);
    this.#chars -= construct.chars;
  }

  clear(): void {
    for (const constructs of Object.values(this.#byKind)) constructs.clear();
    this.#inOrder.clear();
    this.#chars = 0;
  }

  /** Oldest first. */
  inOrder(): readonly OpenConstruct[] {
    return [...this.#inOrder];
  }

  /** The oldest constructs, which must be closed to keep the others within the limits. */
  tooMany(): readonly OpenConstruct[] {
    let count = this.#inOrder.size;
    let chars = this.#chars;
    if (count <= OPEN_IDS_MAX && chars <= OPEN_CHARS_MAX) return [];
    const closed: OpenConstruct[] = [];
    for (const construct of this.#inOrder) {
      if (count <= 1 || (count <= OPEN_IDS_MAX && chars <= OPEN_CHARS_MAX)) break;
      closed.push(construct);
      count -= 1;
      chars -= construct.chars;
    }
    return closed;
  }
}

function copied(from?: ByKind): ByKind {
  return {
    step: new Map(from?.step),
    text: new Map(from?.text),
    tool_call: new Map(from?.tool_call),
    reasoning: new Map(from?.reasoning),
    reasoning_message: new Map(from?.reasoning_message),
    subagent: new Map(from?.subagent),
  };
}
