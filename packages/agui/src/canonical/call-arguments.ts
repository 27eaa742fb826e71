/**
 * Which tool calls have whole arguments: the JSON of one object or list, from its first bracket to its
 * last. Some agents send a call again when they go on after an interrupt, and some send arguments
 * behind the END. So arguments are added only to those that are not whole:
 *
 *   ARGS behind the END    whole ─► dropped        not whole ─► added
 *   START, then ARGS       whole ─► these replace  not whole ─► added
 *
 * A client cannot replace arguments. So an existing one keeps its arguments until the run ends, and
 * is given a snapshot then.
 */
import { isObject } from "../json.ts";
import { charBytes } from "../transcript/weight.ts";

/** Above these bounds the oldest call is forgotten, and its arguments are never whole. */
const CALLS_MAX = 10_000;
const ID_CHARS_MAX = 1_048_576;
/** An entry of a map. */
const CALL_BYTES = 100;

export class CallArguments {
  #states = new Map<string, number>();
  #chars = 0;
  #isShared = false;

  clone(): CallArguments {
    const copy = new CallArguments();
    copy.#states = this.#states;
    copy.#chars = this.#chars;
    copy.#isShared = true;
    this.#isShared = true; // The next write, on either side, makes a copy first.
    return copy;
  }

  get bytes(): number {
    return this.#states.size * CALL_BYTES + charBytes(this.#chars);
  }

  areWhole(id: string): boolean {
    return this.#states.get(id) === WHOLE;
  }

  /** The arguments of the call are these. */
  set(id: string, text: string): void {
    this.#set(id, scanned(NOTHING, text));
  }

  add(id: string, text: string): void {
    this.#set(id, scanned(this.#states.get(id) ?? NOTHING, text));
  }

  /** The messages of a snapshot, or of the input of a run: existing calls are unchanged. */
  setAll(messages: unknown, { isInput = false } = {}): void {
    if (!Array.isArray(messages)) return;
    for (const message of messages as readonly unknown[]) {
      const calls = isObject(message) ? message["toolCalls"] : undefined;
      if (!Array.isArray(calls)) continue;
      for (const { id, function: called } of calls.filter(isObject)) {
        const text = isObject(called) ? called["arguments"] : undefined;
        if (typeof id !== "string" || typeof text !== "string") continue;
        if (!isInput || !this.#states.has(id)) this.set(id, text);
      }
    }
  }

  #set(id: string, state: number): void {
    const previous = this.#states.get(id);
    if (previous === state) return;
    if (this.#isShared) {
      this.#states = new Map(this.#states);
      this.#isShared = false;
    }
    this.#states.set(id, state);
    if (previous !== undefined) return;
    this.#chars += id.length;
    for (const oldest of this.#states.keys()) {
      if (this.#states.size <= CALLS_MAX && this.#chars <= ID_CHARS_MAX) return;
      this.#states.delete(oldest);
      this.#chars -= oldest.length;
    }
  }
}

// The place in a JSON text: the open brackets times 8, and these.
const IS_IN_STRING = 1;
const IS_ESCAPED = 2;
const IS_STARTED = 4;
const LEVEL = 8;

const NOTHING = 0;
const WHOLE = IS_STARTED;
/** It is not the JSON of one object or list. */
const OTHER = -1;

function scanned(state: number, text: string): number {
  let at = state;
  for (let index = 0; index < text.length && at !== OTHER; index += 1)
    at = after(at, text.charCodeAt(index));
  return at;
}

function after(state: number, unit: number): number {
  if ((state & IS_ESCAPED) !== 0) return state - IS_ESCAPED;
  if ((state & IS_IN_STRING) !== 0) {
    if (unit === 0x5c) return state + IS_ESCAPED;
    return unit === 0x22 ? state - IS_IN_STRING : state;
  }
  const isOpening = unit === 0x7b || unit === 0x5b;
  if (state < LEVEL) {
    if (unit <= 0x20) return state;
    return state === NOTHING && isOpening ? IS_STARTED + LEVEL : OTHER;
  }
  if (unit === 0x22) return state + IS_IN_STRING;
  if (isOpening) return state + LEVEL;
  return unit === 0x7d || unit === 0x5d ? state - LEVEL : state;
}
