/**
 * The texts of a stretch of a session's rows, as a reader of the transcript sees them, and its runs. It is the
 * fold of a transcript that gives out each message when it has ended, with the row in which it begins:
 *
 *   rows of both streams ──► canonical ──► transcript ──► changed messages ── all parts closed ──► texts
 *                                ├─ names of tools, errors ──────────────────────────────────────► texts
 *                                └─ analytics/run-fold.ts ───────────────────────────────────────► runs
 *
 * It may begin at any row. Between two rows it is at rest when no run and no message is open; a fold that
 * begins at that row has the same texts and runs.
 */
import type { Cut } from "../conversation/merging.ts";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { type FoundCall, type FoundRun, type OpenRun, RunFold } from "../analytics/run-fold.ts";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { USER_ROW_TYPE, messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import type { MessageEntry } from "@session-ledger/agui/transcript/message-list";
import { textOfMessage } from "@session-ledger/agui/transcript/readable";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import type { TranscriptRow } from "../store/pages.ts";
import type { StreamName } from "../store/rows.ts";
import type { TranscriptMessageRow } from "../store/transcript-messages.ts";

/** The row in which a text begins. */
interface TextPosition {
  readonly stream: StreamName;
  readonly seq: bigint;
  readonly eventType: string;
  readonly createdMicros: number;
  /** The run that was open; empty: none. */
  readonly runId: string;
}

export interface FoundText extends TextPosition {
  readonly role: string;
  readonly text: string;
}

export interface FoundTexts {
  readonly texts: readonly FoundText[];
  readonly runs: readonly FoundRun[];
  readonly calls: readonly FoundCall[];
}

interface FoldOptions {
  readonly open: OpenRun | undefined;
  /** False: only runs are found, and message rows do not matter. */
  readonly hasTexts: boolean;
}

export const ROLES = [
  "user",
  "assistant",
  "reasoning",
  "system",
  "developer",
  "tool",
  "error",
  "other",
] as const;

export class TextFold {
  readonly #canonical: Canonical;
  readonly #transcript = new Transcript();
  readonly #runs: RunFold;
  readonly #hasTexts: boolean;
  readonly #positions = new WeakMap<MessageEntry, TextPosition>();
  /** Messages that were not given out since their last change. */
  readonly #changed = new Set<MessageEntry>();
  /** Ids of open messages, and of open calls. */
  readonly #open = new Set<unknown>();
  #found: FoundText[] = [];
  #position: TextPosition | undefined;
  #hasSpeech: boolean;
  #cut: Cut;

  constructor(
    sessionId: string,
    from: Cut & { readonly hasSpeech: boolean },
    { open, hasTexts }: FoldOptions,
  ) {
    this.#canonical = new Canonical(sessionId);
    this.#runs = new RunFold(open);
    this.#hasTexts = hasTexts;
    this.#cut = from;
    this.#hasSpeech = from.hasSpeech;
    this.#transcript.observe({
      added: (entry) => {
        if (this.#position === undefined) return;
        this.#positions.set(entry, this.#position);
        this.#changed.add(entry);
        this.#nameTools(entry.message["toolCalls"]);
      },
      changed: (entry) => void this.#changed.add(entry),
      removed: (entry) => void this.#changed.delete(entry),
    });
  }

  get cut(): Cut {
    return this.#cut;
  }

  get hasSpeech(): boolean {
    return this.#hasSpeech || this.#canonical.hasSpeech;
  }

  /** False: only user messages matter. */
  get needsAllMessages(): boolean {
    return !this.hasSpeech;
  }

  get isAtRest(): boolean {
    return this.#runId === "" && this.#open.size === 0 && !this.#runs.isOpen;
  }

  /** The memory it holds, as packages/agui/src/transcript/weight.ts estimates it. */
  get bytes(): number {
    return this.#canonical.bytes + this.#transcript.bytes + this.#runs.bytes;
  }

  /** The next row of both streams. */
  take(row: TranscriptRow | TranscriptMessageRow): void {
    if (row.stream === "events") this.#takeEvent(row);
    else this.#takeMessage(row);
  }

  /** No other rows exist up to these numbers. */
  skipTo({ events, messages }: Cut): void {
    this.#cut = {
      events: events > this.#cut.events ? events : this.#cut.events,
      messages: messages > this.#cut.messages ? messages : this.#cut.messages,
    };
  }

  /** What has ended since the last call; with `all` also what has not. */
  drain({ all }: { readonly all: boolean }): FoundTexts {
    return { texts: this.#texts(all), ...this.#runs.drain({ all }) };
  }

  #texts(all: boolean): readonly FoundText[] {
    const found = this.#found;
    this.#found = [];
    for (const entry of this.#changed) {
      if (!all && this.#open.has(entry.message["id"])) continue;
      this.#changed.delete(entry);
      const place = this.#positions.get(entry);
      const text = textOfMessage(entry.message);
      if (place !== undefined && text !== "")
        found.push({ ...place, role: roleOf(entry.message), text });
    }
    return found;
  }

  #takeEvent(row: TranscriptRow): void {
    const { stream, seq, eventType, createdMicros } = row;
    const runBefore = this.#runId;
    const events = this.#canonical.next(row, this.#transcript);
    this.#runs.take(row, events);
    this.skipTo({ events: seq + BigInt(row.eventCount) - 1n, messages: 0n });
    if (!this.#hasTexts) return;
    this.#position = { stream, seq, eventType, createdMicros, runId: this.#runId || runBefore };
    for (const { value } of events) {
      this.#follow(value, eventType);
      this.#transcript.apply(value);
    }
  }

  #takeMessage(row: TranscriptMessageRow): void {
    const { stream, seq, eventType, createdMicros } = row;
    this.#position = { stream, seq, eventType, createdMicros, runId: this.#runId };
    if (eventType === USER_ROW_TYPE || this.needsAllMessages) {
      const added = messagesOfRow(row);
      const messages = this.#canonical.onMessages(added);
      this.#transcript.say(messages, added.isFromUser ? "person" : "agent");
    }
    this.skipTo({ events: 0n, messages: seq });
  }

  #follow(value: JsonObject, stored: string): void {
    switch (value["type"]) {
      case "TEXT_MESSAGE_START":
      case "REASONING_MESSAGE_START":
        this.#open.add(value["messageId"]);
        return;
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        this.#open.delete(value["messageId"]);
        return;
      case "TOOL_CALL_START":
        this.#find("tool", value["toolCallName"]);
        return;
      case "RUN_ERROR":
      case "SUBAGENT_ERROR":
        // Another event may stand for the end of a run that has none.
        if (stored === value["type"]) this.#find("error", errorText(value));
        if (value["type"] === "RUN_ERROR") this.#open.clear();
        return;
      case "RUN_STARTED":
      case "RUN_FINISHED":
        this.#open.clear();
        return;
      default:
    }
  }

  #nameTools(calls: unknown): void {
    if (!Array.isArray(calls)) return;
    for (const call of (calls as readonly unknown[]).filter(isObject)) {
      const called = call["function"];
      if (isObject(called)) this.#find("tool", called["name"]);
    }
  }

  #find(role: string, text: unknown): void {
    if (this.#position !== undefined && typeof text === "string" && text !== "")
      this.#found.push({ ...this.#position, role, text });
  }

  get #runId(): string {
    const { run } = this.#canonical;
    return run?.status === "running" ? run.runId : "";
  }
}

function errorText({ message, code }: JsonObject): unknown {
  return typeof code === "string" ? `${String(message)} (${code})` : message;
}

function roleOf({ role, name }: MessageEntry["message"]): string {
  // A row of type `error` becomes a message of the system with this name.
  if (role === "system" && name === "error") return "error";
  return ROLES.find((one) => one === role) ?? "other";
}
