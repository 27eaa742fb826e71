/**
 * The body of `POST /` as the input of a run. Names of the protocol may be in snake_case; two
 * spellings with different values are refused. User content is never touched.
 */
import { isNothing, isObject, type JsonObject } from "@session-ledger/agui/json";
import type { AgentMessage, ResumeEntry, RunInput } from "../bridge.ts";

/** A request that cannot be served, for its caller to read. */
export class BadRequest extends Error {
  override readonly name = "BadRequest";
  readonly status: number;
  /** The member of the body that is wrong; undefined: the whole request. */
  readonly field: string | undefined;

  constructor(status: number, message: string, field?: string) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** `sessionId`: the only thread that the runner serves, and the default. */
export function runInputOf(body: JsonObject, sessionId: string | undefined): RunInput {
  const named = (name: string): unknown => valueOf(body, name, "");
  const threadId = threadIn(body, sessionId) ?? crypto.randomUUID();
  const parentRunId = idOf(named("parentRunId"), "parentRunId");
  const resume = listOf(named("resume"), "resume").map(resumeEntry);
  return {
    threadId,
    runId: idOf(named("runId"), "runId") ?? crypto.randomUUID(),
    ...(parentRunId !== undefined && { parentRunId }),
    state: named("state") ?? {},
    messages: messagesOf(body["messages"]),
    tools: listOf(named("tools"), "tools"),
    // Some callers of the platform send an object, which upstream's runner ignores.
    context: isObject(named("context")) ? [] : listOf(named("context"), "context"),
    forwardedProps: named("forwardedProps") ?? {},
    ...(resume.length > 0 && { resume }),
  };
}

/** The thread that the body names; by default the only one that the runner serves, if any. */
export function threadIn(body: JsonObject, sessionId: string | undefined): string | undefined {
  const threadId = idOf(valueOf(body, "threadId", ""), "threadId") ?? sessionId;
  refuseOther(threadId, { sessionId, field: "threadId" });
  return threadId;
}

/** Only the session of the runner may be named. */
export function refuseOther(
  named: string | undefined,
  { sessionId, field }: { readonly sessionId: string | undefined; readonly field: string },
): void {
  if (sessionId === undefined || named === undefined || named === sessionId) return;
  const message = `${field} must be ${JSON.stringify(sessionId)}, the session of this runner`;
  throw new BadRequest(400, message, field);
}

/** The value of a member of the protocol, in either spelling. */
export function valueOf(object: JsonObject, name: string, path: string): unknown {
  const snake = snakeName(name);
  const [own, other] = [object[name], object[snake]];
  if (snake === name || isNothing(other)) return own ?? undefined;
  if (!isNothing(own) && JSON.stringify(own) !== JSON.stringify(other)) {
    const message = `${path}${name} and ${path}${snake} have different values`;
    throw new BadRequest(400, message, `${path}${name}`);
  }
  return own ?? other;
}

function snakeName(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

const ID_CHARS_MAX = 1_024;

function idOf(value: unknown, field: string): string | undefined {
  if (value === undefined || value === "") return undefined;
  if (typeof value === "string" && value.length <= ID_CHARS_MAX) return value;
  const message = `${field} must be a text of at most ${ID_CHARS_MAX} characters`;
  throw new BadRequest(400, message, field);
}

function listOf(value: unknown, field: string): readonly unknown[] {
  if (value === undefined) return [];
  if (Array.isArray(value)) return value;
  throw new BadRequest(400, `${field} must be a list`, field);
}

function messagesOf(value: unknown): readonly AgentMessage[] {
  if (value === undefined) throw new BadRequest(400, "messages is required", "messages");
  return listOf(value, "messages").map(messageOf);
}

/** The names of a message of the protocol that have two spellings. */
const MESSAGE_NAMES = ["toolCallId", "toolCalls", "activityType", "encryptedValue"];

function messageOf(message: unknown, at: number): AgentMessage {
  const path = `messages[${at}]`;
  if (!isObject(message)) throw new BadRequest(400, `${path} must be an object`, path);
  const { id, role } = message;
  if (typeof role !== "string" || role === "") {
    throw new BadRequest(400, `${path}.role is required`, `${path}.role`);
  }
  // A message without an id could not be found again in the next input.
  const own = typeof id === "string" && id !== "" ? id : crypto.randomUUID();
  return { ...camel(message, MESSAGE_NAMES, `${path}.`), id: own, role };
}

function camel(object: JsonObject, names: readonly string[], path: string): JsonObject {
  const found = names.flatMap((name) => {
    const value = valueOf(object, name, path);
    return value === undefined ? [] : [[name, value]];
  });
  const spelled = new Set(names.map(snakeName));
  const rest = Object.entries(object).filter(([name]) => !spelled.has(name));
  return { ...Object.fromEntries(rest), ...Object.fromEntries(found) };
}

function resumeEntry(entry: unknown, at: number): ResumeEntry {
  const path = `resume[${at}]`;
  if (!isObject(entry)) throw new BadRequest(400, `${path} must be an object`, path);
  const interruptId = valueOf(entry, "interruptId", `${path}.`);
  const { status, payload } = entry;
  if (typeof interruptId !== "string") {
    throw new BadRequest(400, `${path}.interruptId is required`, `${path}.interruptId`);
  }
  if (status !== "resolved" && status !== "cancelled") {
    const message = `${path}.status must be resolved or cancelled`;
    throw new BadRequest(400, message, `${path}.status`);
  }
  return { interruptId, status, ...(payload !== undefined && { payload }) };
}
