/**
 * Converts entries of a history to AG-UI events. The agent's answer becomes a run with the id of its entry;
 * user entries before it become the input of that run, where AG-UI clients look for them.
 */
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import type { JsonObject } from "@session-ledger/agui/json";
import { type HistoryEntry, entriesIn, ENTRIES_MEMBER } from "./entry.ts";
import { LangChain4jMapper, type Mapper, mapped } from "./langchain4j.ts";
import { type RunIds, RunBuilder } from "./run-builder.ts";

export function* fromHistory(
  entries: Iterable<JsonObject>,
  names: RunIds,
): Generator<AguiEvent, void, undefined> {
  yield* mapped(entries, new HistoryMapper(names));
}

/** User entries that wait for an answer; above these limits they become a run without an answer. */
const WAITING_MAX = 1_000;
const WAITING_CHARS_MAX = 262_144;

/** A stored entry is complete, even if its events have no terminal event. */
const WHOLE = { kind: "finished", result: undefined } as const;

/** `runId` is the prefix of ids for entries without an id. */
export class HistoryMapper implements Mapper {
  readonly #names: RunIds;
  #waiting: HistoryEntry[] = [];
  #waitingChars = 0;
  #count = 0;

  constructor(names: RunIds) {
    this.#names = names;
  }

  /** Throws NotAnEntry, and takes nothing of the value then. */
  take(value: JsonObject): readonly AguiEvent[] {
    const entries = entriesIn(value, () => `${this.#names.runId}.${(this.#count += 1)}`);
    return entries.flatMap((entry) =>
      entry.role === "USER" ? this.#addQuestion(entry) : this.#run(entry),
    );
  }

  end(): readonly AguiEvent[] {
    return this.#unanswered();
  }

  #addQuestion(entry: HistoryEntry): readonly AguiEvent[] {
    const chars = JSON.stringify(entry.original).length + entry.text.length;
    const isFull =
      this.#waiting.length >= WAITING_MAX || this.#waitingChars + chars > WAITING_CHARS_MAX;
    const made = isFull ? this.#unanswered() : [];
    this.#waiting.push(entry);
    this.#waitingChars += chars;
    return made;
  }

  #unanswered(): readonly AguiEvent[] {
    const last = this.#waiting.at(-1);
    if (last === undefined) return [];
    const names = { ...this.#names, runId: `${last.id}:said` };
    const run = new RunBuilder(names, this.#started(names));
    run.finish(undefined);
    return run.take();
  }

  #run(entry: HistoryEntry): readonly AguiEvent[] {
    const { id: runId, text, events } = entry;
    const names = { ...this.#names, runId };
    const started = this.#started(names, entry);
    if (events === undefined) {
      const run = new RunBuilder(names, started);
      run.text(text);
      run.finish(undefined);
      return run.take();
    }
    const mapper = new LangChain4jMapper(names, { started, isOneRun: true, endsWith: WHOLE });
    const made = events.flatMap((event) => mapper.take(event));
    // Some writers stored the text only outside the events.
    const whole =
      text === "" ? [] : mapper.take({ eventType: "AccumulatedResponse", message: text });
    return [...made, ...whole, ...mapper.end()];
  }

  #started({ sessionId: threadId, runId }: RunIds, answer?: HistoryEntry): object {
    const questions = this.#waiting;
    this.#waiting = [];
    this.#waitingChars = 0;
    const messages = questions.map(({ id, text }) => ({ id, role: "user", content: text }));
    const rest = { state: {}, tools: [], context: [], forwardedProps: {} };
    const entries = answer === undefined ? questions : [...questions, answer];
    const timestamp = (answer ?? questions.at(-1))?.createdAtMs;
    return {
      ...(timestamp !== undefined && { timestamp }),
      ...(questions.length > 0 && { input: { threadId, runId, messages, ...rest } }),
      rawEvent: { [ENTRIES_MEMBER]: entries.map(({ original }) => original) },
    };
  }
}
