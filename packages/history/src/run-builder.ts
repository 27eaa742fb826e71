/**
 * Builds the AG-UI events of one run from a framework's callbacks. Ids consist of the run's id and counts,
 * so the same callbacks give the same ids:
 *
 *   {runId}:m{round}.{segment}   text          {runId}:t{i}           a tool call without an id
 *   {runId}:r{round}.{segment}   reasoning     {toolCallId}:result    a result
 *   round-{n}                    step          {runId}:rag{i}         retrieved contents
 *
 * A round is one answer of the model and the tools that it calls. So the step of a round ends when the
 * next round begins, and not with the answer.
 */
import { type AguiEvent, contentOf, EventMaker } from "@session-ledger/agui/event-maker";
import type { JsonObject } from "@session-ledger/agui/json";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { IS_JSON, rawErrorEvent } from "./entry.ts";

export interface Failed {
  readonly kind: "failed";
  readonly message: string;
  readonly code: string | undefined;
  /** The error, if it was an object. */
  readonly error?: JsonObject;
}

export interface RunIds {
  /** The thread of the run. */
  readonly sessionId: string;
  readonly runId: string;
}

/** A tool call as a framework reports it; some omit the id. */
export interface ToolCallInfo {
  readonly id: string | undefined;
  readonly name: string | undefined;
  /** A text of JSON, or the value itself. */
  readonly args: unknown;
}

export interface ReportedUsage {
  readonly model?: string;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
}

interface CallState {
  readonly id: string;
  readonly name: string;
  readonly hasOwnId: boolean;
  readonly round: number;
  hasArgs: boolean;
  /** Requested by the model; started by the tool; answered with a result. */
  readonly steps: Set<"requested" | "started" | "answered">;
}

/** A text in one event; a character may take 6 bytes of JSON, and a payload has at most 1 MiB. */
const DELTA_CHARS_MAX = 131_072;
/** Calls of a run that are remembered; in 234 recorded streams, a run has at most 40. */
const CALLS_MAX = 10_000;

export class RunBuilder {
  readonly #names: RunIds;
  readonly #maker = new EventMaker();
  #events: AguiEvent[] = [];
  #round = 0;
  #segments = { m: 0, r: 0 };
  #isRoundOver = false;
  /** The whole message that ended the last round, as JSON. */
  lastAnswer = "";
  /** Open messages by choice: models may stream several answers at the same time. */
  readonly #texts = new Map<number, string>();
  readonly #reasoning = new Map<number, string>();
  readonly #calls = new BoundedMap<string, CallState>(CALLS_MAX);
  readonly #openCalls = new Set<CallState>();
  /** Ids of calls with streamed arguments, by their index in the answer. */
  readonly #idsByIndex = new Map<number | undefined, string>();
  #callCount = 0;
  #retrievals = 0;
  #usage: ReportedUsage | undefined;
  #streamed = { round: { text: false, thinking: false }, run: false };

  /** `started`: further members of RUN_STARTED. */
  constructor(names: RunIds, started: object = {}) {
    this.#names = names;
    this.#events.push({ type: "RUN_STARTED", ...this.#ids(), ...started });
    this.#step();
  }

  /** The events since the last call. */
  take(): readonly AguiEvent[] {
    const made = this.#events;
    this.#events = [];
    return made;
  }

  get hasStreamed(): boolean {
    return this.#streamed.run;
  }

  /** White space is text; only the empty text is nothing. */
  text(delta: string, choice = 0): void {
    if (delta === "") return;
    this.enterRound();
    this.endReasoning();
    this.#streamed.round.text = true;
    this.#streamed.run = true;
    const messageId = this.#messageId(this.#texts, "m", choice);
    for (const piece of pieces(delta)) this.#add(this.#maker.text(messageId, piece));
  }

  /** An open text stays open. */
  thinking(delta: string, choice = 0): void {
    if (delta === "") return;
    this.enterRound();
    this.#streamed.round.thinking = true;
    const messageId = this.#messageId(this.#reasoning, "r", choice);
    for (const piece of pieces(delta)) this.#add(this.#maker.reasoning(messageId, piece));
  }

