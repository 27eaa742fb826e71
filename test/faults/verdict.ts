/** Every promise as one question, asked when all clients have ended, with the database as witness. */
import type postgres from "postgres";
import { verify, type VerifiedSession } from "../../src/maintenance/verify.ts";
import { createDatabase } from "../../src/store/database.ts";
import { type History, markOf, reasonOf, type Row } from "../support/history.ts";
import { problemsOf, readWitness, type Witness } from "../support/history-check.ts";
import {
  passProblemsOf,
  readStoredSessions,
  type StoredSession,
  streamProblemsOf,
} from "../support/stream-check.ts";
import { expectationOf } from "../support/stream-clients.ts";
import { cancelProblemsOf, turnProblemsOf } from "../support/turn-check.ts";
import type { Load } from "./load.ts";
import type { Finals } from "./passes.ts";

export interface Evidence {
  readonly witness: Witness;
  readonly stored: ReadonlyMap<string, StoredSession>;
  /** Sessions whose counters differ from their rows and bytes; undefined: not counted yet. */
  readonly miscounted: readonly string[] | undefined;
  /** What `verify` finds in all sessions. */
  readonly damages: readonly string[];
  /** Where the sessions with turns stand. */
  readonly standing: ReadonlyMap<string, { readonly turnSeq: bigint; readonly pending: bigint }>;
  /** Rows that a promoted standby did not have. */
  readonly lost: readonly Row[];
}

export async function readFinals(
  sql: postgres.Sql,
  sessionIds: readonly string[],
): Promise<Finals> {
  return (await readWitness(sql, sessionIds)).counters;
}

export async function readEvidence(
  from: { readonly sql: postgres.Sql; readonly url: string; readonly address: string },
  { sessionIds, brimIds }: Pick<Load, "sessionIds" | "brimIds">,
): Promise<Omit<Evidence, "lost">> {
  return {
    witness: await readWitness(from.sql, [...sessionIds, ...brimIds]),
    stored: await readStoredSessions(from, sessionIds),
    miscounted: await wrongCounts(from.sql, sessionIds),
    damages: await damagesIn(from.url, new Set(brimIds)),
    standing: await readStanding(from.sql, sessionIds),
  };
}

export function verdictOf(
  load: Load,
  { witness, stored, miscounted, damages, standing, lost }: Evidence,
): readonly string[] {
  const { history, streamWriters, writerRecords, turned, cancelled, passReaders, feedReaders } =
    load;
  const shared = new Set(
    [...streamWriters, ...turned, ...cancelled].map(({ sessionId }) => sessionId),
  );
  const written = withAgents(
    history,
    writerRecords.map(({ sessionId }) => sessionId),
  );
  const pushed = witness.rows.filter(({ sessionId }) => written.has(sessionId));
  const counters = new Map([...witness.counters].filter(([sessionId]) => written.has(sessionId)));
  return [
    ...load.failures.map((failure) => `a writer ended: ${failure}`),
    ...problemsOf(history, { rows: pushed, counters }, { shared, lost }),
    ...streamWriters.flatMap((writer) => {
      const session = stored.get(writer.sessionId);
      const record = writer.record(expectationOf);
      if (session === undefined) return [`nothing is there of ${writer.sessionId}`];
      const isOthers = ({ payload }: { readonly payload: string }): boolean =>
        markOf({ payload }) !== undefined;
      return streamProblemsOf([record], session, isOthers).map(
        (problem) => `stream ${writer.sessionId} events: ${problem}`,
      );
    }),
    ...turned.flatMap(({ sessionId, claims }) => {
      const rows = witness.rows.filter((row) => row.sessionId === sessionId);
      const { turnSeq = 0n, pending = 0n } = standing.get(sessionId) ?? {};
      const messages = rows.filter(({ stream }) => stream === "messages");
      const events = rows.filter(({ stream }) => stream === "events");
      return turnProblemsOf({ sessionId, claims, messages, events, turnSeq, pending });
    }),
    ...cancelled.flatMap(({ sessionId, cancels }) => {
      const rows = witness.rows.filter((row) => row.sessionId === sessionId);
      const messages = rows.filter(({ stream }) => stream === "messages");
      const events = rows.filter(({ stream }) => stream === "events");
      return cancelProblemsOf({ sessionId, cancels, messages, events });
    }),
    ...writerRecords.flatMap((one) => {
      const messages = messagesIn(witness, one.sessionId);
      return one.problemsIn(stored.get(one.sessionId)?.events ?? [], messages.rows);
    }),
    ...passReaders.flatMap((reader) => {
      const failure = reader.failure;
      const own = reader.passes.flatMap((pass) => {
        const session =
          pass.stream === "events"
            ? stored.get(pass.sessionId)
            : messagesIn(witness, pass.sessionId);
        return session === undefined ? ["nothing is there"] : passProblemsOf(pass, session);
      });
      const name = reader.passes.at(-1)?.name ?? "a reader";
      return failure === undefined ? own : [...own, `${name}: failed with ${reasonOf(failure)}`];
    }),
    ...feedReaders.flatMap((reader) => reader.problemsIn(witness, load)),
    ...(miscounted ?? []),
    ...damages,
  ];
}

