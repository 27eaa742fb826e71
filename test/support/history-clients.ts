/**
 * Clients that record their calls in a history: writers that repeat as the command line does, watches
 * that are opened again where they ended, and polls without a pause.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { Retries, retrying } from "@session-ledger/runner/internal/retry";
import { isEvent, type LedgerRow } from "@session-ledger/runner/internal/rows";
import { microsOf } from "../../src/contract/times.ts";
import { type History, type PushRecord, type Reader, reasonOf, type Row } from "./history.ts";

/** Longer than any fault of a test. */
const RETRY_FOR_MS = 60_000;

interface SendOptions {
  /** 0: one attempt. */
  readonly retryForMs?: number;
  readonly deadlineMs?: number;
}

/** Sends until a final answer; rejects with a failure that must not be repeated. */
export function send(
  { history, client }: { readonly history: History; readonly client: LedgerClient },
  push: PushRecord,
  { retryForMs = RETRY_FOR_MS, ...options }: SendOptions = {},
): Promise<Row> {
  const { stream, sessionId, eventType, payload, eventCount, key, epoch } = push.sent;
  const request = {
    sessionId,
    eventType,
    payload,
    idempotencyKey: key ?? "",
    ...(epoch === undefined ? {} : { producerEpoch: epoch }),
  };
  const call = async () => {
    const row =
      stream === "messages"
        ? await client.call(ledger.pushSessionMessage, request, options)
        : await client.call(ledger.pushSessionEvent, { ...request, eventCount }, options);
    return { row: rowOfWire(row), deduplicated: row.deduplicated };
  };
  return retrying(() => history.attempt(push, call), {
    retryForMs,
    mayRepeat: (failure) => failure.wasRefusedForNow || (key !== undefined && failure.wasLost),
  });
}

interface WatchOptions {
  /** No row is accepted before it has ended. */
  readonly rest?: () => Promise<unknown>;
  /** Returns the reader that begins again when the service says that rows are lost. */
  readonly again?: () => Reader;
}

/**
 * Follows a stream from its beginning until the signal, over all interruptions. Never rejects: its
 * final error is recorded as the reader's failure.
 */
export async function watch(
  client: LedgerClient,
  first: Reader,
  signal: AbortSignal,
  { rest, again }: WatchOptions = {},
): Promise<void> {
  let reader = first;
  const retries = new Retries({ retryForMs: RETRY_FOR_MS, signal });
  while (!signal.aborted && reader.failure === undefined) {
    try {
      for await (const row of openWatch(client, reader, signal)) {
        reader.saw(rowOfWire(row));
        retries.succeeded();
        await rest?.();
      }
      throw new RpcFailure("UNAVAILABLE", "the watch ended");
    } catch (error) {
      if (signal.aborted) return;
      if (again !== undefined && reasonOf(error) === "CURSOR_BEYOND_HEAD") {
        const lost = reader;
        reader = again();
        lost.toldOfLoss();
        continue;
      }
      if (!(error instanceof RpcFailure && error.mayPass)) return reader.failed(error);
      await pause(retries, { error, reader, signal });
    }
  }
}

async function pause(
  retries: Retries,
  after: { readonly error: RpcFailure; readonly reader: Reader; readonly signal: AbortSignal },
): Promise<void> {
  try {
    await retries.pauseAfter(after.error);
  } catch (error) {
    // The pause ends because the test is over, or the retries have lasted too long.
    if (!after.signal.aborted) after.reader.failed(error);
  }
}

function openWatch(
  client: LedgerClient,
  { stream, sessionId, cursor }: Reader,
  signal: AbortSignal,
): AsyncGenerator<LedgerRow, void, undefined> {
  const request = { sessionId, afterSeq: cursor };
  return stream === "events"
    ? client.watch(ledger.watchSessionEvents, request, { signal })
    : client.watch(ledger.watchSessionMessages, request, { signal });
}

/** Reads the rows after the last one again and again, until the signal. */
export async function poll(
  { history, client }: { readonly history: History; readonly client: LedgerClient },
  reader: Reader,
  signal: AbortSignal,
): Promise<void> {
  const retries = new Retries({ retryForMs: RETRY_FOR_MS, signal });
  while (!signal.aborted && reader.failure === undefined) {
    try {
      await pollOnce({ history, client }, reader);
      retries.succeeded();
      await nextTurn();
    } catch (error) {
      if (signal.aborted) return;
      if (isNotThereYet(error, reader)) continue;
      if (!(error instanceof RpcFailure && error.mayPass)) return reader.failed(error);
      await pause(retries, { error, reader, signal });
    }
  }
}

const PAGE_ROWS = 100;

export async function pollOnce(
  { history, client }: { readonly history: History; readonly client: LedgerClient },
  reader: Reader,
): Promise<void> {
  const began = history.now();
  const { sessionId, cursor } = reader;
  const request = { sessionId, afterSeq: cursor, pageSize: PAGE_ROWS };
  const page =
    reader.stream === "events"
      ? await client.call(ledger.listSessionEvents, request)
      : await client.call(ledger.listSessionMessages, request);
  for (const row of page.items) reader.saw(rowOfWire(row));
  if (!page.hasMore) reader.ends.push({ began, upTo: page.nextAfterSeq });
}

/** A session exists from its first push on. */
function isNotThereYet(error: unknown, reader: Reader): boolean {
  return (
    error instanceof RpcFailure && error.reason === "SESSION_NOT_FOUND" && reader.rows.length === 0
  );
}

export function rowOfWire(row: LedgerRow): Row {
  const { sessionId, seq, id, eventType, payload, createdAt } = row;
  if (createdAt === undefined) throw new Error("a row without created_at");
  const common = { sessionId, seq, id, eventType, payload, createdAtMicros: microsOf(createdAt) };
  return isEvent(row)
    ? { stream: "events", ...common, eventCount: row.eventCount, runId: row.runId }
    : { stream: "messages", ...common, eventCount: 1, runId: "" };
}
