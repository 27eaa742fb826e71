/**
 * The events of LangChain4j's streams (`eventType`, as chirino/memory-service and Quarkus print them) as
 * AG-UI events. docs/history.md has the table. An event that has no place in it becomes a CUSTOM, so
 * nothing is lost.
 */
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { type Failed, type RunNames, type ToldCall, ToldRun, type Usage } from "./told-run.ts";

/** Takes the values of a file or a stream one after the other. */
export interface Mapper {
  take(value: JsonObject): readonly AguiEvent[];
  /** The values have ended. */
  end(): readonly AguiEvent[];
}

export function* fromLangChain4j(
  events: Iterable<JsonObject>,
  names: RunNames,
): Generator<AguiEvent, void, undefined> {
  yield* mapped(events, new LangChain4jMapper(names));
}

export function* mapped(
  values: Iterable<JsonObject>,
  mapper: Mapper,
): Generator<AguiEvent, void, undefined> {
  for (const value of values) yield* mapper.take(value);
  yield* mapper.end();
}

/** How a stream may end. */
export type End = { readonly kind: "finished"; readonly result: object | undefined } | Failed;

/** Also in streams of Spring AI, which has no events for them. */
export function failureOf(event: JsonObject): End | undefined {
  const type = typeOf(event);
  if (type === "cancel" || type === "StreamAborted") return CANCELLED;
  return type === "failure" || type === "StreamError" ? failed(event) : undefined;
}

const CANCELLED: End = {
  kind: "failed",
  message: "the stream was cancelled",
  code: "CANCELLED",
};

export const TRUNCATED: End = {
  kind: "failed",
  message: "the stream ended without a terminal event",
  code: "TRUNCATED",
};

type Take = (run: ToldRun, event: JsonObject) => End | undefined;

/** What each type does; the second spelling of a type is an entry of its own. */
const TAKES: ReadonlyMap<string, Take> = new Map<string, Take>([
  ["PartialResponse", chunkAs("text")],
  ["PartialThinking", chunkAs("thinking")],
  ["ContentFetched", contents],
  ["RetrievedContents", contents],
  ["IntermediateResponse", intermediate],
  ["BeforeToolExecution", toolBegins],
  ["ToolExecuted", toolAnswers],
  ["AfterToolExecution", toolAnswers],
  ["PartialToolCall", partialCall],
  ["CompleteToolCall", completeCall],
  ["AccumulatedResponse", accumulated],
  ["Completed", completed],
  ["ChatCompleted", completed],
  ["FinalResponse", completed],
]);

/** After the end of a run, these begin the next one; any other event still belongs to the ended run. */
const BEGINS_RUN: ReadonlySet<string> = new Set([
  "PartialResponse",
  "PartialThinking",
  "ContentFetched",
  "RetrievedContents",
  "IntermediateResponse",
  "BeforeToolExecution",
  "PartialToolCall",
]);

interface MapperOptions {
  /** Further members of RUN_STARTED. */
  readonly started?: object;
  /** The end of a stream that has no terminal event; default: the stream was truncated. */
  readonly endsWith?: End;
  /** True: all events are of one run. */
  readonly isOneRun?: boolean;
}

/**
 * The end of a run is held back until the next run, or the end of the stream: some sources tell of
 * an end twice, and the later one knows more.
 */
export class LangChain4jMapper implements Mapper {
  readonly #names: RunNames;
  readonly #options: MapperOptions;
  #run: ToldRun;
  #runs = 1;
  #end: End | undefined;

  constructor(names: RunNames, options: MapperOptions = {}) {
    this.#names = names;
    this.#options = options;
    this.#run = new ToldRun(names, options.started);
  }

  take(event: JsonObject): readonly AguiEvent[] {
    const type = typeOf(event);
    if (this.#end !== undefined && BEGINS_RUN.has(type) && this.#options.isOneRun !== true)
      return [...this.#ended(), ...this.#next(), ...this.#taken(type, event)];
    return this.#taken(type, event);
  }

  end(): readonly AguiEvent[] {
    return this.#ended();
  }

  #taken(type: string, event: JsonObject): readonly AguiEvent[] {
    const take = TAKES.get(type) ?? otherwise;
    this.#end = take(this.#run, event) ?? this.#end;
    return this.#run.take();
  }

  #ended(): readonly AguiEvent[] {
    const end = this.#end ?? this.#options.endsWith ?? TRUNCATED;
    this.#end = undefined;
    endRun(this.#run, end);
    return this.#run.take();
  }

  #next(): readonly AguiEvent[] {
    this.#runs += 1;
    this.#run = new ToldRun({ ...this.#names, runId: `${this.#names.runId}.${this.#runs}` });
    return this.#run.take();
  }
}

export function endRun(run: ToldRun, end: End): void {
  if (end.kind === "finished") run.finish(end.result);
  else run.fail(end);
}

function typeOf(event: JsonObject): string {
  return textOf(event["eventType"]) ?? textOf(event["type"]) ?? "unknown";
}

function chunkAs(kind: "text" | "thinking"): Take {
  return (run, event) => {
    const chunk = event["chunk"] ?? event["text"];
    if (typeof chunk === "string") run[kind](chunk);
    else if (chunk !== undefined && chunk !== null) return kept(run, event);
    return undefined;
  };
}

