/**
 * Makes the stream for AG-UI clients from the log of a session. For any log, the events with
 * `inRun` are a stream that @ag-ui/client 0.0.59 and 1.0.0 accept. If those clients would accept
 * the log itself, the stream gives them the same messages and the same state.
 *
 *   log ──► unknown to clients ─► CUSTOM
 *      ├──► THINKING_* ─────────► REASONING_*  ─┐
 *      ├──► CHUNKs ─────────────► START, CONTENT ├─► open constructs (constructs.ts) ─► mended events
 *      └──► the rest, as stored ────────────────┘
 *
 *                  RUN_STARTED               RUN_FINISHED, after the END of open constructs
 *   before ───────────────────────► open ──┬──────────────────────────────────────► finished
 *      │                             ▲ ▲   │ RUN_ERROR, which may come at any time       │
 *      │ RUN_ERROR                   │ └─ RUN_STARTED: a RUN_ERROR for the one before    │
 *      └────────────────► failed ◄───│─────┴───────────────────────────────── RUN_ERROR ─┤
 *                           └────────┴───────────────── RUN_STARTED ─────────────────────┘
 *
 * When a run begins inside another run, a crashed runner left the first run open. A client accepts
 * no second RUN_STARTED, and no further events of the first run; so it gets the RUN_ERROR that the
 * runner could not send. Clients accept no event outside of runs, so such an event is not `inRun`.
 * It is still mended, because it counts in the transcript. A RUN_FINISHED outside of runs finishes
 * nothing and is dropped.
 *
 * A missing id is made from the session's id and the number of the event that needs it. So the id
 * is the same each time and for every client, also where fragments came as one merged row.
 */
import { type CatalogueEntry, lookup } from "../catalogue.ts";
import { type Effect, EFFECTS, type Phase, phaseAfter, addressOf } from "../constructs.ts";
import { isObject, type JsonObject, textOf } from "../json.ts";
import { isGraphQuestion, outcomeOf } from "../run-end.ts";
import { isSpeech, LEAVES, type Transcript } from "../transcript/transcript.ts";
import { weightOf } from "../transcript/weight.ts";
import { CanonicalConstructs, type StoredEvent } from "./constructs.ts";
import {
  type CanonicalEvent,
  customOf,
  isOpenKind,
  KINDS,
  type LoggedEvent,
  EventCollector,
  without,
} from "./event.ts";
import { Repeats, type RowMessages } from "./repeats.ts";
import { sameConversation } from "./same-conversation.ts";
import { leftBy } from "./branches.ts";
import { type TakenBranch, TurnTracker } from "./turns.ts";
import { eventIn, isUsable } from "./usable.ts";

export interface CanonicalRun {
  readonly runId: string;
  readonly threadId: string;
  /** The run's RUN_STARTED, without the messages of its input: those are in the transcript. */
  readonly started: JsonObject;
  readonly startedSeq: bigint;
  readonly status: "running" | "finished" | "error";
  /** The run's RUN_FINISHED or RUN_ERROR. */
  readonly end: JsonObject | undefined;
  /** The questions of a graph, which wait until the next run begins. */
  readonly questions: readonly JsonObject[];
}

/** Above this bound the oldest question is forgotten. */
const QUESTIONS_MAX = 100;

/** The code of the RUN_ERROR for a run that never ended before another one began. */
const ABANDONED = "ABANDONED";

export type ConversationLog = Pick<Transcript, "messages">;

type Thinking = Readonly<Partial<Record<"reasoning" | "reasoning_message", string | undefined>>>;

interface CanonicalStep {
  readonly entry: CatalogueEntry;
  readonly effect: Effect;
  readonly event: StoredEvent;
  readonly seq: bigint;
}

