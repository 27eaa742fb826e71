/** Shared by the drop-ins: connections, cancels, and the events of a session up to the end of its run. */
import type { Session } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { systemTimers, within } from "@session-ledger/base/timers";
import { createLedgerClient, type LedgerClient, ledger } from "../../client.ts";
import type { Tls, TokenSource } from "../../credentials.ts";
import { RpcFailure } from "../../failure.ts";
import type { EventItem } from "../../rows.ts";
import { readSession } from "../../session-reader.ts";
import { RunCancelled } from "../../writer/run-signal.ts";
import type { SessionWriter } from "../../writer/types.ts";

/** Where the service is, and who calls. */
export interface LedgerConnection {
  /** `host:port` of the service. */
  readonly address: string;
  /** A bearer token, or a function that returns one. */
  readonly token?: TokenSource;
  /** True, or your own authorities and certificate; default: without TLS. */
  readonly tls?: Tls;
}

/** The service may be away for this long before a call fails. */
export const RETRY = { retryForMs: 10_000 } as const;

/** A run without a new row for this time is lost, by default. */
export const LOST_AFTER_MS = 60_000;

/** The process that runs the agent is gone, or does nothing. */
export class RunLost extends Error {
  override readonly name = "RunLost";
}

export function clientOf({ address, token, tls }: LedgerConnection): LedgerClient {
  return createLedgerClient({ address, token, tls });
}

/** Undefined: the session does not exist yet. */
export async function sessionOf(client: LedgerClient, id: string): Promise<Session | undefined> {
  try {
    return await client.call(ledger.getSession, { id }, RETRY);
  } catch (error) {
    if (error instanceof RpcFailure && error.reason === "SESSION_NOT_FOUND") return undefined;
    throw error;
  }
}

/** When the last row of a session came, milliseconds since 1970. */
export function lastRowMs({ lastActivityAt }: Session): number {
  return lastActivityAt === undefined ? Date.now() : Number(lastActivityAt.seconds) * 1_000;
}

/** Calls `stop` when somebody cancels the run, and not when the writer has lost it. */
export function onCancel(
  writer: SessionWriter,
  runId: string,
  stop: (reason: RunCancelled) => void,
): void {
  const signal = writer.runSignal(runId);
  const act = (): void => {
    if (signal.reason instanceof RunCancelled) stop(signal.reason);
  };
  if (signal.aborted) act();
  else signal.addEventListener("abort", act, { once: true });
}

function isRunEnd({ eventType }: EventItem): boolean {
  return eventType === "RUN_FINISHED" || eventType === "RUN_ERROR";
}

interface FollowOptions extends LedgerConnection {
  readonly lostAfterMs: number;
  readonly signal: AbortSignal;
}

/** Throws RunLost when the open run has no new row for `lostAfterMs`, and what a reader throws. */
export async function* eventsToRunEnd(
  session: Session,
  { lostAfterMs, signal, ...connection }: FollowOptions,
): AsyncGenerator<EventItem, void, undefined> {
  const { openRunId, eventSeq } = session;
  const sessionId = session.metadata?.id ?? "";
  const leaving = new AbortController();
  const ending = AbortSignal.any([signal, leaving.signal]);
  const reading = { ...connection, sessionId, signal: ending };
  if (openRunId === undefined) {
    yield* readSession(reading);
    return;
  }
  const items = readSession({ ...reading, follow: true });
  let lastFrameMs = Math.min(Date.now(), lastRowMs(session));
  try {
    for (;;) {
      const item = await within(items.next(), silence(lastFrameMs + lostAfterMs - Date.now()));
      if (item.done === true) return;
      yield item.value;
      if (isRunEnd(item.value) && item.value.runId === openRunId) return;
      if (item.value.seq > eventSeq) lastFrameMs = Date.now();
    }
  } finally {
    leaving.abort();
  }
}

function silence(limitMs: number) {
  // Stored rows come first, also those of a run that was lost long ago.
  const least = Math.max(limitMs, STORED_ROWS_MS);
  return { limitMs: Math.min(least, TIMER_MS_MAX), onTimeout: fail, timers: systemTimers };
}

function fail(): Promise<never> {
  return Promise.reject(new RunLost("the process of the run does not answer"));
}

/** The least time for a page of stored rows. */
const STORED_ROWS_MS = 2_000;
/** The longest time of a timer. */
const TIMER_MS_MAX = 2_147_483_647;
