/**
 * Writers of single pushes, on both replicas in turn: keyed ones, which repeat lost pushes and often
 * repeat acknowledged ones, some on both replicas at once; and unkeyed ones, which give up lost pushes.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { LedgerClient } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import {
  type History,
  lastSeqOf,
  plan,
  type PushKind,
  type PushRecord,
  type Row,
} from "../support/history.ts";
import { send } from "../support/history-clients.ts";
import type { Random } from "../support/random.ts";
import { byTurns } from "../support/replicas.ts";
import type { Progress } from "./progress.ts";

export interface WriterParts {
  readonly history: History;
  readonly clients: readonly LedgerClient[];
  readonly progress: Progress;
  readonly heads: Heads;
  readonly isOver: () => boolean;
}

export interface UnaryWriter {
  readonly name: string;
  readonly sessionIds: readonly string[];
  readonly kinds: readonly PushKind[];
  readonly keyed: boolean;
  readonly paceMs: number;
  /** Pushes at a time; 1 by default. */
  readonly atOnce?: number;
  readonly random: Random;
}

/** Every known end of a row: a reader may begin there. */
export class Heads {
  readonly #ends = new Map<string, bigint[]>();

  knows(row: Row): void {
    const name = `${row.sessionId} ${row.stream}`;
    const ends = this.#ends.get(name);
    if (ends === undefined) this.#ends.set(name, [lastSeqOf(row)]);
    else ends.push(lastSeqOf(row));
  }

  pick(of: Pick<Row, "sessionId" | "stream">, random: Random): bigint {
    const ends = this.#ends.get(`${of.sessionId} ${of.stream}`) ?? [];
    return ends[random.below(ends.length + 1)] ?? 0n;
  }
}

/** One attempt; a keyed writer then tries again, and others do not. */
const DEADLINE_MS = 4_000;
/** Longer than two faults that follow each other. */
const RETRY_FOR_MS = 90_000;
const BOTH_ONE_IN = 4;
const AGAIN_ONE_IN = 3;

/** Ends when the load is over; rejects with an error that no writer may get. */
export async function write(parts: WriterParts, writer: UnaryWriter): Promise<void> {
  const { history, progress, isOver } = parts;
  const { name, sessionIds, kinds, keyed, paceMs, atOnce = 1, random } = writer;
  progress.joins(name, sessionIds);
  for (let turn = 0; !isOver(); turn += 1) {
    const sessionId = sessionIds[turn % sessionIds.length] ?? "";
    // Pushes at once go to one replica, which makes a batch of them.
    const own = atOnce === 1 ? parts : { ...parts, clients: [random.pick(parts.clients)] };
    const pushes = Array.from({ length: atOnce }, () => {
      const sent = plan(history, { sessionId, kind: random.pick(kinds), keyed });
      return pushOnce(own, writer, history.push(sent));
    });
    await Promise.all(pushes);
    if (paceMs > 0) await delay(random.below(2 * paceMs));
  }
  progress.leaves(name);
}

async function pushOnce(
  { history, clients, progress, heads }: WriterParts,
  { name, keyed, random }: UnaryWriter,
  push: PushRecord,
): Promise<void> {
  const options = { retryForMs: RETRY_FOR_MS, deadlineMs: DEADLINE_MS };
  const way = (): { readonly history: History; readonly client: LedgerClient } => ({
    history,
    client: byTurns(clients, random.below(clients.length)),
  });
  const beganMs = performance.now();
  try {
    const firsts = keyed && random.oneIn(BOTH_ONE_IN) ? clients : [undefined];
    const answers = firsts.map((client) =>
      send(client === undefined ? way() : { history, client }, push, options),
    );
    await Promise.allSettled(answers);
    for (const row of await Promise.all(answers)) heads.knows(row);
    progress.acknowledged(name, push.sent.sessionId, beganMs);
    if (keyed && random.oneIn(AGAIN_ONE_IN)) await send(way(), push, options);
  } catch (error) {
    if (error instanceof RpcFailure && error.reason === "SESSION_FULL") {
      progress.came(name, beganMs); // An answer, too.
      return;
    }
    if (keyed || !mayBeTold(error)) throw error;
  }
}

/** Temporary failures, which the caller may repeat. */
function mayBeTold(error: unknown): boolean {
  return error instanceof RpcFailure && error.mayPass;
}
