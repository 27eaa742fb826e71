/** The rows of some sessions in the database, read without any code of the service. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type postgres from "postgres";
import type { StreamName } from "../../src/store/rows.ts";
import { pgDataIn, withSql } from "./embedded-fixture.ts";
import type { Row } from "./history.ts";
import type { Witness } from "./history-check.ts";

interface Fields {
  readonly session_id: string;
  readonly seq: string;
  readonly event_count: number;
  readonly id: string;
  readonly event_type: string;
  readonly payload: string;
  readonly created_at: string;
  readonly run_id: string | null;
}

/** The rows of the embedded server of a DATA_DIR. */
export async function witnessIn(dataDir: string, sessionIds: Iterable<string>): Promise<Witness> {
  return withSql(await embeddedUrl(dataDir), (sql) => readWitness(sql, sessionIds));
}

export async function embeddedUrl(dataDir: string): Promise<string> {
  const password = await readFile(join(dataDir, "postgres", "password"), "utf8");
  const [, , , port] = (await readFile(join(pgDataIn(dataDir), "postmaster.pid"), "utf8")).split(
    "\n",
  );
  return `postgres://postgres:${password.trim()}@127.0.0.1:${port}/postgres`;
}

export async function readWitness(
  sql: postgres.Sql,
  sessionIds: Iterable<string>,
): Promise<Witness> {
  const ids = [...sessionIds];
  const micros = sql`(extract(epoch from created_at) * 1000000)::bigint::text as created_at`;
  // One transaction: rows and counters of the same moment.
  return sql.begin("isolation level repeatable read", async (now) => {
    const messages = await now<Fields[]>`
      select session_id, seq::text, 1 as event_count, id, event_type, payload, ${micros}, null as run_id
      from session_messages where session_id in ${now(ids)} order by session_id, session_messages.seq`;
    const events = await now<Fields[]>`
      select session_id, seq::text, event_count, id, event_type, payload, ${micros}, run_id
      from session_events where session_id in ${now(ids)} order by session_id, session_events.seq`;
    const counters = await now<{ id: string; messages: string; events: string }[]>`
      select id, message_seq::text as messages, event_seq::text as events
      from sessions where id in ${now(ids)}`;
    return {
      rows: [
        ...messages.map((fields) => rowOf("messages", fields)),
        ...events.map((fields) => rowOf("events", fields)),
      ],
      counters: new Map(
        counters.map((used) => [
          used.id,
          { messages: BigInt(used.messages), events: BigInt(used.events) },
        ]),
      ),
    };
  });
}

function rowOf(stream: StreamName, fields: Fields): Row {
  return {
    stream,
    sessionId: fields.session_id,
    seq: BigInt(fields.seq),
    eventCount: fields.event_count,
    id: fields.id,
    eventType: fields.event_type,
    payload: fields.payload,
    createdAtMicros: BigInt(fields.created_at),
    runId: fields.run_id ?? "",
  };
}
