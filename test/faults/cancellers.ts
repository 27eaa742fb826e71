/**
 * Sessions whose runs are cancelled, by both replicas in turn. Half of the producers end their run; the
 * others never do, so the service must, whichever replica is left.
 */
import { setTimeout as delay } from "node:timers/promises";
import { ledger } from "@session-ledger/runner/internal/client";
import type { CancelRecord } from "../support/turn-check.ts";
import type { Random } from "../support/random.ts";
import { again, type TurnParts } from "./turn-runners.ts";

/** The cancels of one session. */
export class Cancelled {
  readonly sessionId: string;
  readonly cancels: CancelRecord[] = [];

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }
}

const DEADLINE_MS = 5_000;
const LOOK_MS = 200;
/** Far more than the time of grace and any fault; less than a writer may be silent. */
const END_LIMIT_MS = 25_000;

interface Canceller {
  readonly name: string;
  readonly cancelled: Cancelled;
  readonly random: Random;
}

/** Rejects when a cancelled run stays open. */
export async function cancelRuns(parts: TurnParts, canceller: Canceller): Promise<void> {
  const { progress, isOver } = parts;
  const { name, cancelled, random } = canceller;
  const { sessionId } = cancelled;
  progress.joins(name, [sessionId]);
  for (let turn = 0; !isOver(); turn += 1) {
    const beganMs = performance.now();
    const runId = `${name} ${turn}`;
    const record: CancelRecord = { runId, seq: undefined };
    cancelled.cancels.push(record);
    await push(parts, canceller, { type: "RUN_STARTED", threadId: sessionId, runId });
    const { seq } = await again(parts, random, (client) =>
      client.call(ledger.cancelRun, { sessionId, runId }, { deadlineMs: DEADLINE_MS }),
    );
    record.seq = seq;
    if (random.oneIn(2)) {
      await push(parts, canceller, { type: "RUN_FINISHED", threadId: sessionId, runId });
    }
    await ended(parts, canceller, runId);
    progress.came(name, beganMs);
  }
  progress.leaves(name);
}

async function ended(
  parts: TurnParts,
  { cancelled: { sessionId: id }, random }: Canceller,
  runId: string,
): Promise<void> {
  const untilMs = performance.now() + END_LIMIT_MS;
  for (;;) {
    const { openRunId } = await again(parts, random, (client) =>
      client.call(ledger.getSession, { id }, { deadlineMs: DEADLINE_MS }),
    );
    if (openRunId !== runId) return;
    if (performance.now() > untilMs)
      throw new Error(`run ${runId} was cancelled, and is open ${END_LIMIT_MS} ms later`);
    await delay(LOOK_MS);
  }
}

async function push(
  parts: TurnParts,
  { cancelled: { sessionId }, random }: Canceller,
  event: { readonly type: string; readonly threadId: string; readonly runId: string },
): Promise<void> {
  const { type: eventType, runId } = event;
  const payload = JSON.stringify(event);
  const idempotencyKey = `${eventType} of ${runId}`;
  const request = { sessionId, eventType, payload, idempotencyKey };
  await again(parts, random, (client) =>
    client.call(ledger.pushSessionEvent, request, { deadlineMs: DEADLINE_MS }),
  );
}
