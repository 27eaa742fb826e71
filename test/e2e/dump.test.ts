/**
 * `dump` and `restore` of a ledger with every kind of session: the same bytes from the restored ledger,
 * and clients of the first ledger that go on at a service on the second one.
 */
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createSessionWriter } from "@session-ledger/runner";
import { runHere } from "../support/command-line.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { EPOCH, EVERY_SESSION, fillEveryKind } from "../support/every-session.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { emit, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";
import { ADMIN_TOKEN, startOnLedger } from "../support/ledger-fixture.ts";
import { eventsOf, PushStreamClient, whole } from "../support/push-stream.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";

const { method } = SessionService;

const bearer = (token: string) => ({ metadata: { authorization: `Bearer ${token}` } });

const chained = useService("strict");
const unchained = useService();

let first: OpenDatabase;
let folder: string;
let file: string;
let service: ServiceProcess;
let client: RpcClient;
const ends: (() => Promise<unknown> | void)[] = [];

beforeAll(async () => {
  first = await openDatabase();
  service = await startService({ databaseUrl: first.url });
  client = new RpcClient(service.grpcAddress);
  await fillEveryKind(client, first.url);
  await first.sql`select ledger_extend_chains(id, 0, 0) from sessions where erased_at is null`;
  folder = await makeDirectory();
  file = join(folder, "ledger.jsonl");
});

afterAll(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
  client.close();
  await endService(service);
  await first.stop();
  await cleanUp();
});

function at({ url }: Pick<OpenDatabase, "url">, ...args: readonly string[]) {
  return runHere(args, { env: { DATABASE_URL: url } });
}

async function emptyLedger(): Promise<OpenDatabase> {
  const database = await openDatabase({ empty: true });
  ends.push(() => database.stop());
  return database;
}

function kindsIn(dump: string): Readonly<Record<string, number>> {
  const kinds: Record<string, number> = {};
  for (const line of dump.split("\n").slice(0, -1)) {
    const kind = Object.keys(JSON.parse(line))[0] ?? "";
    kinds[kind] = (kinds[kind] ?? 0) + 1;
  }
  return kinds;
}

test("a restored ledger with every kind of session gives the same bytes again", async () => {
  const dumped = await at(first, "dump", "--output", file);
  expect(dumped).toMatchObject({
    exitCode: 0,
    stdout: "",
    stderr: expect.stringMatching(/^session-ledger: dumped 12 sessions with \d+ rows\n$/),
  });
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const text = await readFile(file, "utf8");
  const ids = text.match(/(?<=^\{"session":\{"id":")[^"]+/gm);
  expect(ids).toEqual(EVERY_SESSION);
  expect(kindsIn(text)).toMatchObject({ dump: 1, end: 13, imported: 3, import: 1 });

  const other = await emptyLedger();
  expect(await at(other, "restore", file)).toMatchObject({
    exitCode: 0,
    stderr: dumped.stderr.replace("dumped", "restored"),
  });
  expect((await at(other, "dump")).stdout).toBe(text);

  expect(await at(other, "verify")).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: "session-ledger: verified 12 sessions, 0 are damaged\n",
  });
  expect(await at(other, "restore", file)).toMatchObject({
    exitCode: 0,
    stderr: "session-ledger: restored 0 sessions with 0 rows, 12 existed already\n",
  });
  expect((await at(other, "dump")).stdout).toBe(text);
});