/** Sessions at their limit have forged counts. */
async function damagesIn(url: string, brimIds: ReadonlySet<string>): Promise<readonly string[]> {
  const limits = { connectionsMax: 1, statementTimeoutMs: 60_000, lockTimeoutMs: 1_000 };
  const database = createDatabase({ url: () => url, ...limits });
  await database.start();
  const damages: string[] = [];
  const verified = ({ sessionId, problems }: VerifiedSession): Promise<boolean> => {
    const real = problems.filter((one) => !brimIds.has(sessionId) || !one.startsWith("it counts"));
    damages.push(...real.map((problem) => `verify of ${sessionId}: ${problem}`));
    return Promise.resolve(true);
  };
  const { signal } = new AbortController();
  try {
    await verify(database, { sessionIds: undefined, verified, signal });
  } finally {
    await database.stop();
  }
  return damages;
}

async function readStanding(
  sql: postgres.Sql,
  sessionIds: readonly string[],
): Promise<Evidence["standing"]> {
  const rows = await sql<{ id: string; turn_seq: string; pending: string }[]>`
    select id, turn_seq::text, pending_count::text as pending from sessions
    where id in ${sql([...sessionIds])}`;
  return new Map(
    rows.map(({ id, turn_seq: turnSeq, pending }) => [
      id,
      { turnSeq: BigInt(turnSeq), pending: BigInt(pending) },
    ]),
  );
}

/** Sessions in the history, which does not have those of the SDK's writer. */
function withAgents(history: History, agents: readonly string[]): ReadonlySet<string> {
  const ids = new Set(history.sessionIds());
  for (const agent of agents) ids.delete(agent);
  return ids;
}

const messagesOf = new WeakMap<Witness, Map<string, StoredSession>>();

function messagesIn(witness: Witness, sessionId: string): StoredSession {
  let sessions = messagesOf.get(witness);
  if (sessions === undefined) {
    const messages = witness.rows.filter(({ stream }) => stream === "messages");
    sessions = new Map(
      [...Map.groupBy(messages, (row) => row.sessionId)].map(([id, rows]) => [
        id,
        { rows, events: rows, counter: witness.counters.get(id)?.messages ?? 0n },
      ]),
    );
    messagesOf.set(witness, sessions);
  }
  return sessions.get(sessionId) ?? { rows: [], events: [], counter: 0n };
}

/** The counters of a session compared with its rows. */
async function wrongCounts(
  sql: postgres.Sql,
  sessionIds: readonly string[],
): Promise<readonly string[] | undefined> {
  const [counts] = await sql<{ all: boolean | null }[]>`
    select bool_or(prosrc like '%payload_bytes%') as all from pg_proc where proname = 'ledger_append_pushes'`;
  if (counts?.all !== true) return undefined;
  const wrong = await sql<{ id: string; says: string; holds: string }[]>`
    select s.id, s.row_count || ' rows, ' || s.payload_bytes || ' bytes' as says,
      coalesce(held.n, 0) || ' rows, ' || coalesce(held.bytes, 0) || ' bytes' as holds
    from sessions s left join (
      select session_id, count(*) as n, sum(bytes) as bytes from (
        select session_id, octet_length(payload) + coalesce(octet_length(sender), 0) as bytes
        from session_messages
        union all
        select session_id, octet_length(payload) + coalesce(octet_length(run_id), 0)
          + coalesce(octet_length(fragments), 0)
        from session_events
      ) kept group by session_id
    ) held on held.session_id = s.id
    where s.id in ${sql([...sessionIds])}
      and (s.row_count <> coalesce(held.n, 0) or s.payload_bytes <> coalesce(held.bytes, 0))`;
  return wrong.map(
    ({ id, says, holds }) => `${id}: says that it holds ${says}, and holds ${holds}`,
  );
}
