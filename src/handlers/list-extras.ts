/** The fields of listed sessions that a request has to ask for: the last failure, questions, and facts. */
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import {
  type ListSessionsRequest,
  type Question,
  QuestionSchema,
  type RunFailure,
  RunFailureSchema,
  type Session,
  SessionFactsSchema,
  SessionState,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { isObject, type JsonObject, parseObject } from "@session-ledger/agui/json";
import { graphInterrupt, isGraphQuestion, outcomeOf } from "@session-ledger/agui/run-end";
import { timestampOf } from "../contract/times.ts";
import type { Database } from "../store/database.ts";
import {
  readCallPayloads,
  readFacts,
  readRunEnds,
  type RunEnd,
  type SessionFacts,
} from "../store/session-facts.ts";

/** A page of 1,000 sessions would otherwise read up to a thousand payloads of any size. */
const FAILURE_BYTES_MAX = 4_096;
/** Of a RUN_FINISHED with questions; a page has them for its first sessions, up to the other number. */
const QUESTION_BYTES_MAX = 65_536;
const QUESTIONS_BYTES_MAX = 2 * 1024 * 1024;
const TEXT_CHARS_MAX = 1_024;
const ARGUMENTS_CHARS_MAX = 4_096;

/** Adds to the sessions of a page what the request asks for. */
export async function addExtras(
  database: Database,
  sessions: readonly Session[],
  { failures, facts, state }: Pick<ListSessionsRequest, "failures" | "facts" | "state">,
): Promise<void> {
  const asks = state === SessionState.WAITING_FOR_PERSON;
  const ids = sessions.map(({ metadata }) => metadata?.id ?? "");
  const payloadBytesMax = asks ? QUESTION_BYTES_MAX : FAILURE_BYTES_MAX;
  const [ends, known] = await Promise.all([
    readRunEnds(database, failures || asks ? ids : [], { payloadBytesMax }),
    readFacts(database, facts ? ids : []),
  ]);
  let questionBytes = 0;
  for (const [index, session] of sessions.entries()) {
    const id = ids[index] ?? "";
    const end = ends.get(id);
    const fact = known.get(id);
    if (fact !== undefined) session.facts = toFacts(fact);
    if (end === undefined) continue;
    if (failures && end.eventType === "RUN_ERROR") session.failure = toRunFailure(end);
    if (!asks || questionBytes > QUESTIONS_BYTES_MAX) continue;
    session.questions = await questionsOf(database, id, end);
    questionBytes += [end.payload ?? "", ...end.asked].join("").length;
  }
}

function toFacts({ durationMs, models, tools, ...counts }: SessionFacts) {
  const duration = durationFromMs(Math.round(durationMs));
  return create(SessionFactsSchema, {
    ...counts,
    duration,
    models: [...models],
    tools: [...tools],
  });
}

function toRunFailure({ runId, seq, atMicros, payload = "{}" }: RunEnd): RunFailure {
  const { message, code } = parseObject(payload);
  const at = timestampOf(atMicros);
  return create(RunFailureSchema, { runId, seq, at, message: cut(message), code: cut(code) });
}

function cut(text: unknown, charsMax = TEXT_CHARS_MAX): string {
  return typeof text === "string" ? text.slice(0, charsMax).toWellFormed() : "";
}

async function questionsOf(
  database: Database,
  sessionId: string,
  ended: RunEnd,
): Promise<Question[]> {
  const end = endIn(ended);
  const { outcome } = end;
  if (outcomeOf(end) !== "interrupted" || !isObject(outcome)) return [];
  const { interrupts } = outcome;
  const asked = Array.isArray(interrupts)
    ? (interrupts as readonly unknown[]).filter(isObject)
    : [];
  const asksOfCalls = asked.some(({ toolCallId }) => isId(toolCallId));
  const calls = callsIn(asksOfCalls ? await readCallPayloads(database, sessionId) : []);
  return asked.map((interrupt) => {
    const { id, message, reason, toolCallId } = interrupt;
    const call = isId(toolCallId) ? calls.get(toolCallId) : undefined;
    return create(QuestionSchema, {
      id: cut(id),
      runId: ended.runId,
      seq: ended.seq,
      message: cut(message),
      reason: cut(reason),
      toolName: cut(call?.name),
      toolArguments: cut(call?.arguments, ARGUMENTS_CHARS_MAX),
      interrupt: JSON.stringify(interrupt),
    });
  });
}

/** The event that ended a run; a graph's end gets the questions before it as an interrupt of AG-UI. */
export function endIn({ payload = "{}", asked }: RunEnd): JsonObject {
  const end = parseObject(payload);
  if (outcomeOf(end) !== "finished") return end;
  const interrupt = graphInterrupt(asked.map(parseObject).filter(isGraphQuestion));
  if (interrupt === undefined) return end;
  return { ...end, outcome: { type: "interrupt", interrupts: [interrupt] } };
}

function isId(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/** By id. A merged row has the joined pieces of one call. */
function callsIn(payloads: readonly string[]) {
  const calls = new Map<string, { name: string; arguments: string }>();
  for (const event of payloads.map((payload): JsonObject => parseObject(payload))) {
    const { toolCallId, toolCallName, delta } = event;
    if (!isId(toolCallId)) continue;
    const call = calls.get(toolCallId) ?? { name: "", arguments: "" };
    if (typeof toolCallName === "string") call.name = toolCallName;
    if (typeof delta === "string") call.arguments += delta;
    calls.set(toolCallId, call);
  }
  return calls;
}