test("cursors, keys, tokens, streams, claims and writers go on at a restored ledger", async () => {
  const guarded = await startOnLedger({ databaseUrl: first.url }, { hasTokens: true });
  const admin = new RpcClient(guarded.grpcAddress);
  ends.push(
    () => guarded.stop(),
    () => admin.close(),
  );
  const { token } = await admin.unary(
    method.issueSessionToken,
    { sessionId: "known", role: "runner" },
    bearer(ADMIN_TOKEN),
  );
  const keyed = {
    sessionId: "Upper",
    eventType: "CUSTOM",
    payload: '{"type":"CUSTOM","name":"n","value":1}',
    idempotencyKey: "kept",
  };
  const kept = await client.unary(method.pushSessionEvent, keyed);
  const open = { sessionId: "streamed", producerEpoch: 1n };
  const before = await PushStreamClient.open(client, open);
  before.stream.batch(6, [whole(6)]);
  before.stream.flush();
  await before.stream.committed(6);
  const feed = client.serverStream(method.watchEvents, { snapshotOnly: true });
  let cursor = "";
  for await (const one of feed) cursor = one.cursor || cursor;

  const dumped = await at(first, "dump", "-o", file, "--force");
  expect(dumped.exitCode).toBe(0);
  // The future that the dump does not have.
  const lost = [7, 8, 9].map(whole);
  before.stream.batch(7, lost);
  before.stream.flush();
  await before.stream.committed(9);
  before.stream.cancel();
  await client.unary(method.pushSessionEvent, { ...keyed, idempotencyKey: "lost" });

  const other = await emptyLedger();
  expect(await at(other, "restore", file)).toMatchObject({ exitCode: 0 });
  const there = await startService({ databaseUrl: other.url });
  const again = new RpcClient(there.grpcAddress);
  const thereGuarded = await startOnLedger({ databaseUrl: other.url }, { hasTokens: true });
  const runner = new RpcClient(thereGuarded.grpcAddress);
  ends.push(
    () => there.stop(),
    () => thereGuarded.stop(),
    () => again.close(),
    () => runner.close(),
  );

  // A key: the same row. The lost key: a row with the next number.
  expect(await again.unary(method.pushSessionEvent, keyed)).toEqual({
    ...kept,
    deduplicated: true,
  });
  // A cursor of the kept past, and one of the lost future.
  const afterKept = { sessionId: "Upper", afterSeq: kept.seq };
  const watched = again.serverStream(method.watchSessionEvents, afterKept);
  const pushed = await again.unary(method.pushSessionEvent, { ...keyed, idempotencyKey: "new" });
  expect(pushed.seq).toBe(kept.seq + 1n);
  expect((await watched.next()).value).toMatchObject({ seq: pushed.seq });
  watched.cancel();
  const beyond = again.serverStream(method.watchSessionEvents, {
    sessionId: "streamed",
    afterSeq: 9n,
  });
  await expect(beyond.next()).rejects.toMatchObject({
    code: "OUT_OF_RANGE",
    reason: "CURSOR_BEYOND_HEAD",
  });
  // The stream learns where the ledger is, and sends the lost events again.
  const resumed = await PushStreamClient.open(again, open);
  expect(resumed.opened).toMatchObject({ lastClientSeq: 6n, refused: 1n });
  resumed.stream.batch(7, lost);
  resumed.stream.flush();
  await resumed.stream.committed(9);
  resumed.stream.end();
  const ofStream = async (rpc: RpcClient) =>
    (await eventsOf(rpc, "streamed", { expand: true })).map(({ seq, payload }) => [seq, payload]);
  expect(await ofStream(again)).toEqual(await ofStream(client));
  // A claim repeats its answer; a lower epoch is fenced off.
  const claim = {
    sessionId: "claimed",
    producerEpoch: EPOCH,
    runStarted: '{"type":"RUN_STARTED","threadId":"t","runId":"r1"}',
  };
  const repeated = [client, again].map((rpc) => rpc.unary(method.claimTurn, claim));
  expect(await repeated[1]).toEqual(await repeated[0]);
  const stale = { ...keyed, sessionId: "claimed", producerEpoch: EPOCH - 1n };
  await expect(again.unary(method.pushSessionEvent, stale)).rejects.toMatchObject({
    reason: "STALE_EPOCH",
  });
  // A token of the first ledger.
  const known = await runner.unary(method.getSession, { id: "known" }, bearer(token));
  expect(known).toEqual(await client.unary(method.getSession, { id: "known" }));
  // A feed continues after its cursor, with the new rows alone.
  const rest = again.serverStream(method.watchEvents, { cursor, snapshotOnly: true });
  const fed: string[] = [];
  for await (const { event } of rest) if (event !== undefined) fed.push(event.sessionId);
  expect(fed).toContain("streamed");
  expect(fed).not.toContain("large");
  // A writer with a new stream.
  const writer = createSessionWriter({ address: there.grpcAddress, sessionId: "merged" });
  writer.event({ type: "CUSTOM", name: "n", value: "after" });
  expect(await writer.flush()).toMatchObject({ complete: true });
  await writer.close();
  expect((await eventsOf(again, "merged", { expand: true })).map(({ seq }) => seq)).toEqual(
    Array.from({ length: 41 }, (_, index) => BigInt(index + 1)),
  );
});

