/**
 * The ways of docs/backup.md to bring back an external database, with Debian's PostgreSQL 15: recovery
 * to a time before a mistake, pg_dump, and a dump of another version.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { runHere } from "../support/command-line.ts";
import {
  DEBIAN_15,
  type DebianServer,
  makeDebianDirectory,
  runDebian,
  startDebian,
  startDebianOn,
} from "../support/debian-postgres.ts";
import { openDatabase } from "../support/database.ts";
import { cleanUp, withSql } from "../support/embedded-fixture.ts";
import { fillEveryKind } from "../support/every-session.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { eventsOf } from "../support/push-stream.ts";
import { push } from "../support/pushing.ts";
import { endService, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

const { watchSessionEvents } = SessionService.method;
const { skip } = needs(DEBIAN_15);

let archive: string;
let server: DebianServer;
let dump: string;
const ends: (() => Promise<unknown> | void)[] = [];

async function dumpOf(url: string): Promise<string> {
  const { exitCode, stdout } = await runHere(["dump"], { env: { DATABASE_URL: url } });
  expect(exitCode).toBe(0);
  return stdout;
}

beforeAll(async () => {
  if (skip) return;
  const embedded = await openDatabase();
  const service = await startService({ databaseUrl: embedded.url });
  const client = new RpcClient(service.grpcAddress);
  await fillEveryKind(client, embedded.url);
  client.close();
  await endService(service);
  dump = await dumpOf(embedded.url);
  await embedded.stop();
  archive = await makeDebianDirectory();
  server = await startDebian(["archive_mode = on", `archive_command = 'cp %p ${archive}/%f'`]);
});

afterAll(async () => {
  if (skip) return;
  for (const end of ends.splice(0).toReversed()) await end();
  await server.stop();
  await cleanUp();
});

test.skipIf(skip)(
  `a dump of PostgreSQL 18 is the same in PostgreSQL 15 (${DEBIAN_15})`,
  async () => {
    const env = { DATABASE_URL: server.url };
    expect(await runHere(["restore", "-"], { env, input: dump })).toMatchObject({ exitCode: 0 });
    expect(await dumpOf(server.url)).toBe(dump);
  },
);

test.skipIf(skip)(`pg_dump and pg_restore bring the same ledger back (${DEBIAN_15})`, async () => {
  const file = join(await makeDebianDirectory(), "ledger.dump");
  await runDebian("pg_dump", ["--format=custom", `--file=${file}`, server.url]);
  await withSql(server.url, (sql) => sql`create database other`);
  const other = server.url.replace(/postgres$/, "other");
  await runDebian("pg_restore", ["--clean", "--if-exists", `--dbname=${other}`, file]);
  expect(await dumpOf(other)).toBe(dump);
});

test.skipIf(skip)(
  `a recovery ends at a time before a mistake, and cursors after it are refused (${DEBIAN_15})`,
  async () => {
    const base = join(await makeDebianDirectory(), "base");
    await runDebian("pg_basebackup", [
      "--checkpoint=fast",
      `--pgdata=${base}`,
      `--dbname=${server.url}`,
    ]);
    const first = await startService({ databaseUrl: server.url });
    ends.push(() => endService(first));
    const client = new RpcClient(first.grpcAddress);
    ends.push(() => client.close());
    for (let value = 1; value <= 5; value += 1)
      await push(client, "events", { sessionId: "after" });
    const kept = await dumpOf(server.url);
    const [clock] = await withSql(
      server.url,
      (sql) => sql<{ now: string }[]>`select clock_timestamp()::text as now`,
    );
    // Recovery stops at the first commit after its time.
    for (let value = 1; value <= 5; value += 1)
      await push(client, "events", { sessionId: "after" });
    await withSql(server.url, async (sql) => {
      await sql`delete from session_events where session_id = 'large'`;
      const [segment] = await sql<{ name: string }[]>`
        select pg_walfile_name(pg_switch_wal()) as name`;
      await eventually(async () => {
        const [archived] = await sql`
          select last_archived_wal >= ${segment?.name ?? ""} as "exists" from pg_stat_archiver`;
        expect(archived).toEqual({ exists: true });
      });
    });

    await writeFile(join(base, "recovery.signal"), "", { mode: 0o644 });
    const recovered = await startDebianOn(base, [
      "archive_mode = off",
      `restore_command = 'cp ${archive}/%f %p'`,
      `recovery_target_time = '${clock?.now}'`,
      "recovery_target_action = promote",
    ]);
    ends.push(() => recovered.stop());
    await eventually(async () => {
      const [state] = await withSql(recovered.url, (sql) => sql`select pg_is_in_recovery() as is`);
      expect(state).toEqual({ is: false });
    });
    expect(await dumpOf(recovered.url)).toBe(kept);
    const second = await startService({ databaseUrl: recovered.url });
    ends.push(() => endService(second));
    const again = new RpcClient(second.grpcAddress);
    ends.push(() => again.close());
    const request = { sessionId: "after", afterSeq: 10n };
    await expect(again.serverStream(watchSessionEvents, request).next()).rejects.toMatchObject({
      code: "OUT_OF_RANGE",
      reason: "CURSOR_BEYOND_HEAD",
    });
    await push(again, "events", { sessionId: "after" });
    expect((await eventsOf(again, "after")).at(-1)?.seq).toBe(6n);
  },
);
