/**
 * Starts a run of a thread. The page's new messages become one waiting message; the claim takes all
 * that wait as the turn of the run. Of two processes that begin at once, one gets the claim.
 */
import { isObject } from "@session-ledger/agui/json";
import { systemClock } from "@session-ledger/base/clock";
import { ledger, type LedgerClient } from "../../client.ts";
import { RpcFailure } from "../../failure.ts";
import { newMessagesOf } from "../../user-messages.ts";
import { isEvent } from "../../rows.ts";
import { readRows } from "../../session-reader.ts";
import { proposedEpoch } from "../../writer/writer-state.ts";
import type { Session } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { AgentEvent, AgentMessage } from "../bridge.ts";
import { lastRowMs, RETRY, sessionOf } from "./follow-run.ts";

export interface ThreadInput {
  readonly runId: string;
  readonly parentRunId?: string | undefined;
  readonly messages: readonly { readonly id: string; readonly role: string }[];
  readonly resume?: unknown;
}

export interface StartedRun {
  readonly epoch: bigint;
  /** RUN_STARTED, as the ledger has it. */
  readonly start: AgentEvent;
  /** The messages of the input, and user messages that arrived on other ways. */
  readonly messages: readonly AgentMessage[];
}

interface StartRequest {
  readonly threadId: string;
  readonly input: ThreadInput;
}

/** Throws when the thread has a run, and when the ledger cannot store the start. */
export async function startRun(
  request: StartRequest,
  { client, lostAfterMs }: { readonly client: LedgerClient; readonly lostAfterMs: number },
): Promise<StartedRun> {
  const { threadId: sessionId, input } = request;
  const session = await sessionOf(client, sessionId);
  const isOpen = session?.openRunId !== undefined;
  if (isOpen && Date.now() - lastRowMs(session) < lostAfterMs) throw alreadyRunning();
  const log = await messagesOf(client, session);
  const storedIds = new Set(log.map(({ id }) => id));
  const all = input.messages as readonly AgentMessage[];
  const firstTyped = all.findLastIndex(({ role }) => role !== "user" && role !== "tool") + 1;
  const typed = all.slice(firstTyped).filter(({ id }) => !storedIds.has(id));
  const isRepeated = await pushNewMessages(client, request, branching(typed, all, log));
  const { waiting, upToSeq } = await waitingIn(client, {
    sessionId,
    after: session?.turnSeq ?? 0n,
  });
  // The row of the regenerated message is that of this run, and was taken.
  if (isRepeated && typed.length === 0 && waiting.length === 0) throw startedBefore(input.runId);
  const others = waiting.filter(({ id }) => all.every((message) => message.id !== id));
  const messages = [...all.slice(0, firstTyped), ...others, ...all.slice(firstTyped)];
  const waits = new Set(waiting.map(({ id }) => id));
  const news = messages.filter(({ id }) => !storedIds.has(id) || waits.has(id));
  const { runId, parentRunId } = input;
  const start: AgentEvent = {
    type: "RUN_STARTED",
    threadId: sessionId,
    runId,
    ...(parentRunId !== undefined && { parentRunId }),
    input: { ...input, messages: news },
  };
  const epoch = await claim(client, { sessionId, start, runId, upToSeq, takesOver: isOpen });
  return { epoch, start, messages };
}

function alreadyRunning(cause?: unknown): Error {
  return new Error("Thread already running", { cause });
}

async function messagesOf(
  client: LedgerClient,
  session: Session | undefined,
): Promise<readonly AgentMessage[]> {
  const sessionId = session?.metadata?.id;
  if (sessionId === undefined) return [];
  const { messages } = await client.call(ledger.getTranscript, { sessionId }, RETRY);
  return messagesIn(JSON.parse(messages));
}

/** The new messages, marked if the page cut its list; or the last one again (docs/writing.md). */
function branching(
  typed: readonly AgentMessage[],
  all: readonly AgentMessage[],
  log: readonly AgentMessage[],
): readonly AgentMessage[] {
  const logged = log.filter(
    ({ role }) => role === "user" || role === "assistant" || role === "tool",
  );
  const [first, ...rest] = typed;
  const last = all.at(-1);
  if (first === undefined) {
    const index = logged.findIndex(({ id }) => id === last?.id);
    const isAnswered = index !== -1 && index < logged.length - 1;
    if (last?.role !== "user" || !isAnswered) return [];
    return [marked(last, { regenerates: last.id })];
  }
  const before = new Set(all.slice(0, all.indexOf(first)).map(({ id }) => id));
  const index = logged.findLastIndex(({ id }) => before.has(id));
  const next = logged[index + 1];
  if (first.role !== "user" || index === -1 || next?.role !== "user") return typed;
  return [marked(first, { edits: next.id }), ...rest];
}

