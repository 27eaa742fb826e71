/**
 * Turns rows of a session into the frames for one client. Events outside of runs are withheld,
 * because clients accept none. User messages come as text inside the open run; between runs in the
 * input of an extra run, which adds only messages that the client lacks.
 */
import { contentText, isObject, type JsonObject } from "@session-ledger/agui/json";
import type { LiveState } from "../live/watcher.ts";
import type { Metrics } from "../observability/metrics.ts";
import { USER_ROW_TYPE } from "@session-ledger/agui/canonical/user-messages";
import type {
  Canonical,
  CanonicalRun,
  ConversationLog,
} from "@session-ledger/agui/canonical/canonical";
import type { CanonicalEvent, LoggedEvent } from "@session-ledger/agui/canonical/event";
import type { RowMessages } from "@session-ledger/agui/canonical/repeats";
import { EMPTY_INPUT } from "@session-ledger/agui/canonical/turns";
import { type Generation, servedTo } from "@session-ledger/agui/generation/served";
import { pendingAfter } from "@session-ledger/agui/transcript/transcript";

interface WriterOutput {
  readonly frames: readonly AguiFrame[];
  /** Behind these frames the client needs a snapshot: some events or messages were withheld from it. */
  readonly isIncomplete: boolean;
  /** The client has messages that are in the conversation no more, and may be of any role. */
  readonly mustForget?: boolean;
  /** It needs the snapshot inside of the run that it has open, before this end. */
  readonly endedRun?: EndedRun;
}

/** A run of which the client has not been given the end. */
export interface EndedRun extends Pick<CanonicalRun, "startedSeq"> {
  readonly end: JsonObject;
}

const NOTHING_NEW: WriterOutput = { frames: [], isIncomplete: false };

interface WriterParts {
  readonly canonical: Canonical;
  readonly generation: Generation;
  readonly metrics: Pick<Metrics, "aguiMended">;
  /** The transcript before the next event; without it the caller makes up for what may be shown twice. */
  readonly log?: ConversationLog;
  /** Gets every event, and returns the event to send. */
  readonly onEvent?: (event: CanonicalEvent) => CanonicalEvent;
  /** Gets the messages of each row. */
  readonly onMessages?: (messages: readonly JsonObject[], isFromUser: boolean) => void;
  /** Makes frames that replace the withheld events; without it the caller must. */
  readonly snapshotFrames?: (seq: bigint) => readonly AguiFrame[];
}

interface WriterOptions {
  /** True: earlier events or messages were withheld from the client. */
  readonly hasWithheld: boolean;
  /** The client has messages of rows. */
  readonly hasMessages: boolean;
  /** The interrupts that the client waits for. */
  readonly interrupts: readonly JsonObject[];
}

export class EventWriter {
  #parts: WriterParts;
  #hasWithheld: boolean;
  #interrupts: readonly JsonObject[];
  #hasMessages: boolean;
  #hasFailed = false;

  constructor(parts: WriterParts, { hasWithheld, hasMessages, interrupts }: WriterOptions) {
    this.#parts = parts;
    this.#hasWithheld = hasWithheld;
    this.#hasMessages = hasMessages;
    this.#interrupts = interrupts;
  }

  /** From here on `onEvent` is not called, and the caller makes up for withheld events. */
  goLive(): void {
    const { canonical, generation, metrics } = this.#parts;
    this.#parts = { canonical, generation, metrics };
  }

  get run(): CanonicalRun | undefined {
    return this.#parts.canonical.run;
  }

  get isRunning(): boolean {
    return this.run?.status === "running";
  }

