/** The first text and the tool calls of one run, with their times in the unit of the caller. */
import type { JsonObject } from "../json.ts";

export interface CallFacts {
  readonly id: string;
  readonly name: string;
  readonly startedAt: number;
  /** The time of its first result; undefined: no result came in this run. */
  endedAt: number | undefined;
  hasFailed: boolean;
}

export class RunFacts {
  readonly #calls = new Map<string, CallFacts>();
  /** The time of the first text for the reader. */
  firstTextAt: number | undefined;

  get calls(): Iterable<CallFacts> & { readonly size: number } {
    return { size: this.#calls.size, [Symbol.iterator]: () => this.#calls.values() };
  }

  /** The call that the event begins or answers. */
  onEvent(event: JsonObject, at: number): CallFacts | undefined {
    const { type, delta, toolCallName, toolCallId: id } = event;
    if (type === "TEXT_MESSAGE_CONTENT" && delta !== "") this.firstTextAt ??= at;
    if (typeof id !== "string") return undefined;
    const call = this.#calls.get(id);
    if (type === "TOOL_CALL_START" && call === undefined) {
      const name = typeof toolCallName === "string" ? toolCallName : "";
      return this.add({ id, name, startedAt: at, endedAt: undefined, hasFailed: false });
    }
    if (type !== "TOOL_CALL_RESULT" || call === undefined || call.endedAt !== undefined)
      return undefined;
    call.endedAt = at;
    call.hasFailed = event["error"] !== undefined && event["error"] !== null;
    return call;
  }

  add(call: CallFacts): CallFacts {
    this.#calls.set(call.id, call);
    return call;
  }
}