test("chosen sessions come without the keys of tokens, and never change a session", async () => {
  const { stdout: text, exitCode } = await at(first, "dump", "merged", "known", "merged");
  expect(exitCode).toBe(0);
  expect(kindsIn(text)).toEqual({
    dump: 1,
    session: 2,
    event: expect.any(Number),
    imported: 3,
    end: 3,
  });
  const other = await openDatabase();
  ends.push(() => other.stop());
  await other.sql`insert into sessions (id, created_at, updated_at) values ('known', now(), now())`;
  const run = await runHere(["restore", "-"], { env: { DATABASE_URL: other.url }, input: text });
  expect(run.exitCode).toBe(1);
  expect(run.stderr).toMatch(
    /^session-ledger: session known exists, and differs from that of the dump \(its record is not that of the dump\): not changed\n.*restored 1 sessions with \d+ rows, 1 exist and differ\n$/,
  );
  const rows = await other.sql`select distinct session_id from session_events`;
  expect(rows).toEqual([{ session_id: "merged" }]);
});

test("verify ends with 1 and names the damage of a session, and with 4 for an unknown one", async () => {
  const damaged = await emptyLedger();
  await at(damaged, "restore", file);
  await damaged.sql`delete from session_messages where session_id = 'claimed' and seq = 2`;
  const run = await at(damaged, "verify");
  expect(run).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("verified 12 sessions, 1 are damaged"),
  });
  expect(run.stdout.split("\n")).toEqual([
    "claimed: messages: the row at 3 should be at 2",
    expect.stringMatching(/^claimed: it counts 4 rows, and has 3$/),
    expect.stringMatching(/^claimed: it counts \d+ stored bytes, and has \d+$/),
    "claimed: messages: the rows from 1 to 3 are not those of the chain",
    "",
  ]);
  const json = await at(damaged, "verify", "claimed", "known", "--json");
  const sessions = json.stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(sessions).toMatchObject([
    { sessionId: "claimed", messages: 2, problems: { length: 4 } },
    { sessionId: "known", problems: [] },
  ]);
  expect(await at(damaged, "verify", "nobody")).toMatchObject({ exitCode: 4, stdout: "" });
});

