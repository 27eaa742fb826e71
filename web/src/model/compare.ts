/**
 * Two runs side by side, and where they differ. The facts of a run come from its rows, in the canonical
 * form that AG-UI clients get, so chunks and old events count like new ones.
 */
import { isObject, type JsonObject, parseObject } from "@session-ledger/agui/json";
import { outcomeOf, sumOf, usageIn } from "@session-ledger/agui/run-end";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import {
  type CallFacts,
  RunFacts as CanonicalFacts,
} from "@session-ledger/agui/canonical/run-facts";
import { replacesArguments } from "@session-ledger/agui/transcript/reducers";
import { difference } from "./difference.ts";
import type { Row, ConversationMessage } from "@session-ledger/react/internal/model/source";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** As the agent wrote them: most often JSON text. */
  readonly args: string;
  /** Undefined: no result came in this run. */
  readonly result: string | undefined;
  readonly hasFailed: boolean;
  /** From its beginning to its result. */
  readonly ms: number | undefined;
}

/** Sums of all models of a run; undefined: no model reported it. */
export interface Tokens {
  readonly models: readonly string[];
  readonly input: number | undefined;
  readonly cachedInput: number | undefined;
  readonly output: number | undefined;
  readonly reasoning: number | undefined;
  readonly total: number | undefined;
}

export interface RunFacts {
  /** The last message of a user that the run was started with. */
  readonly question: string | undefined;
  readonly text: string;
  readonly thinking: string;
  readonly tools: readonly ToolCall[];
  readonly tokens: Tokens;
  readonly startedMs: number;
  /** To the newest row, while the run is open. */
  readonly ms: number;
  /** To the first text for the reader. */
  readonly firstTextMs: number | undefined;
  /** While at least one tool ran. */
  readonly toolsMs: number;
  readonly status: "running" | "finished" | "interrupted" | "cancelled" | "error";
  readonly error: string | undefined;
  readonly rows: number;
  readonly events: number;
  readonly bytes: number;
}

