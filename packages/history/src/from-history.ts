/**
 * Entries of a history as AG-UI events. The answer of the agent is a run under the id of its entry; what
 * people said before it is the input of that run, where AG-UI clients look for it.
 */
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import type { JsonObject } from "@session-ledger/agui/json";
import { type Entry, entriesIn, KEPT } from "./entry.ts";
import { LangChain4jMapper, type Mapper, mapped } from "./langchain4j.ts";
import { type RunNames, ToldRun } from "./told-run.ts";

export function* fromHistory(
  entries: Iterable<JsonObject>,
  names: RunNames,
): Generator<AguiEvent, void, undefined> {
  yield* mapped(entries, new HistoryMapper(names));
}

/** What waits for the next answer; above these limits it becomes a run without an answer. */
const WAITING_MAX = 1_000;
const WAITING_CHARS_MAX = 262_144;

/** An entry that was stored is whole, also when its events have no end. */
const WHOLE = { kind: "finished", result: undefined } as const;

/** `runId` is the beginning of ids of entries that have none. */
export class HistoryMapper implements Mapper {
  readonly #names: RunNames;
  #waiting: Entry[] = [];
  #waitingChars = 0;
  #count = 0;

  constructor(names: RunNames) {
    this.#names = names;
  }

  /** Throws NotAnEntry, and takes nothing of the value then. */
  take(value: JsonObject): readonly AguiEvent[] {
    const entries = entriesIn(value, () => `${this.#names.runId}.${(this.#count += 1)}`);
    return entries.flatMap((entry) =>
      entry.role === "USER" ? this.#said(entry) : this.#run(entry),
    );
  }

  end(): readonly AguiEvent[] {
    return this.#unanswered();
  }

  #said(entry: Entry): readonly AguiEvent[] {
    const chars = JSON.stringify(entry.kept).length + entry.text.length;
    const isFull =
      this.#waiting.length >= WAITING_MAX || this.#waitingChars + chars > WAITING_CHARS_MAX;
    const made = isFull ? this.#unanswered() : [];
    this.#waiting.push(entry);
    this.#waitingChars += chars;
    return made;
  }

  /** People spoke, and no agent answered. */
  #unanswered(): readonly AguiEvent[] {
    const last = this.#waiting.at(-1);
    if (last === undefined) return [];
    const names = { ...this.#names, runId: `${last.id}:said` };
    const run = new ToldRun(names, this.#started(names));
    run.finish(undefined);
    return run.take();
  }

  #run(entry: Entry): readonly AguiEvent[] {
    const { id: runId, text, events } = entry;
    const names = { ...this.#names, runId };
    const started = this.#started(names, entry);
    if (events === undefined) {
      const run = new ToldRun(names, started);
      run.text(text);
      run.finish(undefined);
      return run.take();
    }
    const mapper = new LangChain4jMapper(names, { started, isOneRun: true, endsWith: WHOLE });
    const made = events.flatMap((event) => mapper.take(event));
    // Some stored the text only beside the events.
    const whole =
      text === "" ? [] : mapper.take({ eventType: "AccumulatedResponse", message: text });
    return [...made, ...whole, ...mapper.end()];
  }

  #started({ sessionId: threadId, runId }: RunNames, answer?: Entry): object {
    const said = this.#waiting;
    this.#waiting = [];
    this.#waitingChars = 0;
    const messages = said.map(({ id, text }) => ({ id, role: "user", content: text }));
    const rest = { state: {}, tools: [], context: [], forwardedProps: {} };
    const entries = answer === undefined ? said : [...said, answer];
    const timestamp = (answer ?? said.at(-1))?.createdAtMs;
    return {
      ...(timestamp !== undefined && { timestamp }),
      ...(said.length > 0 && { input: { threadId, runId, messages, ...rest } }),
      rawEvent: { [KEPT]: entries.map(({ kept }) => kept) },
    };
  }
}