function marked(message: AgentMessage, mark: object): AgentMessage {
  const { metadata } = message;
  return { ...message, metadata: { ...(isObject(metadata) && metadata), ...mark } };
}

function messagesIn(value: unknown): readonly AgentMessage[] {
  if (!Array.isArray(value)) return [];
  return value.filter(
    (one): one is AgentMessage =>
      isObject(one) && typeof one["id"] === "string" && typeof one["role"] === "string",
  );
}

/** In the form of a message that is typed over AG-UI. True: it is stored already. */
async function pushNewMessages(
  client: LedgerClient,
  { threadId: sessionId, input: { runId, resume } }: StartRequest,
  messages: readonly AgentMessage[],
): Promise<boolean> {
  const answers = Array.isArray(resume) && resume.length > 0 ? { resume } : {};
  const [first] = messages;
  if (first === undefined && !("resume" in answers)) return false;
  const payload = JSON.stringify({ threadId: sessionId, messages, ...answers });
  const isNew = first !== undefined && !Object.hasOwn(Object(first["metadata"]), "regenerates");
  const idempotencyKey = isNew && KEY.test(first.id) ? first.id : runId;
  const row = { sessionId, eventType: "user", payload, idempotencyKey };
  return (await client.call(ledger.pushSessionMessage, row, RETRY)).deduplicated;
}

const KEY = /^[\x21-\x7e]{1,128}$/;

/** The messages that wait, and the number of the last one; 0n: none waits. */
async function waitingIn(
  client: LedgerClient,
  { sessionId, after }: { readonly sessionId: string; readonly after: bigint },
): Promise<{ readonly waiting: readonly AgentMessage[]; readonly upToSeq: bigint }> {
  const waiting: AgentMessage[] = [];
  let upToSeq = 0n;
  const request = { stream: "messages", sessionId, afterSeq: after } as const;
  for await (const row of readRows(client, request, RETRY)) {
    if (isEvent(row) || row.eventType !== "user") continue;
    upToSeq = row.seq;
    waiting.push(...newMessagesOf(row));
  }
  return { waiting, upToSeq };
}

interface ClaimRequest {
  readonly sessionId: string;
  readonly runId: string;
  readonly start: AgentEvent;
  readonly upToSeq: bigint;
  readonly takesOver: boolean;
}

/** Stores the start, and returns the epoch of the run. */
async function claim(
  client: LedgerClient,
  { sessionId, runId, start, upToSeq, takesOver }: ClaimRequest,
): Promise<bigint> {
  const payload = JSON.stringify(start);
  const own = proposedEpoch(systemClock);
  let wasRepeated = false;
  const retry = { ...RETRY, onRetry: () => (wasRepeated = true) };
  const turn = { sessionId, runStarted: payload, upToSeq, messagesMax: 1_000 };
  let epoch = own;
  let isKnown = false;
  try {
    if (upToSeq > 0n || takesOver) {
      // A higher epoch takes over from the open run; 0 does not.
      const request = { ...turn, producerEpoch: takesOver ? own : 0n };
      const claimed = await client.call(ledger.claimTurn, request, retry);
      epoch = claimed.producerEpoch;
      isKnown = claimed.runStarted?.deduplicated === true;
    }
    if (upToSeq === 0n) {
      // Nothing waits: the page asks for a run without a new message.
      const row = { sessionId, eventType: "RUN_STARTED", payload, producerEpoch: epoch };
      const pushed = { ...row, idempotencyKey: `run:${runId}` };
      isKnown = (await client.call(ledger.pushSessionEvent, pushed, retry)).deduplicated;
    }
  } catch (error) {
    if (error instanceof RpcFailure && error.reason === "RUN_OPEN") throw alreadyRunning(error);
    throw error;
  }
  // An answer that was lost came again; without a lost answer, somebody has had this run.
  if (isKnown && !wasRepeated) throw startedBefore(runId);
  return epoch;
}

function startedBefore(runId: string): Error {
  return new Error(`run ${runId} has begun before`);
}
