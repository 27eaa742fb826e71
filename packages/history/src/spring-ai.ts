/**
 * Converts Spring AI's ChatClientResponse, ChatResponse, Generation and ToolResponseMessage, as
 * Jackson prints them, to AG-UI events. A stream is one run, which the last finish reason ends.
 */
import { type AguiEvent, contentOf } from "@session-ledger/agui/event-maker";
import { isObject, type JsonObject, objectsIn, textOf } from "@session-ledger/agui/json";
import {
  type StreamEnd,
  endRun,
  failureOf,
  type Mapper,
  mapped,
  TRUNCATED,
  usageFrom,
} from "./langchain4j.ts";
import { type RunIds, RunBuilder } from "./run-builder.ts";

export function* fromSpringAi(
  responses: Iterable<JsonObject>,
  names: RunIds,
): Generator<AguiEvent, void, undefined> {
  yield* mapped(responses, new SpringAiMapper(names));
}

export class SpringAiMapper implements Mapper {
  readonly #run: RunBuilder;
  /** The arguments so far of calls that wait for their result. */
  readonly #args = new Map<string, string>();
  #failure: StreamEnd | undefined;
  #result: JsonObject | undefined;
  #finishReason: string | undefined;

  constructor(names: RunIds) {
    this.#run = new RunBuilder(names);
  }

  take(value: JsonObject): readonly AguiEvent[] {
    this.#failure = failureOf(value) ?? this.#failure;
    if (failureOf(value) === undefined) this.#response(value);
    return this.#run.take();
  }

  end(): readonly AguiEvent[] {
    const finishReason = this.#finishReason;
    const finished: StreamEnd = { kind: "finished", result: { finishReason, ...this.#result } };
    endRun(this.#run, this.#failure ?? (finishReason === undefined ? TRUNCATED : finished));
    return this.#run.take();
  }

  #response(value: JsonObject): void {
    const inner = value["chatResponse"];
    const response = isObject(inner) ? inner : value;
    const { metadata } = response;
    if (isObject(metadata)) this.#metadata(metadata);
    const generations = generationsOf(response);
    if (generations.length === 0 && !isObject(metadata)) this.#run.custom("spring.unknown", value);
    generations.forEach((generation, choice) => this.#generation(generation, choice));
  }

  /** The counts are those of the run so far; a part of a stream may have zeros. */
  #metadata({ usage, model, id }: JsonObject): void {
    const counted = usageFrom(usage, model);
    if (Object.values(counted ?? {}).some((count) => typeof count === "number" && count > 0))
      this.#run.setUsage(counted);
    const fields = Object.entries({ id, modelName: model });
    const texts = fields.filter(([, text]) => typeof text === "string" && text !== "");
    this.#result = { ...this.#result, ...Object.fromEntries(texts) };
  }

  #generation({ output, metadata: generationMetadata }: JsonObject, choice: number): void {
    const message = isObject(output) ? output : {};
    const metadata = isObject(message["metadata"]) ? message["metadata"] : {};
    const ending = isObject(generationMetadata) ? generationMetadata : {};
    const reasoning = reasoningOf(message, metadata, ending);
    if (reasoning !== undefined) this.#run.thinking(reasoning, choice);
    const text = textOf(message["text"]) ?? "";
    if (isThought(metadata)) this.#run.thinking(text, choice);
    else this.#run.text(text, choice);
    for (const call of objectsIn(message["toolCalls"])) this.#call(call);
    for (const response of objectsIn(message["responses"])) this.#toolResponse(response);
    const reason = textOf(ending["finishReason"]) ?? "";
    if (reason === "") return;
    this.#finishReason = reason;
    if (/tool/i.test(reason)) this.#run.endRound();
  }

  /** Parts of a stream may repeat a call; a repeated call has the same arguments, or longer ones. */
  #call({ id, name, arguments: args }: JsonObject): void {
    const own = textOf(id) === "" ? undefined : textOf(id);
    const text = args === undefined || args === null ? "" : contentOf(args);
    const before = own === undefined ? undefined : this.#args.get(own);
    if (before !== undefined && !text.startsWith(before)) return;
    this.#run.endReasoning();
    this.#run.endTexts();
    const more = text.slice(before?.length ?? 0);
    const call = this.#run.appendArgs({ id: own, name: textOf(name), args: more });
    this.#args.set(call.id, text);
  }

  #toolResponse({ id, name, responseData }: JsonObject): void {
    const call = { id: textOf(id) === "" ? undefined : textOf(id), name: textOf(name) };
    if (!this.#run.addResult({ ...call, args: undefined }, responseData))
      this.#run.custom("spring.ToolResponse", { ...call, responseData });
  }
}

function generationsOf(value: JsonObject): readonly JsonObject[] {
  const { results, result, output, messageType } = value;
  if (Array.isArray(results)) return results.filter(isObject);
  if (isObject(result)) return [result];
  if (isObject(output)) return [value];
  return typeof messageType === "string" ? [{ output: value }] : [];
}

/** OpenAI, DeepSeek: the message or its metadata; Ollama: the metadata of the generation. */
function reasoningOf(
  message: JsonObject,
  metadata: JsonObject,
  ending: JsonObject,
): string | undefined {
  return (
    textOf(metadata["reasoningContent"]) ??
    textOf(message["reasoningContent"]) ??
    textOf(metadata["thinking"]) ??
    textOf(ending["thinking"])
  );
}

/** Anthropic, Gemini: the text itself is a thought. */
function isThought({ thinking, isThought: thought, signature }: JsonObject): boolean {
  return thinking === true || thought === true || typeof signature === "string";
}
