/**
 * Imports of an upstream database during the erasure of the imported sessions. Each import has new
 * sessions that are deleted at the source, because an import stores deleted rows only for those; half of
 * them are erased.
 */
import { setTimeout as delay } from "node:timers/promises";
import type postgres from "postgres";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { retrying } from "@session-ledger/runner/internal/retry";
import { reasonOf } from "../support/history.ts";
import { runCommand } from "../support/service-process.ts";
import { buildUpstream } from "../support/upstream-database.ts";
import { askDatabase, type Cluster } from "./cluster.ts";

const SESSIONS = 6;
/** Rows of each session and stream; a batch of the import takes a few, so that it runs during erasures. */
const ROWS = 100;
const BATCH_ROWS = 20;
const LIMIT_MS = 60_000;
const PAUSE_MS = 20;
/** Exit codes of a completed import, with or without refused sessions. */
const ENDED = [0, 1];

export class Imported {
  readonly #erased: string[] = [];
  readonly #kept: string[] = [];
  #rounds = 0;

  /** Resolves when the import runs, with a promise of its end. */
  async strike(cluster: Cluster, replica: number): Promise<() => Promise<void>> {
    const round = this.#rounds;
    this.#rounds += 1;
    const ids = Array.from({ length: SESSIONS }, (_, at) => `imported-${round}-${at}`);
    const from = new URL(cluster.url);
    from.pathname = "/upstream";
    await askDatabase(cluster.url, async (sql) => {
      const there = await sql`select 1 from pg_database where datname = 'upstream'`;
      if (there.length === 0) await sql`create database upstream`;
    });
    await askDatabase(from.href, async (sql) => {
      const [built] = await sql`select 1 from pg_tables where tablename = 'session_events'`;
      if (built === undefined) await buildUpstream(sql);
      await fill(sql, ids);
    });
    this.#kept.push(...ids.filter((_, at) => at % 2 === 0));
    const erased = ids.filter((_, at) => at % 2 === 1);
    this.#erased.push(...erased);
    const both = Promise.all([
      imported(from.href, cluster.url),
      erasedOnceThere(erased, { url: cluster.url, address: cluster.grpcAddresses[replica] ?? "" }),
    ]);
    both.catch(() => undefined); // The heal says so.
    return async () => {
      await both;
    };
  }

  async problems(sql: postgres.Sql, address: string): Promise<readonly string[]> {
    const held = await sql<{ id: string; erased: boolean; counted: string; rows: string }[]>`
      select id, erased_at is not null as erased, row_count + payload_bytes as counted,
        (select count(*) from session_messages where session_id = s.id)
          + (select count(*) from session_events where session_id = s.id) as rows
      from sessions s where id like 'imported-%'`;
    const byId = new Map(held.map((one) => [one.id, one]));
    const client = createLedgerClient({ address, ownConnection: true });
    const problems: string[] = [];
    for (const id of this.#kept) {
      const rows = byId.get(id)?.rows ?? "no";
      if (rows !== String(2 * ROWS)) problems.push(`${id}: imported, and has ${rows} rows`);
    }
    for (const id of this.#erased) {
      const { erased = false, counted = "0", rows = "no" } = byId.get(id) ?? {};
      if (!erased) problems.push(`${id}: erased, and not marked as erased`);
      if (rows !== "0") problems.push(`${id}: erased, and has ${rows} rows`);
      if (counted !== "0") problems.push(`${id}: erased, and says that it holds rows or bytes`);
      const said = await answersOf(client, id);
      if (said !== ANSWERS) problems.push(`${id}: erased, and answers ${said}`);
    }
    client.close();
    return problems;
  }
}

/** In one statement and once: it is sent again when the server stops before its answer. */
async function fill(sql: postgres.Sql, ids: readonly string[]): Promise<void> {
  await sql`
    with made as (
      insert into sessions (id, name, created_at, updated_at, deleted_at)
      select id, 'a name', now(), now(), now() from unnest(string_to_array(${ids.join(" ")}, ' ')) id
      on conflict do nothing returning id
    ), said as (
      insert into session_messages (id, session_id, event_type, payload)
      select gen_random_uuid(), id, 'user', 'text ' || n
      from generate_series(1, ${ROWS}::int) n, made order by n
    )
    insert into session_events (id, session_id, event_type, payload)
    select gen_random_uuid(), id, 'CUSTOM', '{"type":"CUSTOM","name":"n","value":' || n || '}'
    from generate_series(1, ${ROWS}::int) n, made order by n`;
}

/** Repeats as an operator does when the database was away for too long. */
async function imported(from: string, into: string): Promise<void> {
  const untilMs = performance.now() + LIMIT_MS;
  for (;;) {
    const args = ["import", "--from", from, "--batch", String(BATCH_ROWS)];
    const { exitCode, stderr } = await runCommand(args, { env: { DATABASE_URL: into } });
    if (exitCode !== null && ENDED.includes(exitCode)) return;
    if (performance.now() > untilMs)
      throw new Error(`the import ended with ${exitCode}: ${stderr}`);
  }
}

/** Erases each session as soon as it has a row. */
async function erasedOnceThere(
  ids: readonly string[],
  at: { readonly url: string; readonly address: string },
): Promise<void> {
  const client = createLedgerClient({ address: at.address, ownConnection: true });
  const untilMs = performance.now() + LIMIT_MS;
  for (const id of ids) {
    while (performance.now() < untilMs) {
      const there = await askDatabase(
        at.url,
        (sql) => sql`select 1 from sessions where id = ${id} and message_seq > 0`,
      );
      if (there.length > 0) break;
      await delay(PAUSE_MS);
    }
    await retrying(() => eraseOnce(client, id), { retryForMs: LIMIT_MS });
  }
  client.close();
}

/** NOT_FOUND: an earlier call, whose answer was lost, has erased it. */
async function eraseOnce(client: LedgerClient, id: string): Promise<void> {
  try {
    await client.call(ledger.eraseSession, { id });
  } catch (error) {
    if (!(error instanceof RpcFailure && error.reason === "SESSION_NOT_FOUND")) throw error;
  }
}

const ANSWERS = "SESSION_NOT_FOUND, SESSION_DELETED, SESSION_DELETED";

async function answersOf(client: LedgerClient, id: string): Promise<string> {
  const push = { sessionId: id, eventType: "user", payload: "late" };
  const calls = [
    () => client.call(ledger.eraseSession, { id }),
    () => client.call(ledger.pushSessionMessage, push),
    () => client.call(ledger.listSessionMessages, { sessionId: id }),
  ];
  const said: string[] = [];
  for (const call of calls) {
    said.push(
      await call().then(
        () => "OK",
        (error: unknown) => reasonOf(error),
      ),
    );
  }
  return said.join(", ");
}
