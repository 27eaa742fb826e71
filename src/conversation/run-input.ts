/**
 * The new parts of a client's RunAgentInput: messages, results of the client's tools, and
 * answers to interrupts. A client sends its whole conversation each time, and the log decides which
 * parts are new:
 *
 *   user and tool messages at the end, after the last one that the log knows
 *   tool messages since the last question: some clients put a result behind its call, and not at the
 *     end. The log has the call, and no result of it
 *   answers to interrupts that wait in the log, and to the question of a graph
 *
 * The parts are held as text: a parsed input may take many times its size.
 */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { answersGraph } from "@session-ledger/agui/run-end";
import { JSON_DEPTH_MAX } from "@session-ledger/agui/payload";
import { outline } from "@session-ledger/agui/spans";
import { invalidArgument, type Violation } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import type { Snapshot } from "./snapshot.ts";
import type { ClientMessage } from "./client-messages.ts";
import { regenerationOf, type BranchMark, editOf, withMark } from "./input-branch.ts";

export interface RunInputParts {
  /** The path of the input in the body, for errors. */
  readonly path: "" | "body.";
  readonly messages: readonly InputMessage[];
  readonly resume: readonly InputAnswer[];
  /** The rest has an answer to the question of a graph. */
  readonly answersGraph: boolean;
  /** The client asks for another answer to its last message. */
  readonly regenerates: boolean;
  /** The client's ids of its request, by name: a stop names the request, and not the run that answers it. */
  readonly ids: readonly (readonly [string, string])[];
  /** The rest of the input that a runner may need, by name. */
  readonly rest: readonly (readonly [string, string])[];
}

interface InputMessage {
  /** Its place in the input. */
  readonly at: number;
  readonly id: unknown;
  readonly toolCallId: unknown;
  readonly isResult: boolean;
  /** It is one of the messages at the end. */
  readonly isLast: boolean;
  /** It is repeated, in a new branch. */
  readonly isRepeated?: boolean;
  readonly text: string;
}

interface InputAnswer {
  readonly at: number;
  readonly interruptId: unknown;
  readonly text: string;
}

/** Undefined: the input only asks for the session. */
export function runInputIn(
  input: JsonObject,
  path: RunInputParts["path"],
): RunInputParts | undefined {
  const messages = candidatesIn(listOf(input["messages"]));
  const resume = listOf(input["resume"]).map((entry, at) => ({
    at,
    interruptId: isObject(entry) ? entry["interruptId"] : undefined,
    text: JSON.stringify(entry),
  }));
  const answers = answersGraph(input);
  if (messages.length === 0 && resume.length === 0 && !answers) return undefined;
  const rest = otherMembersOf(input);
  const { forwardedProps } = input;
  const regenerates = isObject(forwardedProps) && forwardedProps["regenerate"] === true;
  return { path, messages, resume, answersGraph: answers, regenerates, ids: idsOf(input), rest };
}

/** A rough number of characters in memory. */
export function charsOf({ messages, resume, rest }: RunInputParts): number {
  const texts = [...messages, ...resume].map(({ text }) => text);
  return [...texts, ...rest.map(([, text]) => text)].reduce((sum, { length }) => sum + length, 0);
}

/** The message row with the new parts. */
export interface RunInputRow {
  readonly payload: string;
  readonly idempotencyKey: string;
  /** The field of the input that the key comes from. */
  readonly keyField: string;
}

interface InputPosition {
  readonly sessionId: string;
  /** All messages of the input. */
  readonly listed: readonly ClientMessage[];
}

/**
 * Undefined: nothing is new. `current` is undefined without a session. Throws the violations in the
 * new parts.
 */
export function newRowIn(
  input: RunInputParts,
  { sessionId, listed }: InputPosition,
  current: Snapshot | undefined,
): RunInputRow | undefined {
  const { messages, mark } = branching(input, listed, current);
  const pending = new Set(current?.interrupts.map(({ id }) => id));
  const isOpen = (id: string): boolean => pending.has(id) && current?.answeredAt(id) === undefined;
  const resume = input.resume.filter(({ interruptId: id }) => typeof id !== "string" || isOpen(id));
  const [first, answer] = [messages[0], resume[0]];
  const isAsked = (current?.run?.questions.length ?? 0) > 0;
  const answers = input.answersGraph && isAsked && current?.graphAnsweredAt === undefined;
  if (first === undefined && answer === undefined && !answers) return undefined;
  const rest = input.rest.filter(([name, text]) => name !== "state" || !isStateOf(current, text));
  const violations = [
    ...messages.flatMap(({ at, text }) =>
      violationsIn(`${input.path}messages[${at}]`, text, MESSAGE),
    ),
    ...resume.flatMap(({ at, text }) => violationsIn(`${input.path}resume[${at}]`, text, ANSWER)),
    ...rest.flatMap(([name, text]) => tooDeep(`${input.path}${name}`, text)),
    ...duplicatesIn(messages, ({ at, id }) => [`${input.path}messages[${at}].id`, id]),
    ...duplicatesIn(resume, ({ at, interruptId }) => [
      `${input.path}resume[${at}].interruptId`,
      interruptId,
    ]),
  ];
  if (violations.length > 0) throw invalidArgument(violations);
  const texts = messages.map(({ text }, at) => (mark && at === 0 ? withMark(text, mark) : text));
  const members = [
    ["threadId", JSON.stringify(sessionId)],
    ...input.ids,
    ["messages", `[${texts.join()}]`],
    ...(resume.length === 0 ? [] : [["resume", `[${resume.map(({ text }) => text).join()}]`]]),
    ...rest,
  ];
  return {
    payload: `{${members.map(([name, text]) => `"${name}":${text}`).join()}}`,
    ...(first?.isRepeated === true
      ? { idempotencyKey: regenerationKey(input, first, current), keyField: `${input.path}runId` }
      : keyOf(first ?? answer, input.path, current)),
  };
}