function otherwise(run: ToldRun, event: JsonObject): End | undefined {
  const failure = failureOf(event);
  return failure ?? kept(run, event);
}

function kept(run: ToldRun, event: JsonObject): undefined {
  run.custom(`lc4j.${typeOf(event)}`, event);
}

function contents(run: ToldRun, event: JsonObject): undefined {
  const content = Object.entries(event).filter(([name]) => name !== "eventType");
  run.activity("lc4j.content_fetched", Object.fromEntries(content));
}

function intermediate(run: ToldRun, event: JsonObject): undefined {
  run.enterRound();
  const chunk = textOf(event["chunk"]);
  const answer = answerOf(event);
  run.lastAnswer = printed(answer);
  wholeAnswer(run, answer);
  if (chunk !== undefined) run.wholeText(chunk);
  run.endTexts();
  run.addUsage(usageOf(event));
  run.endRound();
}

/** The message of an event: what of it was not streamed. */
function wholeAnswer(run: ToldRun, message: unknown): void {
  if (!isObject(message)) {
    if (typeof message === "string") run.wholeText(message);
    return;
  }
  const { text, thinking, toolExecutionRequests: requests } = message;
  if (typeof thinking === "string") run.wholeThinking(thinking);
  run.endReasoning();
  if (typeof text === "string") run.wholeText(text);
  if (!Array.isArray(requests)) return;
  for (const request of requests.filter(isObject)) run.asked(callOf(request));
}

function answerOf(event: JsonObject): unknown {
  const response = event["chatResponse"];
  return event["aiMessage"] ?? (isObject(response) ? response["aiMessage"] : event["message"]);
}

function printed(answer: unknown): string {
  return JSON.stringify(answer) ?? "";
}

function toolBegins(run: ToldRun, event: JsonObject): undefined {
  run.begun(callOf(event));
}

function toolAnswers(run: ToldRun, event: JsonObject): undefined {
  if (!run.answered(callOf(event), event["output"] ?? event["result"])) kept(run, event);
}

function partialCall(run: ToldRun, event: JsonObject): undefined {
  const args = event["partialArguments"] ?? event["arguments"] ?? event["chunk"];
  run.part({ ...callOf(event), args }, placeOf(event));
}

function completeCall(run: ToldRun, event: JsonObject): undefined {
  const request = event["toolExecutionRequest"];
  run.whole(callOf(isObject(request) ? request : event), placeOf(event));
}

function placeOf({ index }: JsonObject): number {
  return typeof index === "number" ? index : 0;
}

function callOf(event: JsonObject): ToldCall {
  const { id, toolName, name, arguments: args, input } = event;
  return {
    id: textOf(id) === "" ? undefined : textOf(id),
    name: textOf(toolName) ?? textOf(name),
    args: args ?? input,
  };
}

function accumulated(run: ToldRun, event: JsonObject): undefined {
  run.setUsage(usageOf(event));
  const message = answerOf(event);
  const text = isObject(message) ? message["text"] : message;
  if (typeof text === "string" && !run.hasStreamed) run.text(text);
}

function completed(run: ToldRun, event: JsonObject): End {
  const answer = answerOf(event);
  // A tool whose result is the answer ends the run with the message that called it.
  if (printed(answer) !== run.lastAnswer) wholeAnswer(run, answer);
  run.setUsage(usageOf(event));
  const { finishReason, id, modelName } = metadataOf(event);
  const told = Object.entries({ finishReason, id, modelName });
  const known = told.filter(([, value]) => typeof value === "string");
  return { kind: "finished", result: Object.fromEntries(known) };
}

function failed(event: JsonObject): End {
  const { error, code } = event;
  const told = isObject(error) ? error["message"] : (error ?? event["message"]);
  const message = textOf(told) ?? "the stream failed";
  return { kind: "failed", message, code: textOf(code), ...(isObject(error) && { error }) };
}

function metadataOf(event: JsonObject): JsonObject {
  const response = event["chatResponse"];
  const metadata = event["metadata"] ?? (isObject(response) ? response["metadata"] : undefined);
  return isObject(metadata) ? metadata : event;
}

function usageOf(event: JsonObject): Usage | undefined {
  const metadata = metadataOf(event);
  return usageFrom(metadata["tokenUsage"] ?? metadata["usage"], metadata["modelName"]);
}

/** The counts as LangChain4j, Spring AI and the AI SDK name them; undefined: there is none. */
export function usageFrom(usage: unknown, model: unknown): Usage | undefined {
  if (!isObject(usage)) return undefined;
  const counts = Object.entries({
    inputTokens: usage["inputTokenCount"] ?? usage["promptTokens"] ?? usage["inputTokens"],
    outputTokens: usage["outputTokenCount"] ?? usage["completionTokens"] ?? usage["outputTokens"],
    totalTokens: usage["totalTokenCount"] ?? usage["totalTokens"],
  }).filter(([, count]) => Number.isSafeInteger(count));
  if (counts.length === 0) return undefined;
  return { ...(typeof model === "string" && { model }), ...Object.fromEntries(counts) };
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
