/** The rows of sessions, read without the code of the service, and their events as it expands them. */
import type postgres from "postgres";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { RpcClient } from "./grpc-client.ts";
import type { StoredRow, StoredSession } from "./stream-check.ts";
import { readWitness } from "./history-witness.ts";

const PAGE_ROWS = 1_000;

export async function readStoredSessions(
  { sql, address }: { readonly sql: postgres.Sql; readonly address: string },
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, StoredSession>> {
  const { rows, counters } = await readWitness(sql, sessionIds);
  const events = rows.filter(({ stream }) => stream === "events");
  const bySession = Map.groupBy(events, ({ sessionId }) => sessionId);
  const client = new RpcClient(address);
  const sessions = new Map<string, StoredSession>();
  for (const sessionId of sessionIds) {
    sessions.set(sessionId, {
      rows: bySession.get(sessionId) ?? [],
      events: await expandedOf(client, sessionId),
      counter: counters.get(sessionId)?.events ?? 0n,
    });
  }
  client.close();
  return sessions;
}

async function expandedOf(client: RpcClient, sessionId: string): Promise<readonly StoredRow[]> {
  const events: StoredRow[] = [];
  for (let afterSeq = 0n; ; ) {
    const request = { sessionId, expand: true, pageSize: PAGE_ROWS, afterSeq };
    const page = await client.unary(SessionService.method.listSessionEvents, request);
    events.push(...page.items);
    if (!page.hasMore) return events;
    afterSeq = page.nextAfterSeq;
  }
}
