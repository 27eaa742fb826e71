/**
 * The new parts of a client's RunAgentInput: typed messages, results of the client's tools, and
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
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { answersGraph } from "@session-ledger/agui/run-end";
import { JSON_DEPTH_MAX } from "@session-ledger/agui/payload";
import { outline } from "@session-ledger/agui/spans";
import { invalidArgument, type Violation } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import type { Snapshot } from "./snapshot.ts";
import type { ClientMessage } from "./client-messages.ts";
import { regenerationOf, type BranchMark, editOf, withMark } from "./input-branch.ts";

export interface RunInput {
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
  readonly text: string;
}

interface InputAnswer {
  readonly at: number;
  readonly interruptId: unknown;
  readonly text: string;
}

/** An input as a value. Its numbers keep their spelling: its parts are stored. */
export function parseInput(text: string): unknown {
  return parseExact(text);
}

/** Undefined: the input only asks for the session. */
export function runInputIn(input: JsonObject, path: RunInput["path"]): RunInput | undefined {
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
export function charsOf({ messages, resume, rest }: RunInput): number {
  const texts = [...messages, ...resume].map(({ text }) => text);
  return [...texts, ...rest.map(([, text]) => text)].reduce((sum, { length }) => sum + length, 0);
}

/** The message row with the new parts. */
export interface InputRow {
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
 * Undefined: nothing is new. `known` is undefined for a session that does not exist. Throws the
 * violations in the new parts.
 */
export function newRowIn(
  input: RunInput,
  { sessionId, listed }: InputPosition,
  known: Snapshot | undefined,
): InputRow | undefined {
  const { messages, mark } = branching(input, listed, known);
  const pending = new Set(known?.interrupts.map(({ id }) => id));
  const isOpen = (id: string): boolean => pending.has(id) && known?.answeredAt(id) === undefined;
  const resume = input.resume.filter(({ interruptId: id }) => typeof id !== "string" || isOpen(id));
  const [first, answer] = [messages[0], resume[0]];
  const isAsked = (known?.run?.questions.length ?? 0) > 0;
  const answers = input.answersGraph && isAsked && known?.graphAnsweredAt === undefined;
  if (first === undefined && answer === undefined && !answers) return undefined;
  const rest = input.rest.filter(([name, text]) => name !== "state" || !isStateOf(known, text));
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
    ...(first?.isKnown === true
      ? { idempotencyKey: regenerationKey(input, first, known), keyField: `${input.path}runId` }
      : keyOf({ first, answer }, input.path, known)),
  };
}

interface NewMessage extends InputMessage {
  /** It is typed again, in a new branch. */
  readonly isKnown?: boolean;
}

function branching(
  input: RunInput,
  listed: readonly ClientMessage[],
  known: Snapshot | undefined,
): { readonly messages: readonly NewMessage[]; readonly mark: BranchMark | undefined } {
  const messages = newMessages(input.messages, known);
  const [first] = messages;
  if (known === undefined) return { messages, mark: undefined };
  if (first !== undefined) {
    return { messages, mark: first.isResult ? undefined : editOf(first.id, listed, known) };
  }
  const last = input.messages.at(-1);
  const asksAgain = input.regenerates && input.resume.length === 0 && !input.answersGraph;
  const mark =
    asksAgain && last?.isLast && !last.isResult ? regenerationOf(last, known) : undefined;
  return { messages: mark && last ? [{ ...last, isKnown: true }] : [], mark };
}

/** A client that repeats its request has the same id of it. */
function regenerationKey(
  { ids }: RunInput,
  { id }: InputMessage,
  known: Snapshot | undefined,
): string {
  const [, request = String(known?.run?.startedSeq)] = ids.find(([name]) => name === "runId") ?? [];
  return `again-${hash("sha256", `${request} ${String(id)}`, "hex")}`;
}

/** Two pages may give the same answer: the first one counts. */
function keyOf(
  {
    first,
    answer,
  }: Record<"first", InputMessage | undefined> & { answer: InputAnswer | undefined },
  path: RunInput["path"],
  known: Snapshot | undefined,
): Pick<InputRow, "idempotencyKey" | "keyField"> {
  if (first !== undefined) {
    const idempotencyKey = first.isResult ? resultKey(first) : String(first.id);
    return { idempotencyKey, keyField: `${path}messages[${first.at}].id` };
  }
  const asked = answer === undefined ? "on_interrupt" : String(answer.interruptId);
  const field =
    answer === undefined ? "forwardedProps.command" : `resume[${answer.at}].interruptId`;
  return { idempotencyKey: answerKey(known, asked), keyField: `${path}${field}` };
}

/** A page in two tabs runs its tool in both, and each gives its result an id: the first one counts. */
function resultKey({ toolCallId }: InputMessage): string {
  return `result-${hash("sha256", String(toolCallId), "hex")}`;
}

/** An agent may ask under the same id again, in a later run. */
function answerKey(known: Snapshot | undefined, interruptId: string): string {
  const asked = `${known?.run?.startedSeq} ${interruptId}`;
  return `resume-${hash("sha256", asked, "hex")}`;
}

/** The row that has the last of these, if no run has taken it. */
export function waitingRowIn(
  { messages, resume, ...input }: RunInput,
  known: Snapshot,
): bigint | undefined {
  const ids = messages.flatMap((message) => [message.id, ...otherResults(message, known)]);
  const [row] = [
    ...ids
      .toReversed()
      .map((id) =>
        typeof id === "string" ? (known.branchedAt(id) ?? known.waitingAt(id)) : undefined,
      ),
    ...resume.map(({ interruptId: id }) =>
      typeof id === "string" ? known.answeredAt(id) : undefined,
    ),
    input.answersGraph ? known.graphAnsweredAt : undefined,
  ].filter((seq) => seq !== undefined);
  return row;
}

/** The results that others gave to the call of this result. */
function otherResults({ isResult, id, toolCallId }: InputMessage, known: Snapshot): unknown[] {
  if (!isResult || (typeof id === "string" && known.hasHad(id))) return [];
  return known.messages.flatMap((message) =>
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
  known: Snapshot | undefined,
): readonly InputMessage[] {
  if (known === undefined) return messages.filter(({ isLast }) => isLast);
  const isKnown = ({ id }: InputMessage): boolean => typeof id === "string" && known.hasHad(id);
  const lastKnown = messages.findLastIndex((message) => message.isLast && isKnown(message));
  const fresh = messages.filter(
    (message, at) => !isKnown(message) && (!message.isLast || at > lastKnown),
  );
  if (!fresh.some(({ isResult }) => isResult)) return fresh;
  const { called, answered } = callsOf(known);
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
function isStateOf(known: Snapshot | undefined, text: string): boolean {
  if (known?.stateText === undefined) return false;
  return isDeepStrictEqual(JSON.parse(text), JSON.parse(known.stateText));
}

/** A wrong id is no text, which the route refuses. */
function idsOf(input: JsonObject): RunInput["ids"] {
  return ["runId", "parentRunId"].flatMap((name) => {
    const value = input[name];
    const isId = typeof value === "string" && value !== "";
    return isId ? [[name, JSON.stringify(value)] as const] : [];
  });
}

/** Members without content are left out. */
function otherMembersOf(input: JsonObject): RunInput["rest"] {
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
    return [{ field, description: `${field} is there twice, with other content` }];
  });
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