test.each([
  ["with INTEGRITY=chain", chained, 0],
  ["without it", unchained, 2],
])(
  "of the rows that a service stores %s, verify counts those in no chain",
  async (_, of, uncovered) => {
    const { metadata } = await of.client.unary(SessionService.method.createSession, {
      name: "chains",
    });
    const sessionId = metadata?.id ?? "";
    await say(of.client, sessionId, "first");
    await emit(of.client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
    const { databaseUrl: url } = of.service;
    const run = await at({ url }, "verify", sessionId, "--json");
    expect(JSON.parse(run.stdout)).toMatchObject({
      messages: 1,
      events: 1,
      uncovered,
      problems: [],
    });
    const digest = await at({ url }, "digest", sessionId);
    expect(digest.stdout.split("\n")).toHaveLength(uncovered === 0 ? 3 : 1);
  },
);

test("a dump whose rows were changed is refused, with the name of the session", async () => {
  const text = await readFile(file, "utf8");
  const changed = text.replace(
    '"event_type":"user","payload":"first"',
    '"event_type":"user","payload":"FIRST"',
  );
  expect(changed).not.toBe(text);
  const other = await emptyLedger();
  const run = await runHere(["restore", "-"], { env: { DATABASE_URL: other.url }, input: changed });
  expect(run).toMatchObject({
    exitCode: 2,
    stderr: expect.stringMatching(
      /line \d+: session \S+: messages: the rows from 1 to \d+ are not those of the chain/,
    ),
  });
  expect(await other.sql`select id from sessions`).toEqual([]);
});

test.each([[[]], [["--json"]]])(
  "what digest %j prints is compared with the ledger by verify --against",
  async (flags) => {
    const other = await emptyLedger();
    await at(other, "restore", file);
    const heads = join(folder, `heads${flags.length}`);
    const digest = await at(other, "digest", ...flags);
    expect(digest).toMatchObject({ exitCode: 0, stderr: "" });
    expect(digest.stdout).toMatch(
      flags.length === 0
        ? /^claimed messages 3 [0-9a-f]{64}$/m
        : /^\{"session":"claimed","stream":"messages","number":"3","chain":"[0-9a-f]{64}"\}$/m,
    );
    const chosen = await at(other, "digest", "claimed", ...flags);
    expect(digest.stdout).toContain(chosen.stdout);
    await writeFile(heads, digest.stdout);
    expect(await at(other, "verify", "--against", heads)).toMatchObject({
      exitCode: 0,
      stdout: "",
    });
    await other.sql`
      update session_messages set payload = reverse(payload) where session_id = 'claimed' and seq = 2`;
    const chains =
      "message_chain = null, message_chain_seq = null, event_chain = null, event_chain_seq = null";
    await other.sql`update sessions set ${other.sql.unsafe(chains)} where id = 'claimed'`;
    await other.sql`select ledger_extend_chains('claimed', 0, 0)`;
    await other.sql`delete from sessions where id = 'known'`;
    expect(await at(other, "verify", "claimed")).toMatchObject({ exitCode: 0 });
    expect(await at(other, "verify", "--against", heads)).toEqual({
      exitCode: 1,
      stdout: [
        "claimed: messages: the rows from 1 to 3 are not those of the chain",
        "known: it does not exist, and has a head in the file",
        "",
      ].join("\n"),
      stderr: expect.stringContaining("verified 12 sessions, 2 are damaged"),
    });
  },
);

test.each([
  ["claimed messages 3", "line 2"],
  ["claimed logs 3 00", "line 2"],
])("verify --against refuses a file with the line %j", async (line, named) => {
  const wrong = join(folder, "wrong");
  await writeFile(wrong, `known events 1 ${"0".repeat(64)}\n${line}\n`);
  expect(await at(first, "verify", "--against", wrong)).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining(`--against: ${named} is not a line of \`digest\``),
  });
  expect(await at(first, "verify", "--against", join(folder, "missing"))).toMatchObject({
    exitCode: 2,
  });
});

test("an unknown session ends a dump with 4, and leaves no file", async () => {
  const output = join(folder, "none.jsonl");
  const run = await at(first, "dump", "known", "nobody", "-o", output);
  expect(run).toMatchObject({ exitCode: 4, stdout: "" });
  expect(run.stderr).toContain("session nobody does not exist");
  expect((await readdir(folder)).filter((name) => name.startsWith("none"))).toEqual([]);
});

test("dump and restore join the service that runs the embedded database, or start it", async () => {
  const embedded = await startService({ embedded: true });
  ends.push(() => endService(embedded));
  const restored = await runCommand(["restore", file], { env: { DATA_DIR: embedded.dataDir } });
  expect(restored.exitCode).toBe(0);
  const rpc = new RpcClient(embedded.grpcAddress);
  expect((await eventsOf(rpc, "large")).length).toBe(1_512);
  rpc.close();
  await embedded.stop();
  const dumped = await runCommand(["dump"], { env: { DATA_DIR: embedded.dataDir } });
  expect(dumped).toMatchObject({ exitCode: 0, stdout: await readFile(file, "utf8") });
});
