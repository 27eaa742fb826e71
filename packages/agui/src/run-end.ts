/** The end of a run: its outcome, and the tokens of its models. */
import { isObject, type JsonObject, parseJson } from "./json.ts";

export type RunOutcome = "finished" | "interrupted" | "cancelled" | "error";

/** Of a RUN_FINISHED or a RUN_ERROR. */
export function outcomeOf({ type, outcome }: JsonObject): RunOutcome {
  if (type === "RUN_ERROR") return "error";
  const kind = isObject(outcome) ? outcome["type"] : undefined;
  if (kind === "interrupt") return "interrupted";
  return kind === "cancelled" ? kind : "finished";
}

/** A question of a graph, as LangGraph's adapters ask it; CopilotKit's `useInterrupt` reads it. */
export function isGraphQuestion({ type, name }: JsonObject): boolean {
  return type === "CUSTOM" && name === "on_interrupt";
}

/** The id of the interrupt that `graphInterrupt` makes. */
export const GRAPH_INTERRUPT_ID = "on_interrupt";

/**
 * What a run's questions of a graph would be as one interrupt of AG-UI, because they have one answer:
 * `forwardedProps.command.resume`. `metadata.value` has a value that is more than a text. Undefined: no questions.
 */
export function graphInterrupt(questions: readonly JsonObject[]): JsonObject | undefined {
  if (questions.length === 0) return undefined;
  const values = questions.map(({ value }) => valueIn(value));
  const message = values.map(wordsOf).filter((text) => text !== "");
  const isText = values.every((value) => typeof value === "string");
  return {
    id: GRAPH_INTERRUPT_ID,
    ...(message.length > 0 && { message: message.join("\n") }),
    ...(!isText && { metadata: { value: values.length === 1 ? values[0] : values } }),
  };
}

/** Adapters write the value as JSON text, or as it is. */
function valueIn(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const parsed = parseJson(value);
  return isObject(parsed) || Array.isArray(parsed) || typeof parsed === "string" ? parsed : value;
}

/** The words for a person in the value of a question, under the names that graphs use. */
function wordsOf(value: unknown): string {
  if (typeof value === "string") return value;
  const { message, question, text } = isObject(value) ? value : {};
  return [message, question, text].find((one) => typeof one === "string") ?? "";
}

/** The answer to it, in a RunAgentInput: an interrupt of AG-UI has its answer in `resume`. */
export function answersGraph({ forwardedProps }: JsonObject): boolean {
  const command = isObject(forwardedProps) ? forwardedProps["command"] : undefined;
  return isObject(command) && Object.hasOwn(command, "resume");
}

/** What one model used. Counts contain their parts; undefined: not reported. */
export interface ModelUsage {
  readonly model: string | undefined;
  readonly input: number | undefined;
  readonly cachedInput: number | undefined;
  readonly cacheWriteInput: number | undefined;
  readonly output: number | undefined;
  readonly reasoning: number | undefined;
  readonly total: number | undefined;
  /** No field of AG-UI; some agents add it. */
  readonly cost: number | undefined;
}

/** A list, from some agents one object; adapters before AG-UI 1.0.0 have it in `result`. */
export function usageIn({ usage, result }: JsonObject): readonly ModelUsage[] {
  const old = isObject(result) ? result["usage"] : undefined;
  return [usage ?? old]
    .flat()
    .filter(isObject)
    .map((entry) => {
      const { model } = entry;
      return {
        model: typeof model === "string" ? model : undefined,
        input: countOf(entry["inputTokens"] ?? entry["input_tokens"]),
        cachedInput: countOf(entry["cachedInputTokens"] ?? entry["cached_input_tokens"]),
        cacheWriteInput: countOf(
          entry["cacheWriteInputTokens"] ?? entry["cache_write_input_tokens"],
        ),
        output: countOf(entry["outputTokens"] ?? entry["output_tokens"]),
        reasoning: countOf(entry["reasoningTokens"] ?? entry["reasoning_tokens"]),
        total: countOf(entry["totalTokens"] ?? entry["total_tokens"]),
        cost: amountOf(entry["cost"]),
      };
    });
}

/** Undefined: no entry reports it. */
export function sumOf(usage: readonly ModelUsage[], name: Exclude<keyof ModelUsage, "model">) {
  const counts = usage.map((entry) => entry[name]).filter((count) => count !== undefined);
  return counts.length === 0 ? undefined : counts.reduce((all, one) => all + one, 0);
}

function countOf(value: unknown): number | undefined {
  return Number.isSafeInteger(value) ? amountOf(value) : undefined;
}

function amountOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}