export class Canonical {
  readonly #sessionId: string;
  #constructs = new CanonicalConstructs();
  #repeats = new Repeats();
  #turns = new TurnTracker();
  #hasSpeech = false;
  /** The ids of the open thinking, and of the message in it. */
  #thinking: Thinking = {};
  #phase: Phase = "before";
  #run: CanonicalRun | undefined;
  #runBytes = 0;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  clone(): Canonical {
    const copy = new Canonical(this.#sessionId);
    copy.#constructs = this.#constructs.clone();
    copy.#repeats = this.#repeats.clone();
    copy.#turns = this.#turns.clone();
    copy.#hasSpeech = this.#hasSpeech;
    copy.#thinking = this.#thinking;
    copy.#phase = this.#phase;
    copy.#run = this.#run;
    copy.#runBytes = this.#runBytes;
    return copy;
  }

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    return this.#runBytes + this.#constructs.bytes + this.#repeats.bytes + this.#turns.bytes;
  }

  get run(): CanonicalRun | undefined {
    return this.#run;
  }

  get turns(): Pick<
    TurnTracker,
    "takenSeq" | "answerSeqOf" | "graphAnswerSeq" | "branchedBy" | "editing" | "stateOf"
  > {
    return this.#turns;
  }

  /** Whether an activity ever existed; above the limits the answer is "yes". */
  get hadActivities(): boolean {
    return this.#constructs.owners.hadActivities;
  }

  /** Whether the log, or a row, ever had a message with this id, among the ids that are noted. */
  hasHad(id: string): boolean {
    return this.#constructs.owners.hasHadMessage(id) || this.#repeats.isRenamed(id);
  }

  /** True: the events have the agent's texts, so a message row of the agent repeats them. */
  get hasSpeech(): boolean {
    return this.#hasSpeech;
  }

  /** A run that the log does not have, in which a client gets messages outside of all runs. */
  messagesRun(messageSeq: bigint): { readonly threadId: string; readonly runId: string } {
    const threadId = this.#run?.threadId ?? this.#sessionId;
    return { threadId, runId: this.#idOf("messages", messageSeq) };
  }

  /** STARTs that open every open construct again, in the order of their first opening. */
  openings(): readonly JsonObject[] {
    return this.#phase === "open" ? this.#constructs.openings() : [];
  }

  /** ENDs of the open constructs, as the log needs them before the end of the run. */
  endings(): readonly JsonObject[] {
    if (this.#phase !== "open") return [];
    const { reasoning, reasoning_message: message } = this.#thinking;
    return this.#constructs.endings().map((end) => {
      const { type, messageId } = end;
      if (type === KINDS.reasoning.end && messageId === reasoning) return { type: "THINKING_END" };
      const isText = type === KINDS.reasoning_message.end && messageId === message;
      return isText ? { type: "THINKING_TEXT_MESSAGE_END" } : end;
    });
  }

  /** The messages of a row that belong to the conversation, and that the log did not have before. */
  onMessages(row: RowMessages): readonly JsonObject[] {
    const { messages, isFromUser, key } = row;
    if (!isFromUser) return this.#hasSpeech ? [] : messages;
    this.#turns.addRow(row);
    const { owners } = this.#constructs;
    const fresh = messages.filter(({ id }) => typeof id === "string" && !owners.hasHadMessage(id));
    for (const message of fresh) this.#repeats.add(message);
    owners.addMessages(key === undefined ? fresh : [...fresh, { id: key }]);
    return fresh;
  }

  /** `log`: the transcript before the event. */
  next(event: LoggedEvent, log?: ConversationLog): readonly CanonicalEvent[] {
    const events = this.#eventsOf(event, log);
    this.#hasSpeech ||= events.some(({ value }) => isSpeech(value));
    return events;
  }

  #eventsOf(
    { seq, eventType, payload, conformant }: LoggedEvent,
    log: ConversationLog | undefined,
  ): readonly CanonicalEvent[] {
    const value = eventIn(payload);
    const event: StoredEvent = { value, text: payload };
    const entry = conformant ? lookup(eventType) : undefined;
    const effect = entry && EFFECTS.get(entry.type);
    const out = new EventCollector(value, { inRun: this.#phase === "open" });
    if (entry === undefined || effect === undefined || !isUsable(entry, value))
      out.add(customOf(eventType, value));
    else if (effect.does === "open_run") return this.#startRun(event, seq, log);
    else if (effect.does === "finish_run") this.#finishRun(out, effect, event);
    else if (effect.does === "fail_run") return this.#failRun(effect, event);
    else this.#construct(out, { entry, effect, event, seq });
    if (isGraphQuestion(value) && this.#phase === "open") this.#ask(value);
    return out.events;
  }

  #construct(out: EventCollector, { entry, effect, event, seq }: CanonicalStep): void {
    const { category, kind, role } = entry;
    const isChunk = effect.does === "chunk";
    const id = isChunk ? this.#idOf(kind, seq) : "";
    this.#constructs.followChunks(out, effect, event.value, id);
    if (isChunk) return;
    if (entry.type === "MESSAGES_SNAPSHOT") this.#constructs.whole(out, this.#completed(event));
    else if (category === "thinking") this.#think(out, entry, event.value, seq);
    else if (role === "whole" || !isOpenKind(kind)) this.#constructs.whole(out, event);
    else this.#constructs[role](out, kind, addressOf(entry, event.value).key ?? "", event);
  }

  /** At most one thinking is open, with one message in it; each gets an id, which no event has. */
  #think(
    out: EventCollector,
    { kind, role }: CatalogueEntry,
    value: JsonObject,
    seq: bigint,
  ): void {
    if (role === "whole") return;
    const as = kind === "thinking" ? "reasoning" : "reasoning_message";
    const open = this.#thinking[as];
    if (role === "end" && open === undefined) return;
    if (role === "start" && open !== undefined) this.#constructs.close(out, as, open);
    const messageId = role === "start" || open === undefined ? this.#idOf("thinking", seq) : open;
    this.#thinking = { ...this.#thinking, [as]: role === "end" ? undefined : messageId };
    const { [role]: type, started } = KINDS[as];
    // Reasoning has no title: clients strip the field, and warn each time.
    const source = kind === "thinking" ? without(value, "title") : value;
    const fields = role === "start" ? started : {};
    const translated = { ...source, type, messageId, ...fields };
    this.#constructs[role](out, as, messageId, { value: translated, text: undefined });
  }

  #startRun(
    event: StoredEvent,
    seq: bigint,
    log: ConversationLog | undefined,
  ): readonly CanonicalEvent[] {
    const mayRepeat = this.#mayRepeat(event.value);
    if (mayRepeat && log !== undefined) this.#recognise(event.value, log);
    const { value, text } = this.#withAnswers(this.#withKnownIds(event));
    const out = new EventCollector(value, { inRun: true });
    const branches = this.#turns.branches();
    const isUnsure = mayRepeat || branches.length > 0;
    if (this.#phase === "open") {
      const message = "The run did not end: another one began.";
      out.add(out.timed({ type: "RUN_ERROR", message, code: ABANDONED }));
    }
    if (log !== undefined) for (const branch of branches) this.#branch(out, branch, log);
    const { input } = value;
    this.#constructs.beginRun(isObject(input) ? input["messages"] : undefined);
    this.#thinking = {};
    this.#phase = "open";
    this.#run = {
      runId: textOf(value["runId"]) ?? "",
      threadId: textOf(value["threadId"]) ?? "",
      started: isObject(input) ? { ...value, input: { ...input, messages: [] } } : value,
      startedSeq: seq,
      status: "running",
      end: undefined,
      questions: [],
    };
    this.#runBytes = weightOf(this.#run.started).bytes;
    out.add(value, text);
    if (!isUnsure || log !== undefined) return out.events;
    return out.events.map((one) => (one.value === value ? { ...one, isUnsure } : one));
  }

  /** The newest branch is the conversation: the others are in the log. */
  #branch(out: EventCollector, branch: TakenBranch, log: ConversationLog): void {
    const left = leftBy(branch, log.messages());
    if (left === undefined) return;
    for (const id of left) this.#repeats.forget(id);
    out.addForTranscripts({ type: LEAVES, ids: left, messages: branch.messages });
  }

  /** True: the input has an agent's message under an id that the log does not have. */
  #mayRepeat({ input }: JsonObject): boolean {
    const messages = isObject(input) ? input["messages"] : undefined;
    if (!this.#hasSpeech || !Array.isArray(messages)) return false;
    return messages.filter(isObject).some(({ id, role }) => {
      const isAgents = role === "assistant" || role === "tool";
      return isAgents && typeof id === "string" && !this.hasHad(id);
    });
  }

  #recognise({ input }: JsonObject, log: ConversationLog): void {
    const messages = isObject(input) ? input["messages"] : undefined;
    if (!Array.isArray(messages)) return;
    const isWaiting = (id: string): boolean => this.#repeats.isWaiting(id);
    for (const [id, own] of sameConversation(messages, log.messages(), isWaiting))
      if (!this.hasHad(id)) this.#repeats.rename(id, own);
  }

  #withAnswers(event: StoredEvent): StoredEvent {
    const value = this.#turns.startRun(event.value);
    return value === event.value ? event : { value, text: undefined };
  }

  #withKnownIds(event: StoredEvent): StoredEvent {
    const { input } = event.value;
    if (!isObject(input) || !Array.isArray(input["messages"])) return event;
    const messages = this.#listed(input["messages"]);
    if (messages === input["messages"]) return event;
    return { value: { ...event.value, input: { ...input, messages } }, text: undefined };
  }

  /** Adds the user messages that no run has repeated to a snapshot. */
  #completed(event: StoredEvent): StoredEvent {
    const { messages } = event.value;
    if (!Array.isArray(messages)) return event;
    const listed = this.#listed(messages);
    const missing = this.#repeats.missingIn(listed);
    if (listed === messages && missing.length === 0) return event;
    return { value: { ...event.value, messages: [...listed, ...missing] }, text: undefined };
  }

  #listed(messages: readonly unknown[]): readonly unknown[] {
    const { owners } = this.#constructs;
    return this.#repeats.listed(messages, (id) => owners.hasHadMessage(id));
  }

  #finishRun(out: EventCollector, effect: Effect, { value, text }: StoredEvent): void {
    const phase = phaseAfter(this.#phase, effect);
    if (phase === undefined) return;
    const { outcome } = value;
    const suspends = isObject(outcome) && outcome["type"] === "interrupt";
    this.#constructs.closeAll(out, { suspends });
    this.#thinking = {};
    this.#phase = phase;
    this.#endRun("finished", value);
    out.add(value, text);
  }

  #failRun(effect: Effect, { value, text }: StoredEvent): readonly CanonicalEvent[] {
    const phase = phaseAfter(this.#phase, effect);
    const out = new EventCollector(value, { inRun: phase !== undefined });
    if (phase !== undefined) {
      this.#constructs.clear();
      this.#thinking = {};
      this.#phase = phase;
      this.#endRun("error", value);
    }
    out.add(value, text);
    return out.events;
  }

  #ask(question: JsonObject): void {
    if (this.#run === undefined) return;
    const questions = [...this.#run.questions, question].slice(-QUESTIONS_MAX);
    this.#runBytes += weightOf(question).bytes;
    this.#run = { ...this.#run, questions };
  }

  /** No run exists when such an event came before any RUN_STARTED. */
  #endRun(status: CanonicalRun["status"], end: JsonObject): void {
    if (this.#run === undefined) return;
    this.#runBytes += weightOf(end).bytes - weightOf(this.#run.end).bytes;
    const { questions } = this.#run;
    const asks = ["finished", "interrupted"].includes(outcomeOf(end));
    this.#run = { ...this.#run, status, end, questions: asks ? questions : [] };
  }

  #idOf(what: string | undefined, seq: bigint): string {
    return `${what}-${seq}-${this.#sessionId}`;
  }
}
