/**
 * Converts the events of LangChain4j's streams (`eventType`, as chirino/memory-service and Quarkus
 * print them) to AG-UI events (docs/history.md). An unknown event becomes a CUSTOM.
 */
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import { isObject, type JsonObject, textOf } from "@session-ledger/agui/json";
import {
  type Failed,
  type RunIds,
  type ToolCallInfo,
  RunBuilder,
  type ReportedUsage,
} from "./run-builder.ts";

/** Takes the values of a file or a stream one after the other. */
export interface Mapper {
  take(value: JsonObject): readonly AguiEvent[];
  /** The values have ended. */
  end(): readonly AguiEvent[];
}

export function* fromLangChain4j(
  events: Iterable<JsonObject>,
  names: RunIds,
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
export type StreamEnd = { readonly kind: "finished"; readonly result: object | undefined } | Failed;

/** Also in streams of Spring AI, which has no events for them. */
export function failureOf(event: JsonObject): StreamEnd | undefined {
  const type = typeOf(event);
  if (type === "cancel" || type === "StreamAborted") return CANCELLED;
  return type === "failure" || type === "StreamError" ? failed(event) : undefined;
}

const CANCELLED: StreamEnd = {
  kind: "failed",
  message: "the stream was cancelled",
  code: "CANCELLED",
};

export const TRUNCATED: StreamEnd = {
  kind: "failed",
  message: "the stream ended without a terminal event",
  code: "TRUNCATED",
};

type Take = (run: RunBuilder, event: JsonObject) => StreamEnd | undefined;

/** A handler for each type, under each spelling of its name. */
const TAKES: ReadonlyMap<string, Take> = new Map<string, Take>([
  ["PartialResponse", chunkAs("text")],
  ["PartialThinking", chunkAs("thinking")],
  ["ContentFetched", contents],
  ["RetrievedContents", contents],
  ["IntermediateResponse", intermediate],
  ["BeforeToolExecution", toolStarts],
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
  readonly endsWith?: StreamEnd;
  /** True: all events are of one run. */
  readonly isOneRun?: boolean;
}

/** The end of a run waits for the next run: some sources report it twice, the later one in full. */
export class LangChain4jMapper implements Mapper {
  readonly #names: RunIds;
  readonly #options: MapperOptions;
  #run: RunBuilder;
  #runs = 1;
  #end: StreamEnd | undefined;

  constructor(names: RunIds, options: MapperOptions = {}) {
    this.#names = names;
    this.#options = options;
    this.#run = new RunBuilder(names, options.started);
  }

  take(event: JsonObject): readonly AguiEvent[] {
    const type = typeOf(event);
    if (this.#end !== undefined && BEGINS_RUN.has(type) && this.#options.isOneRun !== true)
      return [...this.#endRun(), ...this.#startRun(), ...this.#apply(type, event)];
    return this.#apply(type, event);
  }

  end(): readonly AguiEvent[] {
    return this.#endRun();
  }

  #apply(type: string, event: JsonObject): readonly AguiEvent[] {
    const take = TAKES.get(type) ?? otherwise;
    this.#end = take(this.#run, event) ?? this.#end;
    return this.#run.take();
  }

  #endRun(): readonly AguiEvent[] {
    const end = this.#end ?? this.#options.endsWith ?? TRUNCATED;
    this.#end = undefined;
    endRun(this.#run, end);
    return this.#run.take();
  }

  #startRun(): readonly AguiEvent[] {
    this.#runs += 1;
    this.#run = new RunBuilder({ ...this.#names, runId: `${this.#names.runId}.${this.#runs}` });
    return this.#run.take();
  }
}

export function endRun(run: RunBuilder, end: StreamEnd): void {
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
    else if (chunk !== undefined && chunk !== null) return addCustom(run, event);
    return undefined;
  };
}

function otherwise(run: RunBuilder, event: JsonObject): StreamEnd | undefined {
  const failure = failureOf(event);
  return failure ?? addCustom(run, event);
}

function addCustom(run: RunBuilder, event: JsonObject): undefined {
  run.custom(`lc4j.${typeOf(event)}`, event);
}

function contents(run: RunBuilder, event: JsonObject): undefined {
  const content = Object.entries(event).filter(([name]) => name !== "eventType");
  run.activity("lc4j.content_fetched", Object.fromEntries(content));
}

function intermediate(run: RunBuilder, event: JsonObject): undefined {
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

/** Adds the parts of a complete message that were not streamed. */
function wholeAnswer(run: RunBuilder, message: unknown): void {
  if (!isObject(message)) {
    if (typeof message === "string") run.wholeText(message);
    return;
  }
  const { text, thinking, toolExecutionRequests: requests } = message;
  if (typeof thinking === "string") run.wholeThinking(thinking);
  run.endReasoning();
  if (typeof text === "string") run.wholeText(text);
  if (!Array.isArray(requests)) return;
  for (const request of requests.filter(isObject)) run.requestCall(callOf(request));
}

function answerOf(event: JsonObject): unknown {
  const response = event["chatResponse"];
  return event["aiMessage"] ?? (isObject(response) ? response["aiMessage"] : event["message"]);
}

function printed(answer: unknown): string {
  return JSON.stringify(answer) ?? "";
}

function toolStarts(run: RunBuilder, event: JsonObject): undefined {
  run.startCall(callOf(event));
}

function toolAnswers(run: RunBuilder, event: JsonObject): undefined {
  if (!run.addResult(callOf(event), event["output"] ?? event["result"])) addCustom(run, event);
}

function partialCall(run: RunBuilder, event: JsonObject): undefined {
  const args = event["partialArguments"] ?? event["arguments"] ?? event["chunk"];
  run.appendArgs({ ...callOf(event), args }, indexOf(event));
}

function completeCall(run: RunBuilder, event: JsonObject): undefined {
  const request = event["toolExecutionRequest"];
  run.completeCall(callOf(isObject(request) ? request : event), indexOf(event));
}

function indexOf({ index }: JsonObject): number {
  return typeof index === "number" ? index : 0;
}

function callOf(event: JsonObject): ToolCallInfo {
  const { id, toolName, name, arguments: args, input } = event;
  return {
    id: textOf(id) === "" ? undefined : textOf(id),
    name: textOf(toolName) ?? textOf(name),
    args: args ?? input,
  };
}

function accumulated(run: RunBuilder, event: JsonObject): undefined {
  run.setUsage(usageOf(event));
  const message = answerOf(event);
  const text = isObject(message) ? message["text"] : message;
  if (typeof text === "string" && !run.hasStreamed) run.text(text);
}

function completed(run: RunBuilder, event: JsonObject): StreamEnd {
  const answer = answerOf(event);
  // A tool whose result is the answer ends the run with the message that called it.
  if (printed(answer) !== run.lastAnswer) wholeAnswer(run, answer);
  run.setUsage(usageOf(event));
  const { finishReason, id, modelName } = metadataOf(event);
  const fields = Object.entries({ finishReason, id, modelName });
  const texts = fields.filter(([, value]) => typeof value === "string");
  return { kind: "finished", result: Object.fromEntries(texts) };
}

function failed(event: JsonObject): StreamEnd {
  const { error, code } = event;
  const text = isObject(error) ? error["message"] : (error ?? event["message"]);
  const message = textOf(text) ?? "the stream failed";
  return { kind: "failed", message, code: textOf(code), ...(isObject(error) && { error }) };
}

function metadataOf(event: JsonObject): JsonObject {
  const response = event["chatResponse"];
  const metadata = event["metadata"] ?? (isObject(response) ? response["metadata"] : undefined);
  return isObject(metadata) ? metadata : event;
}

function usageOf(event: JsonObject): ReportedUsage | undefined {
  const metadata = metadataOf(event);
  return usageFrom(metadata["tokenUsage"] ?? metadata["usage"], metadata["modelName"]);
}

/** The counts as LangChain4j, Spring AI and the AI SDK name them; undefined: none. */
export function usageFrom(usage: unknown, model: unknown): ReportedUsage | undefined {
  if (!isObject(usage)) return undefined;
  const counts = Object.entries({
    inputTokens: usage["inputTokenCount"] ?? usage["promptTokens"] ?? usage["inputTokens"],
    outputTokens: usage["outputTokenCount"] ?? usage["completionTokens"] ?? usage["outputTokens"],
    totalTokens: usage["totalTokenCount"] ?? usage["totalTokens"],
  }).filter(([, count]) => Number.isSafeInteger(count));
  if (counts.length === 0) return undefined;
  return { ...(typeof model === "string" && { model }), ...Object.fromEntries(counts) };
}
