/** Writes the recorded sessions as their runners would have; a later fill writes missing rows. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { systemClock } from "@session-ledger/base/clock";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import type { RetryOptions } from "@session-ledger/runner/internal/retry";
import { proposedEpoch } from "@session-ledger/runner/internal/writer/writer-state";
import type {
  SessionWriterOptions,
  WriterProblem,
} from "@session-ledger/runner/internal/writer/types";
import { createSessionWriter } from "@session-ledger/runner/internal/writer/writer";
import { pauseMs } from "./pieces.ts";
import { objectIn } from "@session-ledger/runner/internal/user-messages";
import { DEMO_LABEL, type DemoSession, forkOf, ID_LABEL } from "./sessions.ts";
import type { DemoTurn } from "./written.ts";

export interface Ledger {
  readonly client: LedgerClient;
  readonly retry: Partial<RetryOptions>;
  /** For writers and runners, which have their own connections. */
  readonly settings: Pick<SessionWriterOptions, "address" | "token" | "tls">;
}

/** The usual pace of a model. */
const PACE_MS = 35;
/** A person reads the answer. */
const READING_MS = 14_000;
/** The agent takes the question. */
const TAKING_MS = 700;
const STORE_MS = 60_000;

/** Resolves with false when the session existed already, or was deleted. */
export async function fillSession(demo: DemoSession, to: Ledger): Promise<boolean> {
  const id = demo.projectId === undefined ? demo.id : await madeId(demo, to);
  const stored = await storedOf(id, to);
  if (stored.isWhole) return false;
  try {
    await fill(demo, { id, stored: stored.events }, to);
    return true;
  } catch (error) {
    if (error instanceof RpcFailure && error.reason === "SESSION_DELETED") return false;
    throw error;
  }
}

/** The id of a session in a project: one that an earlier fill has made, or a new one. */
async function madeId(demo: DemoSession, { client, retry }: Ledger): Promise<string> {
  const { id, name, projectId = "", agentId = "" } = demo;
  const labels = { [ID_LABEL]: id };
  const { items } = await client.call(ledger.listSessions, { labels, projectId }, retry);
  const made = items[0]?.metadata?.id;
  if (made !== undefined) return made;
  const fields = { name, projectId, agentId, labels: JSON.stringify(labels) };
  const { metadata } = await client.call(ledger.createSession, fields, retry);
  return metadata?.id ?? "";
}

async function fill(
  demo: DemoSession,
  { id, stored }: { readonly id: string; readonly stored: number },
  to: Ledger,
): Promise<void> {
  const { client, retry } = to;
  const { name, phase, liked, fork, projectId } = demo;
  const timed = timedOf(demo);
  let start = 0;
  for (const [index, turn] of timed.entries()) {
    const end = start + turn.events.length;
    if (stored <= start) await ask(`demo:turn:${index}`, { id, turn, to });
    if (stored < end) await write(id, turn.events.slice(Math.max(0, stored - start)), to);
    start = end;
  }
  if (liked !== undefined) {
    const comment = "Exactly what I wanted.";
    const feedback = { sessionId: id, messageId: liked, kind: "thumbs_up", comment };
    await client.call(ledger.giveFeedback, feedback, retry);
  }
  const [first, last] = [timed[0]?.askedMs ?? 0, timed.at(-1)?.events.at(-1)?.atMs ?? 0];
  const times = { startTime: timestampFromMs(first), completionTime: timestampFromMs(last) };
  await client.call(ledger.updateSessionStatus, { id, phase, ...times }, retry);
  if (fork !== undefined) {
    const newId = forkOf(id);
    await client.call(ledger.forkSession, { sessionId: id, atMessageSeq: 1n, newId }, retry);
    await nameSession(to, newId, { name: fork });
  }
  // Last: the label marks a complete session.
  const labels = { ...demo.labels, ...(projectId !== undefined && { [ID_LABEL]: demo.id }) };
  await nameSession(to, id, { name, labels });
}

