/**
 * One run as AG-UI events, told by a framework that has other events. The ids are made of the run's id
 * and of counts, so the same events give the same ids:
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
import { IS_JSON, keptError } from "./entry.ts";

export interface Failed {
  readonly kind: "failed";
  readonly message: string;
  readonly code: string | undefined;
  /** The error, if it was an object. */
  readonly error?: JsonObject;
}

export interface RunNames {
  /** The thread of the run. */
  readonly sessionId: string;
  readonly runId: string;
}

/** What a framework tells of a tool call; frameworks leave out the id. */
export interface ToldCall {
  readonly id: string | undefined;
  readonly name: string | undefined;
  /** A text of JSON, or the value itself. */
  readonly args: unknown;
}

export interface Usage {
  readonly model?: string;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
}

interface Call {
  readonly id: string;
  readonly name: string;
  readonly hasOwnId: boolean;
  readonly round: number;
  hasArgs: boolean;
  /** The model has asked for it; the tool has begun; it has answered. */
  readonly told: Set<"asked" | "begun" | "answered">;
}

/** A text in one event; a character may take 6 bytes of JSON, and a payload has at most 1 MiB. */
const DELTA_CHARS_MAX = 131_072;
/** Calls of a run that are remembered; in 234 recorded streams, a run has at most 40. */
const CALLS_MAX = 10_000;

export class ToldRun {
  readonly #names: RunNames;
  readonly #maker = new EventMaker();
  #made: AguiEvent[] = [];
  #round = 0;
  #segments = { m: 0, r: 0 };
  #isRoundOver = false;
  /** The whole message that ended the last round, as JSON. */
  lastAnswer = "";
  /** The open messages by their lane: models may give several answers at a time. */
  readonly #texts = new Map<number, string>();
  readonly #reasoning = new Map<number, string>();
  readonly #calls = new BoundedMap<string, Call>(CALLS_MAX);
  readonly #openCalls = new Set<Call>();
  /** The ids of calls whose arguments are streamed, by their place in the answer. */
  readonly #placed = new Map<number | undefined, string>();
  #callCount = 0;
  #retrievals = 0;
  #usage: Usage | undefined;
  /** Something was streamed: in this round, in the run. */
  #streamed = { round: { text: false, thinking: false }, run: false };

  /** `started`: further members of RUN_STARTED. */
  constructor(names: RunNames, started: object = {}) {
    this.#names = names;
    this.#made.push({ type: "RUN_STARTED", ...this.#ids(), ...started });
    this.#step();
  }

  /** The events since the last call. */
  take(): readonly AguiEvent[] {
    const made = this.#made;
    this.#made = [];
    return made;
  }

  get hasStreamed(): boolean {
    return this.#streamed.run;
  }

  /** White space is text; only the empty text is nothing. */
  text(delta: string, lane = 0): void {
    if (delta === "") return;
    this.enterRound();
    this.endReasoning();
    this.#streamed.round.text = true;
    this.#streamed.run = true;
    const messageId = this.#lane(this.#texts, "m", lane);
    for (const piece of pieces(delta)) this.#add(this.#maker.text(messageId, piece));
  }

