/** Reads rows by number, for the answers to repeated pushes. */
import { sql } from "drizzle-orm";
import { columnsOf, rowOf, TABLE } from "./columns.ts";
import type { Database } from "./database.ts";
import type { StoredRow, StreamName } from "./rows.ts";

export interface RowAddress {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly seq: bigint;
}

/**
 * In the order of the request; undefined for a row that was erased meanwhile. One statement per
 * stream.
 */
export async function readKept(
  database: Database,
  addresses: readonly RowAddress[],
): Promise<readonly (StoredRow | undefined)[]> {
  const found = new Map<string, StoredRow>();
  for (const stream of ["messages", "events"] as const) {
    const wanted = addresses.filter((address) => address.stream === stream);
    if (wanted.length === 0) continue;
    const list = JSON.stringify(
      wanted.map(({ sessionId, seq }) => ({ s: sessionId, n: seq.toString() })),
    );
    const rows = await database.run(sql`
      select kept.session_id, ${columnsOf(stream)}
      from json_to_recordset(${list}::text::json) as w(s text, n bigint)
      cross join lateral (select * from ${TABLE[stream]} where session_id = w.s and seq = w.n limit 1) kept`);
    for (const fields of rows) {
      const row = rowOf(stream, String(fields["session_id"]), fields);
      found.set(addressKey(row), row);
    }
  }
  return addresses.map((address) => found.get(addressKey(address)));
}

function addressKey({ stream, sessionId, seq }: RowAddress): string {
  return `${stream} ${sessionId} ${seq}`;
}
