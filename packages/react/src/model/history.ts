/**
 * Folds the rows of a session once, as the service does for a transcript, and keeps the past of each
 * message. So any moment is found without another fold.
 *
 *   rows ─► canonical ─► transcript ─► which messages changed ─► lines, each with its versions
 */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { graphInterrupt, type ModelUsage, usageIn } from "@session-ledger/agui/run-end";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { USER_ROW_TYPE, messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import { FeedbackIndex } from "@session-ledger/agui/transcript/feedback";
import type { MessageEntry } from "@session-ledger/agui/transcript/message-list";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { copyOf } from "@session-ledger/agui/transcript/weight";
import { LineList } from "./line-list.ts";
import {
  type Called,
  type CallLine,
  FixedLine,
  MessageLine,
  type Origin,
  StateLine,
} from "./lines.ts";
import { type Row, type ConversationMessage, sentAtMs } from "./source.ts";
import { Patches, Track } from "./versions.ts";

export interface RunMark {
  readonly phase: "start" | "end" | "error";
  readonly outcome: string | undefined;
  /** From 1, in the order of their beginnings; 0: its beginning is not in the log. */
  readonly number: number;
  /** Of an end: how long it took, its tool calls, and the tokens of its models. */
  readonly tookMs: number | undefined;
  readonly toolCalls: number;
  readonly usage: readonly ModelUsage[];
  readonly message: string | undefined;
  readonly code: string | undefined;
}

export interface RunNow {
  readonly runId: string;
  readonly isOpen: boolean;
}

const PATHS_MAX = 8;
const OPENS: ReadonlySet<unknown> = new Set(["TEXT_MESSAGE_START", "REASONING_MESSAGE_START"]);
/** Events that change nothing but the message or the call that they belong to. */
const WITHIN = /_(CONTENT|ARGS|END)$/;
const CLOSES: ReadonlySet<unknown> = new Set(["TEXT_MESSAGE_END", "REASONING_MESSAGE_END"]);

/** The branches of one message and of its edits. */
export class Branches {
  /** Numbers of message rows that no run has taken. */
  readonly waiting: number[] = [];
  /** The numbers of the RUN_STARTED events that began them; a new list after each change. */
  seqs: readonly number[] = [];

  /** True: none waits any more. */
  take(takenSeq: number, runSeq: number): boolean {
    const taken = this.waiting.filter((seq) => seq <= takenSeq);
    if (taken.length > 0) this.seqs = [...this.seqs, runSeq];
    this.waiting.splice(0, taken.length);
    return this.waiting.length === 0;
  }
}

/** Of the end of a run whose graph asks. */
const ASKS = { type: "interrupt" };

export class History {
  readonly #canonical: Canonical;
  readonly #transcript = new Transcript();
  readonly #feedback = new FeedbackIndex();
  readonly #lineOf = new Map<MessageEntry, MessageLine>();
  readonly #changed = new Set<MessageEntry>();
  /** Messages that the agent is writing, and calls without a result. */
  readonly #open = new Set<MessageLine>();
  readonly #unanswered = new Map<unknown, Unanswered>();
  /** The end of the run whose interrupts wait. */
  #asking: FixedLine<RunMark> | undefined;
  readonly #twins = new Map<object, readonly MessageEntry[]>();
  /** User messages that no run has taken. */
  #waiting: MessageLine[] = [];
  readonly #branching = new Set<Branches>();
  #keys = 0;
  #runs = 0;
  /** The open run: when it began, and the ids of its calls. */
  #started: { readonly atMs: number; readonly calls: Set<unknown> } | undefined;
  #now = { seq: 0, atMs: 0, runId: "" };
  #foldedSeq = 0;

  readonly lines: LineList;
  readonly state = new Patches();
  /** Names by id, as SUBAGENT_STARTED gives them. */
  readonly subagents = new Map<string, string>();
  readonly interrupts = new Track<readonly JsonObject[]>();
  readonly run = new Track<RunNow>();
  /** People's rows up to this number were taken by runs, or answered by rows. */
  readonly taken = new Track<number>();
  /** By the key of the end of a run: what became of its interrupts; absent: they wait. */
  readonly answers = new Map<string, Track<"answered" | "unanswered">>();
  /** By the id of a message: the events with which runs began that answered it, or an edit of it, again. */
  readonly branches = new Map<unknown, Branches>();
  /** By the id of the message. */
  readonly feedback = new Map<string, Track<readonly JsonObject[]>>();
  /** By the id of a call: messages that had the call, and messages that were its result, in order. */
  readonly callers = new Map<unknown, Called[]>();
  readonly results = new Map<unknown, MessageLine[]>();

  /** Lines in a block of the list: tests have small blocks. */
  constructor(sessionId: string, blockLinesMax?: number) {
    this.#canonical = new Canonical(sessionId);
    this.lines = new LineList(blockLinesMax);
    this.#transcript.observe({
      added: (entry) => this.#add(entry),
      changed: (entry) => void this.#changed.add(entry),
      removed: (entry) => this.#remove(entry),
    });
  }

  /** The number of the last event in it. */
  get foldedSeq(): number {
    return this.#foldedSeq;
  }

  /** The next row; it has its payload. */
  take({ seq, lastSeq, type, payload = "{}", atMs, runId, isConformant }: Row): void {
    this.#now = { seq, atMs, runId };
    const event = { seq: BigInt(seq), eventType: type, payload, conformant: isConformant };
    for (const { value } of this.#canonical.next(event, this.#transcript)) this.#apply(value);
    this.#foldedSeq = lastSeq;
  }

  /** The next row of the messages' stream: it comes after the last event that was folded. */
  onMessage({ seq, id, type, payload, atMs, sentMs, sender }: ConversationMessage): void {
    if (type !== USER_ROW_TYPE && this.#canonical.hasSpeech) return;
    this.#now = { seq: this.#foldedSeq, atMs: sentAtMs({ sentMs, atMs }), runId: "" };
    const spoken = messagesOfRow({
      seq: BigInt(seq),
      id,
      eventType: type,
      payload,
      sender: sender && JSON.stringify(sender),
      createdAtMicros: microsOf(atMs),
      sentAtMicros: sentMs === undefined ? undefined : microsOf(sentMs),
    });
    const by = spoken.isFromUser ? "person" : "agent";
    this.#transcript.say(this.#canonical.onMessages(spoken), by);
    if (spoken.branch !== undefined) this.#addBranch(seq, spoken.branch.messageId, spoken.messages);
    for (const entry of this.#changed) {
      const line = this.#lineOf.get(entry);
      if (line === undefined) continue;
      line.source ??= { by, seq, sender };
      if (spoken.isFromUser) this.#waiting.push(line);
      this.#takeInto(line, entry, undefined);
    }
    this.#changed.clear();
    if (!spoken.isFromUser) this.#isTaken(seq);
  }

  #apply(event: JsonObject): void {
    const { seq } = this.#now;
    const { type, messageId } = event;
    this.#transcript.apply(event);
    if (type === "TOOL_CALL_START") this.#started?.calls.add(event["toolCallId"]);
    if (type === "MESSAGES_SNAPSHOT") this.#findTwins();
    else if (this.#twins.size > 0) this.#changeTwins();
    for (const entry of this.#changed) {
      const line = this.#lineOf.get(entry);
      if (line === undefined) continue;
      this.#takeInto(line, entry, event);
      if (OPENS.has(type) && entry.message["id"] === messageId)
        this.#open.add(line.mark(seq, true));
      if (CLOSES.has(type)) this.#open.delete(line.mark(seq, false));
      if (String(type).startsWith("TOOL_CALL_")) this.#followCall(line, event);
    }
    this.#changed.clear();
    if (type === "STATE_SNAPSHOT" || type === "STATE_DELTA") this.#changeState(event);
    else if (type === "CUSTOM") this.#takeFeedback(event);
    else if (type === "SUBAGENT_STARTED") this.#startSubagent(event);
    else if (type === "RUN_STARTED") this.#startRun(event);
    else if (type === "RUN_FINISHED" || type === "RUN_ERROR") this.#endRun(event);
  }

  /** A snapshot gives messages of one id one object, so that later events change all of them. */
  #findTwins(): void {
    const first = new Map<object, MessageEntry>();
    for (const entry of this.#changed) {
      const twin = first.get(entry.message);
      if (twin === undefined) first.set(entry.message, entry);
      else this.#twins.set(entry.message, [...(this.#twins.get(entry.message) ?? [twin]), entry]);
    }
  }

  #changeTwins(): void {
    for (const { message } of this.#changed)
      for (const twin of this.#twins.get(message) ?? [])
        if (this.#lineOf.has(twin) && twin.message === message) this.#changed.add(twin);
  }

  #add(entry: MessageEntry): void {
    const line = new MessageLine(this.#origin(), (called) =>
      addTo(this.callers, called.call.id, called),
    );
    const previous = entry.previous === undefined ? undefined : this.#lineOf.get(entry.previous);
    // A message at the end goes behind what happened meanwhile.
    this.lines.insert(line, entry.next === undefined ? this.lines.last : previous);
    this.#lineOf.set(entry, line);
    this.#changed.add(entry);
  }

  /** `event` is undefined for a row of the messages' stream. */
  #takeInto(line: MessageLine, { message }: MessageEntry, event: JsonObject | undefined): void {
    const { seq } = this.#now;
    const { type, toolCallId: calledId } = event ?? {};
    const hasChanged = line.take(this.#now, message, event);
    // Most messages of a snapshot are the same as before.
    if (!hasChanged && type === "MESSAGES_SNAPSHOT") return;
    this.lines.touch(line, seq);
    const { role, toolCallId } = message;
    if (role === "tool") addTo(this.results, toolCallId, line);
    if (type === "TOOL_CALL_START") this.#touchEach(this.results.get(calledId));
    else if (!WITHIN.test(String(type))) this.#touchLinked(line);
  }

  /** A call shows its result, so each changes with the other. */
  #touchLinked(line: MessageLine): void {
    const { fields, calls, callCount = 0 } = line.newest ?? {};
    if (fields?.["role"] === "tool")
      this.#touchEach(this.callers.get(fields["toolCallId"])?.map(({ owner }) => owner));
    for (const { id } of calls?.slice(0, callCount) ?? []) this.#touchEach(this.results.get(id));
  }

  #touchEach(lines: readonly MessageLine[] = []): void {
    for (const line of lines) this.lines.touch(line, this.#now.seq);
  }

  #remove(entry: MessageEntry): void {
    const line = this.#lineOf.get(entry);
    if (line !== undefined) {
      line.died = this.#now.seq;
      this.lines.touch(line, this.#now.seq);
      this.#touchLinked(line);
    }
    this.#lineOf.delete(entry);
    this.#changed.delete(entry);
  }

  #followCall(line: MessageLine, { type, toolCallId }: JsonObject): void {
    const { seq } = this.#now;
    const call = line.call(toolCallId);
    if (type === "TOOL_CALL_RESULT") this.#unanswered.delete(toolCallId);
    if (call === undefined) return;
    if (type === "TOOL_CALL_START") {
      call.mark(seq, { isOpen: true, settled: undefined });
      this.#unanswered.set(toolCallId, { line, call });
    } else if (type === "TOOL_CALL_END") call.mark(seq, { isOpen: false });
  }

  #startSubagent({ subagentRunId: id, name }: JsonObject): void {
    if (typeof id === "string" && typeof name === "string") this.subagents.set(id, name);
  }

  #startRun({ runId }: JsonObject): void {
    const { seq } = this.#now;
    // The next run continues calls that a person has to allow.
    const isResumed = (this.interrupts.last?.length ?? 0) > 0;
    if (!isResumed) this.#settle("done");
    this.#isTaken(Number(this.#canonical.turns.takenSeq));
    this.interrupts.set(seq, this.#transcript.interrupts());
    if (isResumed && this.#transcript.interrupts().length === 0) this.#answer("answered");
    this.#runs += 1;
    this.#started = { atMs: this.#now.atMs, calls: new Set() };
    this.#addRun("start", { runId });
  }

  #answer(outcome: "answered" | "unanswered"): void {
    const line = this.#asking;
    this.#asking = undefined;
    if (line === undefined) return;
    const track = new Track<typeof outcome>();
    track.set(this.#now.seq, outcome);
    this.answers.set(line.key, track);
    this.lines.touch(line, this.#now.seq);
  }

  #endRun(event: JsonObject): void {
    const { seq } = this.#now;
    const isError = event["type"] === "RUN_ERROR";
    if (isError) this.#settle("failed");
    else this.#dropUnanswered();
    const interrupts = this.#transcript.interrupts();
    const graph = graphInterrupt(this.#canonical.run?.questions ?? []);
    const isOfGraph = interrupts.length === 0 && graph !== undefined;
    this.interrupts.set(seq, isOfGraph ? [graph] : interrupts);
    this.#addRun(isError ? "error" : "end", isOfGraph ? { ...event, outcome: ASKS } : event);
    this.#started = undefined;
  }

  /** Somebody typed past the question: its call gets no result. */
  #dropUnanswered(): void {
    const { seq } = this.#now;
    const { unanswered } = this.#transcript;
    if (unanswered.length > 0) this.#answer("unanswered");
    for (const { id, toolCallId = id } of unanswered) {
      const called = this.#unanswered.get(toolCallId);
      if (called === undefined) continue;
      called.call.mark(seq, { isOpen: false, settled: "unanswered" });
      this.lines.touch(called.line, seq);
      this.#unanswered.delete(toolCallId);
    }
  }

  #addRun(phase: RunMark["phase"], event: JsonObject): void {
    const { runId, outcome, message, code } = event;
    const isEnd = phase !== "start";
    const started = this.#started;
    const before = this.run.last?.runId ?? this.#now.runId;
    const origin = { ...this.#origin(), runId: textOf(runId) ?? before };
    const mark: RunMark = {
      phase,
      outcome: isObject(outcome) ? textOf(outcome["type"]) : undefined,
      number: started === undefined ? 0 : this.#runs,
      tookMs: isEnd && started !== undefined ? this.#now.atMs - started.atMs : undefined,
      toolCalls: isEnd ? (started?.calls.size ?? 0) : 0,
      usage: isEnd ? usageIn(event) : [],
      message: textOf(message),
      code: textOf(code),
    };
    const line = new FixedLine(origin, mark);
    this.lines.insert(line, this.lines.last);
    if (mark.outcome === "interrupt") this.#asking = line;
    this.run.set(this.#now.seq, { runId: origin.runId, isOpen: phase === "start" });
  }

  /** Nothing is written any more, and no result comes. */
  #settle(settled: "done" | "failed"): void {
    const { seq } = this.#now;
    for (const line of this.#open) this.lines.touch(line.mark(seq, false), seq);
    for (const { line, call } of this.#unanswered.values()) {
      call.mark(seq, { isOpen: false, settled });
      this.lines.touch(line, seq);
    }
    this.#open.clear();
    this.#unanswered.clear();
  }

  /** A message that begins a branch belongs to those of the message that it answers again, or replaces. */
  #addBranch(seq: number, messageId: string, messages: readonly JsonObject[]): void {
    const branches = this.branches.get(messageId) ?? new Branches();
    for (const id of [messageId, ...messages.map((message) => message["id"])])
      this.branches.set(id, branches);
    branches.waiting.push(seq);
    this.#branching.add(branches);
  }

  /** The run that begins now takes them. */
  #takeBranches(takenSeq: number): void {
    for (const branches of this.#branching) {
      if (!branches.take(takenSeq, this.#now.seq)) continue;
      this.#branching.delete(branches);
      for (const [entry, line] of this.#lineOf)
        if (this.branches.get(entry.message["id"]) === branches)
          this.lines.touch(line, this.#now.seq);
    }
  }

  #isTaken(seq: number): void {
    if (seq <= (this.taken.last ?? 0)) return;
    this.#takeBranches(seq);
    this.taken.set(this.#now.seq, seq);
    this.#touchEach(this.#waiting);
    this.#waiting = this.#waiting.filter(({ source }) => (source?.seq ?? 0) > seq);
  }

  #changeState({ type, snapshot, delta }: JsonObject): void {
    const { seq } = this.#now;
    const { state, isStateTooLarge } = this.#transcript;
    const isSet = this.state.at(seq) !== undefined;
    if (isStateTooLarge) this.state.set(seq, undefined);
    else if (type === "STATE_SNAPSHOT" && snapshot !== undefined) this.state.set(seq, snapshot);
    else if (type === "STATE_DELTA" && isSet) this.state.patch(seq, delta, state);
    else if (type === "STATE_DELTA" && state !== undefined)
      this.state.set(seq, copyOf(state).value);
    const { last } = this.lines;
    const line = last instanceof StateLine ? last : new StateLine(this.#origin());
    if (line !== last) this.lines.insert(line, last);
    const change = type === "STATE_SNAPSHOT" ? "snapshot" : "delta";
    const count = line.nextCount();
    line.changes.set(seq, { change, paths: pathsOf(delta), count, lastSeq: seq });
    this.lines.touch(line, seq);
  }

  #takeFeedback(event: JsonObject): void {
    const { value } = event;
    const payload = isObject(value) ? value["payload"] : undefined;
    const id = isObject(payload) ? textOf(payload["messageId"]) : undefined;
    this.#feedback.take(event);
    if (id === undefined) return;
    const given = feedbackOn(this.#feedback, id);
    if (given.length === 0) return;
    const track = this.feedback.get(id) ?? new Track();
    track.set(this.#now.seq, given);
    this.feedback.set(id, track);
    const lines = [...this.#lineOf.values()];
    this.#touchEach(lines.filter((line) => line.newest?.fields["id"] === id));
  }

  #origin(): Origin {
    this.#keys += 1;
    return { key: String(this.#keys), ...this.#now };
  }
}

interface Unanswered {
  readonly line: MessageLine;
  readonly call: CallLine;
}

function addTo<T>(lists: Map<unknown, T[]>, id: unknown, one: T): void {
  const known = lists.get(id);
  if (known === undefined) lists.set(id, [one]);
  else if (!known.includes(one)) known.push(one);
}

function feedbackOn(feedback: FeedbackIndex, id: string): readonly JsonObject[] {
  const metadata = feedback.on([{ id }])[0]?.["metadata"];
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const given = isObject(session) ? session["feedback"] : undefined;
  return Array.isArray(given) ? given.filter(isObject) : [];
}

function pathsOf(delta: unknown): readonly string[] {
  if (!Array.isArray(delta)) return [];
  const paths = delta.slice(0, PATHS_MAX).map((one) => (isObject(one) ? one["path"] : undefined));
  return paths.filter((path) => typeof path === "string");
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Of milliseconds with microseconds as fraction. */
function microsOf(ms: number): bigint {
  return BigInt(Math.round(ms * 1_000));
}
