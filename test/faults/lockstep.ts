/**
 * A quiet session: a push, and no other before every watcher has seen it. Later pushes cannot make up for
 * a lost wake-up, so a watch that depends on luck stands still.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { LedgerClient } from "@session-ledger/runner/internal/client";
import { lastSeqOf, plan, type Reader } from "../support/history.ts";
import { send, watch } from "../support/history-clients.ts";
import type { Random } from "../support/random.ts";
import { byTurns } from "../support/replicas.ts";
import type { WriterParts } from "./unary-writers.ts";
import type { Weather } from "./weather.ts";

/** From the acknowledgement, or from the heal of the last fault, to a watcher of any replica. */
const DELIVERY_LIMIT_MS = 15_000;
const PAUSE_MS = 60;
const DEADLINE_MS = 4_000;
const RETRY_FOR_MS = 90_000;

export interface Lockstep {
  readonly sessionId: string;
  readonly readers: readonly Reader[];
  /** Until the signal. */
  readonly watching: Promise<unknown>;
}

/** A watcher of each stream on each replica. */
export function watchQuietly(
  { history, clients }: Pick<WriterParts, "history" | "clients">,
  sessionId: string,
  signal: AbortSignal,
): Lockstep {
  const watching: Promise<void>[] = [];
  const readers: Reader[] = [];
  for (const [at, client] of clients.entries()) {
    for (const stream of ["messages", "events"] as const) {
      const reader = history.reader(`quiet watcher on replica ${at}`, { stream, sessionId });
      readers.push(reader);
      watching.push(watch(stayingWith(client), reader, signal));
    }
  }
  return { sessionId, readers, watching: Promise.all(watching) };
}

/** A watch that is opened again reads the head and finds what it missed, so these stay on one replica. */
function stayingWith(client: LedgerClient): LedgerClient {
  return byTurns([client], 0);
}

export async function writeQuietly(
  { history, clients, progress, heads, isOver }: WriterParts,
  { sessionId, readers }: Lockstep,
  { weather, random }: { readonly weather: Weather; readonly random: Random },
): Promise<void> {
  const name = `quiet writer of ${sessionId}`;
  progress.joins(name, [sessionId]);
  while (!isOver()) {
    const kind = random.pick(["message", "event"] as const);
    const push = history.push(plan(history, { sessionId, kind, keyed: true }));
    const client = byTurns(clients, random.below(clients.length));
    const options = { retryForMs: RETRY_FOR_MS, deadlineMs: DEADLINE_MS };
    const beganMs = performance.now();
    const row = await send({ history, client }, push, options);
    heads.knows(row);
    progress.came(name, beganMs);
    const waiting = readers.filter(({ stream }) => stream === row.stream);
    const isSeen = (): boolean =>
      waiting.every(({ cursor, failure }) => cursor >= lastSeqOf(row) || failure !== undefined);
    if (!(await weather.untilInCalm(isSeen, DELIVERY_LIMIT_MS))) {
      progress.leaves(name);
      throw new Error(
        `${waiting.map((one) => `${one.name} stands at ${one.cursor}`).join(", ")} of ${sessionId} ${row.stream}: row ${row.seq} was acknowledged, and is not delivered after ${DELIVERY_LIMIT_MS} ms without a fault`,
      );
    }
    await delay(random.below(2 * PAUSE_MS));
  }
  progress.leaves(name);
}