export async function nameSession(
  { client, retry }: Ledger,
  id: string,
  { name, labels }: Pick<DemoSession, "name" | "labels">,
): Promise<void> {
  const asked = { id, name, labels: JSON.stringify({ ...DEMO_LABEL, ...labels }) };
  await client.call(ledger.updateSession, asked, retry);
}

async function storedOf(
  id: string,
  { client, retry }: Ledger,
): Promise<{ readonly isWhole: boolean; readonly events: number }> {
  try {
    const { labels = "", eventSeq } = await client.call(ledger.getSession, { id }, retry);
    const isWhole = objectIn(labels)?.["demo"] === DEMO_LABEL.demo;
    return { isWhole, events: Number(eventSeq) };
  } catch (error) {
    if (!(error instanceof RpcFailure && error.code === "NOT_FOUND")) throw error;
    return { isWhole: false, events: 0 };
  }
}

interface TimedEvent {
  readonly atMs: number;
  readonly event: object;
}

interface TimedTurn extends Omit<DemoTurn, "events"> {
  readonly askedMs: number;
  readonly events: readonly TimedEvent[];
}

function timedOf({ turns, agoMinutes }: DemoSession): readonly TimedTurn[] {
  let atMs = 0;
  const timed = turns.map(({ events, ...turn }) => {
    const askedMs = (atMs += READING_MS);
    atMs += TAKING_MS;
    const at = events.map((event, position) => {
      atMs += pauseMs(event, position, PACE_MS);
      return { event, atMs };
    });
    return { ...turn, askedMs, events: at };
  });
  const beginMs = Date.now() - agoMinutes * 60_000 - atMs;
  return timed.map(({ askedMs, events, ...turn }) => ({
    ...turn,
    askedMs: Math.round(beginMs + askedMs),
    events: events.map(({ event, atMs: sinceMs }) => {
      const timestamp = Math.round(beginMs + sinceMs);
      return { atMs: timestamp, event: { ...event, timestamp } };
    }),
  }));
}

async function ask(
  idempotencyKey: string,
  { id, turn, to }: { readonly id: string; readonly turn: TimedTurn; readonly to: Ledger },
): Promise<void> {
  const { from: displayName, text: payload, askedMs } = turn;
  const message = { sessionId: id, eventType: "user", payload, idempotencyKey };
  const about = { sentAt: timestampFromMs(askedMs), sender: { displayName } };
  try {
    await to.client.call(ledger.pushSessionMessage, { ...message, ...about }, to.retry);
  } catch (error) {
    // An earlier fill was interrupted after the question; its time was another one.
    if (!(error instanceof RpcFailure && error.reason === "KEY_REUSED")) throw error;
  }
}

/** Each event at its own time: the writer reads it from its clock. */
async function write(id: string, events: readonly TimedEvent[], to: Ledger): Promise<void> {
  let nowMs = 0;
  const problems: WriterProblem[] = [];
  const writer = createSessionWriter({
    ...to.settings,
    sessionId: id,
    epoch: proposedEpoch(systemClock),
    clock: { ...systemClock, nowMicros: () => BigInt(nowMs) * 1_000n },
    onProblem: (problem) => problems.push(problem),
  });
  for (const { atMs, event } of events) {
    nowMs = atMs;
    writer.event(event);
  }
  const { signal } = to.retry;
  const leave = (): void => void writer.close({ timeoutMs: 1 });
  signal?.addEventListener("abort", leave, { once: true });
  const { complete, stats } = await writer
    .close({ timeoutMs: STORE_MS })
    .finally(() => signal?.removeEventListener("abort", leave));
  const { refused, dropped } = stats.events;
  if (complete && refused + dropped === 0) return;
  const why = problems.map((problem) => ("message" in problem ? problem.message : problem.kind));
  throw new RpcFailure("UNAVAILABLE", `session ${id} is not whole: ${why.join("; ")}`);
}