function branching(
  input: RunInputParts,
  listed: readonly ClientMessage[],
  current: Snapshot | undefined,
): { readonly messages: readonly InputMessage[]; readonly mark: BranchMark | undefined } {
  const messages = newMessages(input.messages, current);
  const [first] = messages;
  if (current === undefined) return { messages, mark: undefined };
  if (first !== undefined) {
    return { messages, mark: first.isResult ? undefined : editOf(first.id, listed, current) };
  }
  const last = input.messages.at(-1);
  const asksAgain = input.regenerates && input.resume.length === 0 && !input.answersGraph;
  const mark =
    asksAgain && last?.isLast && !last.isResult ? regenerationOf(last, current) : undefined;
  return { messages: mark && last ? [{ ...last, isRepeated: true }] : [], mark };
}

/** A client that repeats its request has the same id of it. */
function regenerationKey(
  { ids }: RunInputParts,
  { id }: InputMessage,
  current: Snapshot | undefined,
): string {
  const [, request = String(current?.run?.startedSeq)] =
    ids.find(([name]) => name === "runId") ?? [];
  return `again-${hash("sha256", `${request} ${String(id)}`, "hex")}`;
}

/** Two pages may give the same answer: the first one counts. */
function keyOf(
  first: InputMessage | InputAnswer | undefined,
  path: RunInputParts["path"],
  current: Snapshot | undefined,
): Pick<RunInputRow, "idempotencyKey" | "keyField"> {
  if (first !== undefined && "isResult" in first) {
    // A page in two tabs runs its tool in both, and each gives its result an id: the first counts.
    const resultKey = `result-${hash("sha256", String(first.toolCallId), "hex")}`;
    const idempotencyKey = first.isResult ? resultKey : String(first.id);
    return { idempotencyKey, keyField: `${path}messages[${first.at}].id` };
  }
  const asked = first === undefined ? "on_interrupt" : String(first.interruptId);
  const field = first === undefined ? "forwardedProps.command" : `resume[${first.at}].interruptId`;
  // An agent may ask under the same id again, in a later run.
  const digest = hash("sha256", `${current?.run?.startedSeq} ${asked}`, "hex");
  return { idempotencyKey: `resume-${digest}`, keyField: `${path}${field}` };
}

/** The row that has the last of these, if no run has taken it. */
export function waitingRowIn(
  { messages, resume, ...input }: RunInputParts,
  current: Snapshot,
): bigint | undefined {
  const ids = messages.flatMap((message) => [message.id, ...otherResults(message, current)]);
  const [row] = [
    ...ids
      .toReversed()
      .map((id) =>
        typeof id === "string" ? (current.branchedAt(id) ?? current.waitingAt(id)) : undefined,
      ),
    ...resume.map(({ interruptId: id }) =>
      typeof id === "string" ? current.answeredAt(id) : undefined,
    ),
    input.answersGraph ? current.graphAnsweredAt : undefined,
  ].filter((seq) => seq !== undefined);
  return row;
}

/** The results that others gave to the call of this result. */
function otherResults({ isResult, id, toolCallId }: InputMessage, current: Snapshot): unknown[] {
  if (!isResult || (typeof id === "string" && current.hasHad(id))) return [];
  return current.messages.flatMap((message) =>
    message["role"] === "tool" && message["toolCallId"] === toolCallId ? [message["id"]] : [],
  );
}