  /** An open text stays open. */
  thinking(delta: string, lane = 0): void {
    if (delta === "") return;
    this.enterRound();
    this.#streamed.round.thinking = true;
    const messageId = this.#lane(this.#reasoning, "r", lane);
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

  /** The model asks for a call, in a whole message; ignored if the call is known. */
  asked(told: ToldCall): Call {
    return this.#begun(told, "asked");
  }

  /** The tool begins. */
  begun(told: ToldCall): Call {
    this.endReasoning();
    this.endTexts();
    return this.#begun(told, "begun");
  }

  /** A part of the arguments of a call; the parts of a call without an id have its place. */
  part({ id, name, args }: ToldCall, place?: number): Call {
    const known = this.#known(id ?? this.#placed.get(place));
    if (known === undefined) this.enterRound();
    const call = known ?? this.#open(id, name);
    if (place !== undefined) this.#placed.set(place, call.id);
    if (typeof args !== "string" || args === "") return call;
    call.hasArgs = true;
    for (const piece of pieces(args)) this.#add(this.#maker.args(call.id, piece));
    return call;
  }
  /** The call of `part` is whole. */
  whole({ id, name, args }: ToldCall, place: number): void {
    const known = this.#known(id ?? this.#placed.get(place));
    this.#placed.delete(place);
    if (known === undefined) this.enterRound();
    const call = known ?? this.#open(id, name);
    this.endCall(call, args);
  }

  /** A call without arguments has the empty object. */
  endCall(call: Call, args?: unknown): void {
    if (!this.#openCalls.delete(call)) return;
    if (!call.hasArgs) {
      call.hasArgs = true;
      for (const piece of pieces(argumentsOf(args))) this.#add(this.#maker.args(call.id, piece));
    }
    this.#add(this.#maker.endCall(call.id));
  }

  /** False: the call has a result already. */
  answered(told: ToldCall, output: unknown): boolean {
    const call = this.#known(told.id) ?? this.#unnamed(told, "answered") ?? this.begun(told);
    if (call.told.has("answered")) return false;
    call.told.add("answered");
    this.endCall(call, told.args);
    const messageId = `${call.id}:result`;
    const isValue = output !== undefined && output !== null;
    const content = isValue ? contentOf(output) : "";
    const isJson = isValue && typeof output !== "string";
    const made = this.#maker.result(call.id, { content, messageId });
    for (const event of made)
      this.#made.push(
        isJson && event.type === "TOOL_CALL_RESULT" ? { ...event, rawEvent: IS_JSON } : event,
      );
    return true;
  }

  activity(activityType: string, content: object): void {
    const messageId = `${this.#names.runId}:rag${this.#retrievals}`;
    this.#retrievals += 1;
    const replace = true;
    this.#made.push({ type: "ACTIVITY_SNAPSHOT", messageId, activityType, content, replace });
  }

  custom(name: string, value: unknown): void {
    this.#made.push({ type: "CUSTOM", name, value });
  }

  /** What comes next of the model is of the next round. */
  endRound(): void {
    this.#isRoundOver = true;
    this.#placed.clear();
  }

  /** Tokens of one answer. */
  addUsage(usage: Usage | undefined): void {
    if (usage === undefined) return;
    const sum = (name: "inputTokens" | "outputTokens" | "totalTokens"): object => {
      const counts = [this.#usage?.[name], usage[name]].filter((count) => count !== undefined);
      return counts.length === 0 ? {} : { [name]: counts.reduce((one, other) => one + other) };
    };
    const sums = { ...sum("inputTokens"), ...sum("outputTokens"), ...sum("totalTokens") };
    this.#usage = { ...this.#usage, ...usage, ...sums };
  }

  /** Tokens of the run so far. */
  setUsage(usage: Usage | undefined): void {
    if (usage !== undefined) this.#usage = { ...this.#usage, ...usage };
  }

  finish(result: object | undefined): void {
    this.#endAll();
    this.#add(this.#maker.endStep(`round-${this.#round}`));
    this.#made.push({
      type: "RUN_FINISHED",
      ...this.#ids(),
      ...(result !== undefined && { result }),
      ...(this.#usage !== undefined && { usage: [this.#usage] }),
    });
  }

  fail({ message, code, error }: Omit<Failed, "kind">): void {
    this.#endAll();
    const named = code === undefined ? {} : { code };
    const kept = error === undefined ? {} : keptError(error);
    const text = message.slice(0, DELTA_CHARS_MAX);
    this.#made.push({ type: "RUN_ERROR", message: text, ...named, ...kept });
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
      this.#made.push(made.value);
  }

  #lane(open: Map<number, string>, kind: "m" | "r", lane: number): string {
    const known = open.get(lane);
    if (known !== undefined) return known;
    const id = `${this.#names.runId}:${kind}${this.#round}.${this.#segments[kind]}`;
    this.#segments[kind] += 1;
    open.set(lane, id);
    return id;
  }

  #begun(told: ToldCall, step: "asked" | "begun"): Call {
    const known = this.#known(told.id) ?? this.#unnamed(told, step);
    const call = known ?? this.#open(told.id, told.name);
    call.told.add(step);
    this.endCall(call, told.args);
    return call;
  }

  #open(id: string | undefined, name = "unknown"): Call {
    const call: Call = {
      id: id ?? `${this.#names.runId}:t${this.#callCount}`,
      name,
      hasOwnId: id !== undefined,
      round: this.#round,
      hasArgs: false,
      told: new Set(),
    };
    this.#callCount += 1;
    this.#calls.set(call.id, call);
    this.#openCalls.add(call);
    this.#add(this.#maker.call(call.id, { name }));
    return call;
  }

  #known(id: string | undefined): Call | undefined {
    return id === undefined ? undefined : this.#calls.get(id);
  }

  /** The oldest call of this round that has no id of its own, and of which this step was not told. */
  #unnamed({ id, name }: ToldCall, step: "asked" | "begun" | "answered"): Call | undefined {
    if (id !== undefined) return undefined;
    for (const call of this.#calls.values()) {
      const isSame = name === undefined || call.name === name;
      if (!call.hasOwnId && isSame && call.round === this.#round && !call.told.has(step))
        return call;
    }
    return undefined;
  }

  #ids(): { readonly threadId: string; readonly runId: string } {
    return { threadId: this.#names.sessionId, runId: this.#names.runId };
  }

  #add(events: Iterable<AguiEvent>): void {
    this.#made.push(...events);
  }
}

function argumentsOf(args: unknown): string {
  return args === undefined || args === null || args === "" ? "{}" : contentOf(args);
}

function* pieces(text: string): Generator<string, void, undefined> {
  for (let start = 0; start < text.length; start += DELTA_CHARS_MAX)
    yield text.slice(start, start + DELTA_CHARS_MAX);
}