/** `rows` are those of the run, from its RUN_STARTED to its end; rows without payload are skipped. */
export function factsOf(sessionId: string, rows: readonly Row[]): RunFacts {
  const canonical = new Canonical(sessionId);
  const builder = new RunFactsBuilder();
  for (const { seq, type: eventType, payload, isConformant: conformant, atMs } of rows) {
    if (payload === undefined) continue;
    const logged = { seq: BigInt(seq), eventType, payload, conformant };
    for (const { value } of canonical.next(logged)) builder.onEvent(value, atMs);
    // A client needs no usage, so the canonical form may lack it.
    if (conformant && ENDS.has(eventType)) builder.onEnd(parseObject(payload));
  }
  const startedMs = rows[0]?.atMs ?? 0;
  return {
    ...builder.facts(startedMs),
    startedMs,
    ms: rows.reduce((latest, { endMs }) => Math.max(latest, endMs), startedMs) - startedMs,
    rows: rows.length,
    events: rows.reduce((sum, { count }) => sum + count, 0),
    bytes: rows.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

const ENDS = new Set(["RUN_FINISHED", "RUN_ERROR"]);

/** Gathers what the canonical events of one run say. */
class RunFactsBuilder {
  readonly #texts = new Map<string, string>();
  readonly #thinking = new Map<string, string>();
  readonly #args = new Map<string, string>();
  readonly #results = new Map<string, string>();
  readonly #canonicalFacts = new CanonicalFacts();
  #question: string | undefined;
  #end: JsonObject | undefined;

  onEvent(event: JsonObject, atMs: number): void {
    const id = textOf(event["messageId"]);
    const delta = textOf(event["delta"]);
    const callId = textOf(event["toolCallId"]);
    this.#canonicalFacts.onEvent(event, atMs);
    switch (event["type"]) {
      case "RUN_STARTED":
        this.#question = questionIn(event["input"]) ?? this.#question;
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.#texts.set(id, (this.#texts.get(id) ?? "") + delta);
        break;
      case "REASONING_MESSAGE_CONTENT":
        this.#thinking.set(id, (this.#thinking.get(id) ?? "") + delta);
        break;
      case "TOOL_CALL_ARGS":
        this.#args.set(
          callId,
          (replacesArguments(event) ? "" : (this.#args.get(callId) ?? "")) + delta,
        );
        break;
      case "TOOL_CALL_RESULT":
        this.#results.set(callId, readable(event["content"]));
        break;
      default:
    }
  }

  onEnd(end: JsonObject): void {
    this.#end = end;
  }

  facts(startedMs: number) {
    const end = this.#end;
    const calls = [...this.#canonicalFacts.calls];
    const { firstTextAt } = this.#canonicalFacts;
    const error = end?.["type"] === "RUN_ERROR" ? textOf(end["message"]) : undefined;
    return {
      question: this.#question,
      text: joined(this.#texts),
      thinking: joined(this.#thinking),
      tools: calls.map(({ id, name, hasFailed, startedAt, endedAt }) => ({
        id,
        name,
        args: this.#args.get(id) ?? "",
        result: this.#results.get(id),
        hasFailed,
        ms: endedAt === undefined ? undefined : endedAt - startedAt,
      })),
      tokens: tokensIn(end ?? {}),
      firstTextMs: firstTextAt === undefined ? undefined : firstTextAt - startedMs,
      toolsMs: coveredMs(calls),
      status: end === undefined ? ("running" as const) : outcomeOf(end),
      error,
    };
  }
}

/** Parallel calls count once. */
function coveredMs(calls: readonly CallFacts[]): number {
  let [sum, upTo] = [0, Number.NEGATIVE_INFINITY];
  const spans = calls.flatMap(({ startedAt: startedMs, endedAt: endMs }) =>
    endMs === undefined ? [] : [{ startedMs, endMs }],
  );
  for (const span of spans.toSorted((one, other) => one.startedMs - other.startedMs)) {
    sum += Math.max(0, span.endMs - Math.max(span.startedMs, upTo));
    upTo = Math.max(upTo, span.endMs);
  }
  return sum;
}

function tokensIn(end: JsonObject): Tokens {
  const entries = usageIn(end);
  const [input, output] = [sumOf(entries, "input"), sumOf(entries, "output")];
  const both = input === undefined || output === undefined ? undefined : input + output;
  return {
    models: entries.map(({ model }) => model).filter((model) => model !== undefined),
    input,
    cachedInput: sumOf(entries, "cachedInput"),
    output,
    reasoning: sumOf(entries, "reasoning"),
    total: sumOf(entries, "total") ?? both,
  };
}

function questionIn(input: unknown): string | undefined {
  const messages = isObject(input) ? input["messages"] : undefined;
  if (!Array.isArray(messages)) return undefined;
  const users = messages.filter(isObject).filter(({ role }) => role === "user");
  const content = users.at(-1)?.["content"];
  return content === undefined ? undefined : readable(content);
}

/** For a run that was started without its input: the last message of a person before it. */
export function questionBefore(
  messages: readonly ConversationMessage[],
  rows: readonly Row[],
): string | undefined {
  const startedMs = rows[0]?.recordedMs ?? 0;
  return messages.findLast(({ type, recordedMs = 0 }) => type === "user" && recordedMs <= startedMs)
    ?.payload;
}

/** The text of a content, which may be parts. */
function readable(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content) ?? "";
  const parts = content.map((part: unknown) =>
    isObject(part) && typeof part["text"] === "string" ? part["text"] : JSON.stringify(part),
  );
  return parts.join("\n");
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function joined(texts: ReadonlyMap<string, string>): string {
  return [...texts.values()].filter((text) => text !== "").join("\n\n");
}

/** Two calls of the same tool in the same place; undefined: only the other run made it. */
export interface ToolPair {
  readonly left: ToolCall | undefined;
  readonly right: ToolCall | undefined;
  readonly sameArgs: boolean;
  readonly sameResult: boolean;
}

/** Calls of one name are paired in their order. */
export function toolPairs(
  left: readonly ToolCall[],
  right: readonly ToolCall[],
): readonly ToolPair[] {
  const parts = difference(left, right, (one, other) => one.name === other.name);
  return parts.flatMap((part) =>
    Array.from({ length: Math.max(part.left.length, part.right.length) }, (_, at) =>
      pairOf(part.left[at], part.right[at]),
    ),
  );
}

function pairOf(left: ToolCall | undefined, right: ToolCall | undefined): ToolPair {
  const isPair = left !== undefined && right !== undefined;
  return {
    left,
    right,
    sameArgs: isPair && meansSame(left.args, right.args),
    sameResult: isPair && meansSame(left.result ?? "", right.result ?? ""),
  };
}

/** JSON is compared by its value: order of keys and white space do not count. */
function meansSame(one: string, other: string): boolean {
  if (one === other) return true;
  try {
    return sorted(JSON.parse(one)) === sorted(JSON.parse(other));
  } catch {
    return false;
  }
}

function sorted(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    isObject(member)
      ? Object.fromEntries(Object.entries(member).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}
