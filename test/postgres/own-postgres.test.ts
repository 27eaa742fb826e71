/** A PostgreSQL of one's own: what its role may do, what its database holds already, and its version. */
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { DEBIAN_15, startDebian } from "../support/debian-postgres.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { newSession, push, rowsOf } from "../support/pushing.ts";
import { runCommand, startService } from "../support/service-process.ts";
import { needs } from "../support/tools.ts";

interface Server {
  readonly url: string;
  stop(): Promise<unknown>;
}

const versions = [
  { version: "18, the embedded one", skip: false, major: 18 },
  { version: `15, Debian's (${DEBIAN_15})`, ...needs(DEBIAN_15), major: 15 },
];

describe.each(versions)("PostgreSQL $version", ({ skip, major }) => {
  let server: Server;
  let owner: postgres.Sql;
  const names: string[] = [];

  beforeAll(async () => {
    if (skip) return;
    server =
      major === 15
        ? await startDebian()
        : { url: inject("postgresUrl"), stop: () => Promise.resolve() };
    owner = postgres(server.url, { max: 1, onnotice: () => undefined });
  });

  afterAll(async () => {
    if (skip) return;
    for (const name of names) {
      await owner.unsafe(`drop database if exists ${name} with (force)`);
      await owner.unsafe(`drop role if exists ${name}`);
    }
    await owner.end();
    await server.stop();
    await cleanUp();
  });

  /** A database whose role has the rights of a new role and no more. */
  async function plainRole(): Promise<{ readonly name: string; readonly url: string }> {
    const name = `app_${names.length}_${process.pid}`;
    names.push(name);
    await owner.unsafe(`create role ${name} login password 'p'`);
    await owner.unsafe(`create database ${name} template template0`);
    const url = new URL(server.url);
    [url.username, url.password, url.pathname] = [name, "p", `/${name}`];
    return { name, url: url.href };
  }

  async function asOwner(database: string, statement: string): Promise<void> {
    const url = new URL(server.url);
    url.pathname = `/${database}`;
    const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
    try {
      await sql.unsafe(statement);
    } finally {
      await sql.end();
    }
  }

  async function pushesAndReads(env: Readonly<Record<string, string>>): Promise<void> {
    const service = await startService({ env });
    const client = new RpcClient(service.grpcAddress);
    try {
      const sessionId = newSession();
      const first = await push(client, "events", { sessionId, idempotencyKey: "k" });
      const again = await push(client, "events", { sessionId, idempotencyKey: "k" });
      expect([first.seq, again.seq, again.deduplicated]).toEqual([1n, 1n, true]);
      expect(await rowsOf(client, "events", sessionId)).toMatchObject([{ seq: 1n }]);
      await client.unary(SessionService.method.deleteSession, { id: sessionId });
    } finally {
      client.close();
      await service.stop();
    }
  }

  test.skipIf(skip)(
    "a role that may not create is refused with the GRANT it needs, and works after that GRANT",
    async () => {
      const { name, url } = await plainRole();
      const env = { DATABASE_URL: url };
      const refused = await runCommand(["serve"], { env });
      expect(refused.stderr).toMatch(
        /"msg":"DATABASE_URL: .* may not create schemas .*GRANT CREATE ON DATABASE .*\n$/,
      );
      expect(refused.exitCode).toBe(2);
      // The first half is not enough, and what is missing is said again.
      await asOwner(name, `grant create on database ${name} to ${name}`);
      const half = await runCommand(["migrate", "up"], { env });
      const grant = /GRANT CREATE ON SCHEMA public TO [^;]+;/.exec(half.stderr)?.[0];
      expect(half).toMatchObject({ exitCode: 2, stderr: expect.stringMatching(/^[^\n]*\n$/) });
      await asOwner(name, grant ?? "");
      await pushesAndReads(env);
    },
  );

  test.skipIf(skip)(
    "tables of other programs are refused by name, and DATABASE_SCHEMA avoids them",
    async () => {
      const { name, url } = await plainRole();
      await asOwner(name, `alter database ${name} owner to ${name}`);
      await asOwner(name, "create table sessions (id int); insert into sessions values (7)");
      await asOwner(name, `grant create on schema public to ${name}`);
      const refused = await runCommand(["migrate", "up"], { env: { DATABASE_URL: url } });
      expect(refused.stderr).toMatch(
        /the schema public has tables .*\(sessions\): set DATABASE_SCHEMA/,
      );
      expect(refused.exitCode).toBe(2);
      const env = { DATABASE_URL: url, DATABASE_SCHEMA: "ledger_of_app" };
      await pushesAndReads(env);
      expect(await runCommand(["migrate", "status"], { env })).toMatchObject({ exitCode: 0 });
      await asOwner(name, "select 1 / (count(*) = 1)::int from public.sessions where id = 7");
      await asOwner(name, "select 1 / (to_regnamespace('drizzle') is null)::int");
    },
  );
});
