import { v7 as uuidv7 } from "uuid";
import type { LedgerWriter } from "../../src/ingest/commit.ts";
import { append } from "../../src/store/append.ts";
import {
  createDatabase as openDatabase,
  type Database,
  type DatabaseOptions,
} from "../../src/store/database.ts";
import { readKept } from "../../src/store/pages.ts";
import { migrateUp } from "../../src/store/migrate.ts";
import { type NewRow, type Push, storedBytesOf } from "../../src/store/rows.ts";
import { openStream } from "../../src/store/streams.ts";
import { createDatabase } from "./database.ts";

export interface TestLedger extends AsyncDisposable {
  readonly url: string;
  readonly database: Database;
}

/** A migrated database of its own, and a pool to it with the service's limits. */
export async function createLedger(
  options: Partial<
    Pick<DatabaseOptions, "connectionsMax" | "statementTimeoutMs" | "lockTimeoutMs">
  > = {},
): Promise<TestLedger> {
  const created = await createDatabase();
  await migrateUp(created.url);
  const database = openDatabase({
    url: () => created.url,
    connectionsMax: options.connectionsMax ?? 10,
    statementTimeoutMs: options.statementTimeoutMs ?? 5_000,
    lockTimeoutMs: options.lockTimeoutMs ?? 500,
  });
  await database.start();
  return {
    url: created.url,
    database,
    async [Symbol.asyncDispose]() {
      await database.stop();
      await created.drop();
    },
  };
}

/** The store as ingest needs it; sessions are created. */
export function ledgerWriter(database: Database): LedgerWriter {
  return {
    append: (pushes, { wait }) => append(database, pushes, { createMissing: true, wait }),
    readKept: (addresses) => readKept(database, addresses),
    openStream: (request, { wait }) => openStream(database, request, { createMissing: true, wait }),
  };
}

export function newRow(row: Partial<NewRow> = {}): NewRow {
  return {
    id: uuidv7(),
    eventType: "RAW",
    payload: '{"type":"RAW","event":1}',
    createdAtMicros: 1_700_000_000_000_001n,
    completedAtMicros: undefined,
    eventCount: 1,
    fragments: undefined,
    conformant: true,
    mark: undefined,
    sender: undefined,
    sentAtMicros: undefined,
    ...row,
  };
}

export function newPush(sessionId: string, push: Partial<Push> = {}): Push {
  const rows = push.rows ?? [newRow()];
  return {
    sessionId,
    stream: "events",
    key: undefined,
    digest: push.key === undefined ? undefined : Uint8Array.of(1),
    epoch: undefined,
    actor: undefined,
    range: undefined,
    rows,
    bytes: storedBytesOf(rows),
    ...push,
  };
}
