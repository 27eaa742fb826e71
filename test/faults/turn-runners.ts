/**
 * Sessions in which a person writes and several runners, on both replicas, claim turns: they repeat a
 * claim that had no answer, sometimes die in the middle of a run, and take over from each other.
 */
import { setTimeout as delay } from "node:timers/promises";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { retrying } from "@session-ledger/runner/internal/retry";
import type { Random } from "../support/random.ts";
import { byTurns } from "../support/replicas.ts";
import type { ClaimRecord } from "../support/turn-check.ts";
import type { Progress } from "./progress.ts";

export interface TurnParts {
  readonly clients: readonly LedgerClient[];
  readonly progress: Progress;
  readonly isOver: () => boolean;
}

/** The claims of one session. */
export class Turned {
  readonly sessionId: string;
  readonly claims: ClaimRecord[] = [];

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }
}

const WAIT_S = 1;
const DEADLINE_MS = 5_000;
const RETRY_FOR_MS = 90_000;
const MESSAGES_MAX = 4;
const PACE_MS = 60;
const DIES_ONE_IN = 6;
const TAKES_OVER_ONE_IN = 4;

/** Ends when the load is over and nothing waits; rejects with an error that no runner may get. */
export async function runTurns(
  parts: TurnParts,
  {
    name,
    turned,
    random,
  }: { readonly name: string; readonly turned: Turned; readonly random: Random },
): Promise<void> {
  const { progress, isOver } = parts;
  progress.joins(name, [turned.sessionId]);
  let epoch = 0n;
  for (let turn = 0; ; turn += 1) {
    const beganMs = performance.now();
    const record: ClaimRecord = { runId: `${name} ${turn}`, taken: undefined };
    turned.claims.push(record);
    const isLast = isOver();
    try {
      const taken = await claim(parts, { turned, record, random, epoch });
      epoch = 0n;
      if (taken !== undefined) await work(parts, { turned, record, random, epoch: taken });
    } catch (error) {
      if (!(error instanceof RpcFailure)) throw error;
      if (error.reason === "NOTHING_WAITS" && isLast) break;
      if (error.reason === "RUN_OPEN")
        epoch = epochAfter(error, isLast || random.oneIn(TAKES_OVER_ONE_IN));
      else if (error.reason === "STALE_EPOCH") epoch = 0n;
      else if (error.reason !== "NOTHING_WAITS") throw error;
    }
    progress.came(name, beganMs);
    await delay(random.below(PACE_MS));
  }
  progress.leaves(name);
}

interface OneTurn {
  readonly turned: Turned;
  readonly record: ClaimRecord;
  readonly random: Random;
  readonly epoch: bigint;
}

/** The epoch of the run; undefined: nothing waited. */
async function claim(parts: TurnParts, of: OneTurn): Promise<bigint | undefined> {
  const { turned, record, random, epoch: producerEpoch } = of;
  const request = {
    sessionId: turned.sessionId,
    runStarted: JSON.stringify({ runId: record.runId }),
    producerEpoch,
    messagesMax: 1 + random.below(MESSAGES_MAX),
    redeliver: random.oneIn(2),
    ...(parts.isOver() ? {} : { wait: { seconds: BigInt(WAIT_S), nanos: 0 } }),
  };
  const answer = await again(parts, random, (client) =>
    client.call(ledger.claimTurn, request, { deadlineMs: DEADLINE_MS }),
  );
  if (answer.runStarted === undefined) return undefined;
  record.taken = answer.messages.map(({ seq }) => seq);
  return answer.producerEpoch;
}

async function work(parts: TurnParts, { turned, record, random, epoch }: OneTurn): Promise<void> {
  const { sessionId } = turned;
  const { runId } = record;
  const push = (event: { readonly type: string; readonly [field: string]: unknown }) =>
    again(parts, random, (client) => {
      const payload = JSON.stringify(event);
      const fields = { sessionId, eventType: event.type, payload, producerEpoch: epoch };
      const request = { ...fields, idempotencyKey: `${event.type} of ${runId}` };
      return client.call(ledger.pushSessionEvent, request, { deadlineMs: DEADLINE_MS });
    });
  if (random.oneIn(DIES_ONE_IN)) return;
  await push({ type: "CUSTOM", name: "answer", value: runId });
  if (random.oneIn(DIES_ONE_IN)) return;
  await push({ type: "RUN_FINISHED", threadId: sessionId, runId });
}

/** Each attempt goes to another replica. */
export function again<T>(
  { clients }: TurnParts,
  random: Random,
  call: (client: LedgerClient) => Promise<T>,
): Promise<T> {
  const client = byTurns(clients, random.below(clients.length));
  const mayRepeat = (failure: RpcFailure): boolean => failure.mayPass;
  return retrying(() => call(client), { retryForMs: RETRY_FOR_MS, mayRepeat });
}

function epochAfter({ message }: RpcFailure, takesOver: boolean): bigint {
  const highest = /above (\d+) takes over/.exec(message)?.[1];
  return takesOver && highest !== undefined ? BigInt(highest) + 1n : 0n;
}