  /** True when the newest run has ended, or failed before it began. */
  get hasEnded(): boolean {
    return !this.isRunning && (this.#parts.canonical.run !== undefined || this.#hasFailed);
  }

  /** A run that the log does not have. */
  messagesRun(messageSeq: bigint): Ids {
    return this.#parts.canonical.messagesRun(messageSeq);
  }

  /** Runs have taken the user messages up to this number. */
  get takenSeq(): bigint {
    return this.#parts.canonical.turns.takenSeq;
  }

  /** Whether rows of this type are part of the conversation. */
  includes(eventType: string): boolean {
    return eventType === USER_ROW_TYPE || !this.#parts.canonical.hasSpeech;
  }

  /** `seq` is the last number that the event takes. */
  writeEvent(event: LoggedEvent, seq: bigint): WriterOutput {
    const { canonical, log, snapshotFrames, onEvent } = this.#parts;
    const frames: AguiFrame[] = [];
    const isFirstSpeech = !canonical.hasSpeech;
    const { run } = this;
    let isInRun = this.isRunning;
    const events = canonical.next(event, log);
    // From here on the rows of the agent are not part of the conversation.
    if (isFirstSpeech && canonical.hasSpeech && this.#hasMessages) this.#hasWithheld = true;
    for (const one of events) {
      const sent = onEvent?.(one) ?? one;
      this.#interrupts = pendingAfter(this.#interrupts, sent.value);
      if (!sent.inRun) {
        this.#hasWithheld = true;
        this.#parts.metrics.aguiMended.inc({ how: "withheld" });
        continue;
      }
      if (sent.isUnsure === true) this.#hasWithheld = true;
      const { type } = sent.value;
      const isStart = type === "RUN_STARTED";
      const isEnd = isInRun && (type === "RUN_FINISHED" || type === "RUN_ERROR");
      const needsSnapshot = this.#hasWithheld && (isStart || isEnd);
      if (needsSnapshot && snapshotFrames === undefined) {
        if (isStart || run === undefined)
          return { frames, isIncomplete: true, mustForget: sent.isUnsure === true };
        const { startedSeq } = run;
        return { frames, isIncomplete: true, endedRun: { startedSeq, end: sent.value } };
      }
      const own = textFrames(this.#textsOf(sent), { type, seq });
      if (isEnd && needsSnapshot) frames.push(...(snapshotFrames?.(seq) ?? []));
      frames.push(...own);
      if (isStart && needsSnapshot) frames.push(...(snapshotFrames?.(seq) ?? []));
      if (type === "RUN_ERROR") this.#hasFailed = true;
      // The messages of a person, and the calls, are in the agent's own snapshot too.
      if (needsSnapshot || type === "MESSAGES_SNAPSHOT") this.#hasWithheld = false;
      if (isStart || isEnd) isInRun = isStart;
    }
    return { frames, isIncomplete: false };
  }

  /** `seq` is the last number of an event that the client has been given. */
  writeMessages(rows: readonly RowMessages[], seq: bigint): WriterOutput {
    const { canonical, snapshotFrames, onMessages } = this.#parts;
    const messages: JsonObject[] = [];
    for (const row of rows) {
      const fresh = canonical.onMessages(row);
      if (fresh.length > 0) onMessages?.(fresh, row.isFromUser);
      messages.push(...fresh);
    }
    if (messages.length === 0) return NOTHING_NEW;
    this.#hasMessages = true;
    if (this.isRunning) {
      // The next snapshot has the parts that are not text.
      if (messages.some(({ content }) => Array.isArray(content))) this.#hasWithheld = true;
      const frames = messages.flatMap((message) => this.#inRun(message, seq));
      return { frames, isIncomplete: false };
    }
    if (this.#hasWithheld && snapshotFrames === undefined)
      return { frames: [], isIncomplete: true };
    const run = canonical.messagesRun(rows.at(-1)?.seq ?? 0n);
    const frames = [
      ...this.#eventFrames(startOf(run, this.#hasWithheld ? [] : messages), seq),
      ...(this.#hasWithheld ? (snapshotFrames?.(seq) ?? []) : this.#results(messages, seq)),
      // A client forgets the questions of a graph when a run begins.
      ...(canonical.run?.questions ?? []).flatMap((question) => this.#eventFrames(question, seq)),
      ...this.#eventFrames(endOf(run, this.#interrupts), seq),
    ];
    this.#hasWithheld = false;
    return { frames, isIncomplete: false };
  }

  #inRun(message: JsonObject, seq: bigint): readonly AguiFrame[] {
    if (message["role"] === "tool") return this.#results([message], seq);
    return eventsOfText(message).flatMap((event) => this.#eventFrames(event, seq));
  }

  /** Results of tools are put behind their calls. */
  #results(messages: readonly JsonObject[], seq: bigint): readonly AguiFrame[] {
    return messages
      .filter(isResult)
      .flatMap((message) => this.#eventFrames(eventOfResult(message), seq));
  }

  /** An event that is not in the log. */
  #eventFrames(event: JsonObject, seq: bigint): readonly AguiFrame[] {
    return eventFrames(event, { generation: this.#parts.generation, seq });
  }

  #textsOf(event: CanonicalEvent): readonly string[] {
    const texts = servedTo(this.#parts.generation, event);
    if (texts.length === 0) this.#parts.metrics.aguiMended.inc({ how: "left_out" });
    else if (texts[0] !== event.text) this.#parts.metrics.aguiMended.inc({ how: "translated" });
    return texts;
  }
}

function isResult({ role }: JsonObject): boolean {
  return role === "tool";
}

type Ids = ReturnType<Canonical["messagesRun"]>;

/** A run that the log does not have. */
function startOf(run: Ids, messages: readonly JsonObject[]): JsonObject {
  const others = messages.filter((message) => !isResult(message));
  if (others.length === 0) return { type: "RUN_STARTED", ...run };
  return { type: "RUN_STARTED", ...run, input: { ...run, ...EMPTY_INPUT, messages: others } };
}

/** A client waits only for the interrupts of the last end. */
export function endOf(run: Ids, interrupts: readonly JsonObject[]): JsonObject {
  const outcome = interrupts.length === 0 ? {} : { outcome: { type: "interrupt", interrupts } };
  return { type: "RUN_FINISHED", ...run, ...outcome };
}

function eventsOfText({ id, role, name, metadata, content }: JsonObject): readonly JsonObject[] {
  const delta = contentText(content);
  const more = { ...(name === undefined ? {} : { name }), ...(isObject(metadata) && { metadata }) };
  return [
    { type: "TEXT_MESSAGE_START", messageId: id, role, ...more },
    // Clients before 1.0.0 refuse an empty delta.
    ...(delta === "" ? [] : [{ type: "TEXT_MESSAGE_CONTENT", messageId: id, delta }]),
    { type: "TEXT_MESSAGE_END", messageId: id },
  ];
}

function eventOfResult({ id, toolCallId, content }: JsonObject): JsonObject {
  return { type: "TOOL_CALL_RESULT", messageId: id, toolCallId, role: "tool", content };
}

/** The frames of server-sent events for an AG-UI client. */
export type AguiFrame = AguiEventFrame | { readonly comment: string };
export type AguiFrames = AsyncGenerator<AguiFrame, void, undefined>;

interface AguiEventFrame {
  /** The last log number that the client has seen after this frame. */
  readonly id: string;
  /** An event as JSON text; as UTF-8 bytes if many clients share it, so that none needs a copy. */
  readonly data: string | Uint8Array;
  /** True when no run is open after this frame. */
  readonly endsRun: boolean;
}

/** Uses the names of WatchState. Clients ignore comment frames. */
export function stateFrame(state: LiveState, seq: bigint): AguiFrame {
  return { comment: `watch_state ${state.toUpperCase()} ${seq}` };
}

/** One event for a client of the generation; it may become several events or none. */
export function textFrames(
  texts: readonly AguiEventFrame["data"][],
  { type, seq }: { readonly type: unknown; readonly seq: bigint },
): readonly AguiEventFrame[] {
  const endsRun = type === "RUN_FINISHED" || type === "RUN_ERROR";
  return texts.map((data) => ({ id: String(seq), data, endsRun }));
}

/** For an event that is not stored. */
export function eventFrames(
  value: JsonObject,
  { generation, seq }: { readonly generation: Generation; readonly seq: bigint },
): readonly AguiEventFrame[] {
  const texts = servedTo(generation, { value, text: undefined });
  return textFrames(texts, { type: value["type"], seq });
}

/** Not stored: only its runner ends a run, and this run may still continue. */
export function stalledEvent(options: { readonly runStaleAfterMs: number }): JsonObject {
  const seconds = options.runStaleAfterMs / 1_000;
  const message = `the run has no end, and nothing has happened in it for ${seconds} s`;
  return { type: "RUN_ERROR", message, code: "STALLED" };
}

export interface NoRun {
  readonly sessionId: string;
  readonly sessionExists: boolean;
  /** The message that waits for a run. */
  readonly answers: bigint | undefined;
  /** Undefined: the client waits without a limit. */
  readonly waitMs: number | undefined;
}

/** A comment for a developer who reads the stream: why the answer waits. */
export function waitingFrame({ sessionId, sessionExists, answers, waitMs }: NoRun): AguiFrame {
  const has = sessionExists
    ? `session ${sessionId} has no run`
    : `session ${sessionId} does not exist`;
  const what = answers === undefined ? has : `no run has taken message ${answers}`;
  const end = waitMs === undefined ? "" : `, and this answer ends after ${waitMs / 1_000} s`;
  return { comment: `${what} yet${end}` };
}

/** Not stored. The message waits on, so a client that comes later gets the answer. */
export function noRunnerEvents(run: Ids, waitMs: number): readonly JsonObject[] {
  const message = `no runner took the message for ${waitMs / 1_000} s; it is stored, and waits`;
  // A client accepts no second RUN_ERROR in a row, and the answer may have had one.
  return [
    { type: "RUN_STARTED", ...run },
    { type: "RUN_ERROR", message, code: "NO_RUNNER" },
  ];
}

/** Not stored. The id of a missing session may be a mistake, so the client gets an error. */
export function noRunEvent({ sessionId, waitMs = 0 }: NoRun): JsonObject {
  const message = `session ${sessionId} did not exist, and no run began in it for ${waitMs / 1_000} s`;
  return { type: "RUN_ERROR", message, code: "NO_RUN" };
}