function candidatesIn(messages: readonly unknown[]): readonly InputMessage[] {
  const roles = messages.map((message) => (isObject(message) ? message["role"] : undefined));
  const end = roles.findLastIndex((role) => role !== "user" && role !== "tool") + 1;
  const asked = roles.slice(0, end).lastIndexOf("user");
  return messages.flatMap((message, at) => {
    const isResult = roles[at] === "tool";
    const isLast = at >= end;
    if (!isObject(message) || !(isLast || (isResult && at > asked))) return [];
    const { id, toolCallId } = message;
    return [{ at, id, toolCallId, isResult, isLast, text: JSON.stringify(message) }];
  });
}

function newMessages(
  messages: readonly InputMessage[],
  current: Snapshot | undefined,
): readonly InputMessage[] {
  if (current === undefined) return messages.filter(({ isLast }) => isLast);
  const isStored = ({ id }: InputMessage): boolean => typeof id === "string" && current.hasHad(id);
  const lastStored = messages.findLastIndex((message) => message.isLast && isStored(message));
  const fresh = messages.filter(
    (message, at) => !isStored(message) && (!message.isLast || at > lastStored),
  );
  if (!fresh.some(({ isResult }) => isResult)) return fresh;
  const { called, answered } = callsOf(current);
  return fresh.filter(({ isResult, isLast, toolCallId }) => {
    if (!isResult) return true;
    return !answered.has(toolCallId) && (isLast || called.has(toolCallId));
  });
}

function callsOf({ messages }: Snapshot): Record<"called" | "answered", ReadonlySet<unknown>> {
  const called = new Set<unknown>();
  const answered = new Set<unknown>();
  for (const { role, toolCalls, toolCallId } of messages) {
    if (role === "tool") answered.add(toolCallId);
    for (const call of listOf(toolCalls)) if (isObject(call)) called.add(call["id"]);
  }
  return { called, answered };
}

/** The client has changed the state if it is not that of the log. */
function isStateOf(current: Snapshot | undefined, text: string): boolean {
  if (current?.stateText === undefined) return false;
  return isDeepStrictEqual(JSON.parse(text), JSON.parse(current.stateText));
}

/** A wrong id is no text, which the route refuses. */
function idsOf(input: JsonObject): RunInputParts["ids"] {
  return ["runId", "parentRunId"].flatMap((name) => {
    const value = input[name];
    const isId = typeof value === "string" && value !== "";
    return isId ? [[name, JSON.stringify(value)] as const] : [];
  });
}

/** Members without content are left out. */
function otherMembersOf(input: JsonObject): RunInputParts["rest"] {
  return ["state", "tools", "context", "forwardedProps"].flatMap((name) => {
    const value = input[name];
    const isEmpty = !(isObject(value) || Array.isArray(value)) || Object.keys(value).length === 0;
    return isEmpty ? [] : [[name, JSON.stringify(value)] as const];
  });
}

const needsText = { error: "must be a text" };
const id = z
  .string(needsText)
  .refine((text) => text !== "" && Buffer.byteLength(text) <= ID_BYTES_MAX, {
    error: `must be a text of 1 to ${ID_BYTES_MAX} bytes`,
  });
const contentError = { error: "must be a text or a list of parts" };
const content = z.union([z.string(), z.array(z.looseObject({ type: z.string() }))], contentError);

const MESSAGE = z.discriminatedUnion("role", [
  z.looseObject({ role: z.literal("user"), id, content }),
  z.looseObject({ role: z.literal("tool"), id, content, toolCallId: z.string(needsText) }),
]);

const ANSWER = z.looseObject(
  {
    interruptId: z.string(needsText),
    status: z.enum(["resolved", "cancelled"], { error: "must be resolved or cancelled" }),
  },
  { error: "must be an object" },
);

function violationsIn(field: string, text: string, schema: z.ZodType): readonly Violation[] {
  const parsed = schema.safeParse(JSON.parse(text));
  if (parsed.success) return tooDeep(field, text);
  return parsed.error.issues.map(({ path, message }) => {
    const name = [field, ...path].join(".");
    return { field: name, description: `${name} ${message}` };
  });
}

/** A message is two levels inside of its payload, which no reader parses if it is too deep. */
const DEPTH_MAX = JSON_DEPTH_MAX - 2;

function tooDeep(field: string, text: string): readonly Violation[] {
  if (outline(text).depth <= DEPTH_MAX) return [];
  return [{ field, description: `${field} must be at most ${DEPTH_MAX} levels deep` }];
}

/** Two parts with one id and other content: the log would keep the first, and drop the other. */
function duplicatesIn<T extends { readonly text: string }>(
  parts: readonly T[],
  idOf: (part: T) => readonly [field: string, name: unknown],
): readonly Violation[] {
  const texts = new Map<unknown, string>();
  return parts.flatMap((part) => {
    const [field, name] = idOf(part);
    const text = texts.get(name);
    if (text === undefined) texts.set(name, part.text);
    if (text === undefined || text === part.text) return [];
    return [{ field, description: `${field} occurs twice, with different content` }];
  });
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
