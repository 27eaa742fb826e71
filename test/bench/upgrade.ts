/**
 * A rolling upgrade: the other checkout has a ledger and gets pushes. This one starts beside it, migrates the
 * ledger, and gets pushes to the same sessions. No push may be refused, and each must have its row.
 */
import { setTimeout as delay } from "node:timers/promises";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { startLedger, startReplica } from "./servers.ts";

const SESSIONS = 16;
const SECONDS = 5;

const { pushSessionEvent, pushSessionMessage } = SessionService.method;

export async function upgrade(bench: Bench): Promise<Findings> {
  const seconds = bench.options.seconds ?? (bench.options.quick ? 0.5 : SECONDS);
  const old = await startLedger(bench, { checkout: bench.options.old });
  const ended = new AbortController();
  const signal = AbortSignal.any([bench.signal, ended.signal]);
  const oldPushes = pushAll(old.address, { name: "old", signal });
  await delay(seconds * 1_000);
  const replica = await startReplica(bench, old);
  const newPushes = pushAll(replica.address, { name: "new", signal });
  await delay(seconds * 1_000);
  ended.abort();
  const pushed = { old: await oldPushes, new: await newPushes };
  bench.signal.throwIfAborted();
  const [stored] = await old.sql<{ rows: number }[]>`
    select sum(message_seq + event_seq)::int as rows from sessions where id = any(${sessionIds()})`;
  const rows = stored?.rows ?? 0;
  if (rows !== pushed.old + pushed.new)
    throw new Error(`${pushed.old + pushed.new} pushes were acknowledged, and ${rows} rows stored`);
  bench.progress(`upgrade: ${pushed.old} pushes of the old service, ${pushed.new} of the new one`);
  return { pushed, rows, refused: 0 };
}

function sessionIds(): string[] {
  return Array.from({ length: SESSIONS }, (_, lane) => `bench-upgrade-${lane}`);
}

/** Messages and events, some with a key. Rejects with the first refused push. */
async function pushAll(
  address: string,
  { name, signal }: { readonly name: string; readonly signal: AbortSignal },
): Promise<number> {
  const client = new RpcClient(address);
  let pushed = 0;
  const lanes = sessionIds().map(async (sessionId) => {
    for (let turn = 0; !signal.aborted; turn += 1) {
      const idempotencyKey = turn % 2 === 0 ? "" : `${name}-${turn}`;
      const payload = JSON.stringify({ type: "CUSTOM", name, value: turn });
      if (turn % 3 === 0)
        await client.unary(pushSessionMessage, { sessionId, eventType: "user", payload });
      else
        await client.unary(pushSessionEvent, {
          sessionId,
          eventType: "CUSTOM",
          payload,
          idempotencyKey,
        });
      pushed += 1;
    }
  });
  try {
    await Promise.all(lanes);
    return pushed;
  } finally {
    client.close();
  }
}