  /** A text as a whole: ignored if this round has streamed it. */
  wholeText(text: string): void {
    if (!this.#streamed.round.text || this.#isRoundOver) this.text(text);
  }

  wholeThinking(text: string): void {
    if (!this.#streamed.round.thinking || this.#isRoundOver) this.thinking(text);
  }

  endReasoning(): void {
    for (const id of this.#reasoning.values()) this.#add(this.#maker.endReasoning(id));
    this.#reasoning.clear();
  }

  endTexts(): void {
    for (const id of this.#texts.values()) this.#add(this.#maker.endText(id));
    this.#texts.clear();
  }

  /** The model requests a call, in a complete message. A known call is ignored. */
  requestCall(info: ToolCallInfo): CallState {
    return this.#takeStep(info, "requested");
  }

  startCall(info: ToolCallInfo): CallState {
    this.endReasoning();
    this.endTexts();
    return this.#takeStep(info, "started");
  }

  /** A piece of a call's arguments. Pieces of a call without an id share its index. */
  appendArgs({ id, name, args }: ToolCallInfo, index?: number): CallState {
    const existing = this.#callById(id ?? this.#idsByIndex.get(index));
    if (existing === undefined) this.enterRound();
    const call = existing ?? this.#open(id, name);
    if (index !== undefined) this.#idsByIndex.set(index, call.id);
    if (typeof args !== "string" || args === "") return call;
    call.hasArgs = true;
    for (const piece of pieces(args)) this.#add(this.#maker.args(call.id, piece));
    return call;
  }

  /** Ends a call that `appendArgs` opened. */
  completeCall({ id, name, args }: ToolCallInfo, index: number): void {
    const existing = this.#callById(id ?? this.#idsByIndex.get(index));
    this.#idsByIndex.delete(index);
    if (existing === undefined) this.enterRound();
    const call = existing ?? this.#open(id, name);
    this.endCall(call, args);
  }

  /** A call without arguments has the empty object. */
  endCall(call: CallState, args?: unknown): void {
    if (!this.#openCalls.delete(call)) return;
    if (!call.hasArgs) {
      call.hasArgs = true;
      for (const piece of pieces(argumentsOf(args))) this.#add(this.#maker.args(call.id, piece));
    }
    this.#add(this.#maker.endCall(call.id));
  }

  /** False: the call has a result already. */
  addResult(info: ToolCallInfo, output: unknown): boolean {
    const call =
      this.#callById(info.id) ?? this.#callWithoutId(info, "answered") ?? this.startCall(info);
    if (call.steps.has("answered")) return false;
    call.steps.add("answered");
    this.endCall(call, info.args);
    const messageId = `${call.id}:result`;
    const isValue = output !== undefined && output !== null;
    const content = isValue ? contentOf(output) : "";
    const isJson = isValue && typeof output !== "string";
    const made = this.#maker.result(call.id, { content, messageId });
    for (const event of made)
      this.#events.push(
        isJson && event.type === "TOOL_CALL_RESULT" ? { ...event, rawEvent: IS_JSON } : event,
      );
    return true;
  }

  activity(activityType: string, content: object): void {
    const messageId = `${this.#names.runId}:rag${this.#retrievals}`;
    this.#retrievals += 1;
    const replace = true;
    this.#events.push({ type: "ACTIVITY_SNAPSHOT", messageId, activityType, content, replace });
  }

  custom(name: string, value: unknown): void {
    this.#events.push({ type: "CUSTOM", name, value });
  }

  /** The next output of the model belongs to the next round. */
  endRound(): void {
    this.#isRoundOver = true;
    this.#idsByIndex.clear();
  }

  /** Tokens of one answer. */
  addUsage(usage: ReportedUsage | undefined): void {
    if (usage === undefined) return;
    const sum = (name: "inputTokens" | "outputTokens" | "totalTokens"): object => {
      const counts = [this.#usage?.[name], usage[name]].filter((count) => count !== undefined);
      return counts.length === 0 ? {} : { [name]: counts.reduce((one, other) => one + other) };
    };
    const sums = { ...sum("inputTokens"), ...sum("outputTokens"), ...sum("totalTokens") };
    this.#usage = { ...this.#usage, ...usage, ...sums };
  }

  /** Tokens of the run so far. */
  setUsage(usage: ReportedUsage | undefined): void {
    if (usage !== undefined) this.#usage = { ...this.#usage, ...usage };
  }

  finish(result: object | undefined): void {
    this.#endAll();
    this.#add(this.#maker.endStep(`round-${this.#round}`));
    this.#events.push({
      type: "RUN_FINISHED",
      ...this.#ids(),
      ...(result !== undefined && { result }),
      ...(this.#usage !== undefined && { usage: [this.#usage] }),
    });
  }

  fail({ message, code, error }: Omit<Failed, "kind">): void {
    this.#endAll();
    const codeField = code === undefined ? {} : { code };
    const rawError = error === undefined ? {} : rawErrorEvent(error);
    const text = message.slice(0, DELTA_CHARS_MAX);
    this.#events.push({ type: "RUN_ERROR", message: text, ...codeField, ...rawError });
  }

  #endAll(): void {
    this.endReasoning();
    this.endTexts();
    for (const call of this.#openCalls) this.endCall(call);
  }

  /** Begins the next round, if this one is over. */
  enterRound(): void {
    if (!this.#isRoundOver) return;
    this.#endAll();
    this.#add(this.#maker.endStep(`round-${this.#round}`));
    this.#round += 1;
    this.#segments = { m: 0, r: 0 };
    this.#streamed.round = { text: false, thinking: false };
    this.#isRoundOver = false;
    this.#step();
  }

  #step(): void {
    const step = this.#maker.step(`round-${this.#round}`);
    for (let made = step.next(); made.done !== true; made = step.next())
      this.#events.push(made.value);
  }

  #messageId(open: Map<number, string>, kind: "m" | "r", choice: number): string {
    const existing = open.get(choice);
    if (existing !== undefined) return existing;
    const id = `${this.#names.runId}:${kind}${this.#round}.${this.#segments[kind]}`;
    this.#segments[kind] += 1;
    open.set(choice, id);
    return id;
  }

  #takeStep(info: ToolCallInfo, step: "requested" | "started"): CallState {
    const existing = this.#callById(info.id) ?? this.#callWithoutId(info, step);
    const call = existing ?? this.#open(info.id, info.name);
    call.steps.add(step);
    this.endCall(call, info.args);
    return call;
  }

  #open(id: string | undefined, name = "unknown"): CallState {
    const call: CallState = {
      id: id ?? `${this.#names.runId}:t${this.#callCount}`,
      name,
      hasOwnId: id !== undefined,
      round: this.#round,
      hasArgs: false,
      steps: new Set(),
    };
    this.#callCount += 1;
    this.#calls.set(call.id, call);
    this.#openCalls.add(call);
    this.#add(this.#maker.call(call.id, { name }));
    return call;
  }

  #callById(id: string | undefined): CallState | undefined {
    return id === undefined ? undefined : this.#calls.get(id);
  }

  /** The oldest call of this round that was reported without an id and lacks this step. */
  #callWithoutId(
    { id, name }: ToolCallInfo,
    step: "requested" | "started" | "answered",
  ): CallState | undefined {
    if (id !== undefined) return undefined;
    for (const call of this.#calls.values()) {
      const isSame = name === undefined || call.name === name;
      if (!call.hasOwnId && isSame && call.round === this.#round && !call.steps.has(step))
        return call;
    }
    return undefined;
  }

  #ids(): { readonly threadId: string; readonly runId: string } {
    return { threadId: this.#names.sessionId, runId: this.#names.runId };
  }

  #add(events: Iterable<AguiEvent>): void {
    this.#events.push(...events);
  }
}

function argumentsOf(args: unknown): string {
  return args === undefined || args === null || args === "" ? "{}" : contentOf(args);
}

function* pieces(text: string): Generator<string, void, undefined> {
  for (let start = 0; start < text.length; start += DELTA_CHARS_MAX)
    yield text.slice(start, start + DELTA_CHARS_MAX);
}
