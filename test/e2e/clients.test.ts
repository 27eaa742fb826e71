/**
 * The clients in Python and Go, run as processes while parts break: the tables hold what they sent
 * once, their answers are true, and they have no compressor of their own. Each also runs once with TLS
 * and a token that is withdrawn in the middle.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type postgres from "postgres";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { z } from "zod";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller, type SharedCallers } from "../support/callers.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { goPrograms } from "../support/foreign-clients.ts";
import { type CallOptions, RpcClient } from "../support/grpc-client.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { newSession } from "../support/pushing.ts";
import { type ServiceProcess, startAgain, startService } from "../support/service-process.ts";
import { startTcpProxy } from "../support/broken-network.ts";
import { needs } from "../support/tools.ts";
import { sharedCallers, sharedClient, sharedService, useService } from "../support/use-service.ts";
import { claim, emit, say } from "../support/turns.ts";
import { pace } from "../support/eventually.ts";

const POLL = { interval: 5 };
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

type Program = "example" | "runner";

interface Example {
  readonly language: string;
  readonly tool: string;
  readonly folder: string;
  /** What generate.sh makes last. */
  readonly generated: string;
  /** The command, ready to run. */
  prepare(program: Program): Promise<readonly string[]>;
}

const goProgram = goPrograms(); // Linking takes longer than most tests of it.

const EXAMPLES: readonly Example[] = [
  {
    language: "Python",
    tool: "python3",
    folder: "clients/python",
    generated: ".venv/installed.txt",
    prepare: (program) => Promise.resolve([".venv/bin/python", `${program}.py`]),
  },
  {
    language: "Go",
    tool: "go",
    folder: "clients/go",
    generated: "ambient/v1/sessions_grpc.pb.go",
    prepare: async (program) => [await goProgram(program)],
  },
];

let database: OpenDatabase;
let sql: postgres.Sql;
let service: ServiceProcess;
let own: Reader;
/** Of profile tls, where a session has one watch. */
const { service: guarded } = useService("tls");
let callers: SharedCallers;
let known: Reader;
let guardedEnv: (caller: Pick<Caller, "token">) => Promise<GuardedEnv>;

interface Reader {
  readonly client: RpcClient;
  readonly as: CallOptions;
}

interface GuardedEnv extends Readonly<Record<string, string>> {
  readonly LEDGER_CA_FILE: string;
  readonly LEDGER_TOKEN_FILE: string;
}

beforeAll(async () => {
  database = await openDatabase();
  ({ sql } = database);
  service = await startService({ databaseUrl: database.url });
  const client = new RpcClient(() => service.grpcAddress);
  own = { client, as: {} };
  callers = await sharedCallers("tls");
  const admin = callers.add("admin", ["admin"]);
  await callers.save();
  known = { client: await sharedClient("tls"), as: { metadata: bearer(admin) } };
  const directory = await makeDirectory();
  const { authority = "" } = await sharedService("tls");
  guardedEnv = async ({ token }) => {
    const env = {
      LEDGER_CA_FILE: join(directory, "ca.crt"),
      LEDGER_TOKEN_FILE: join(directory, newSession()),
    };
    await writeFile(env.LEDGER_CA_FILE, authority);
    await writeFile(env.LEDGER_TOKEN_FILE, `${token}\n`);
    return env;
  };
});

afterAll(async () => {
  own.client.close();
  known.client.close();
  await service.kill("SIGKILL");
  await database.stop();
  await cleanUp();
});

describe.each(EXAMPLES)("$language ($folder)", (example) => {
  test("both streams of the example are in the tables", needs(example.tool), async (context) => {
    const run = await start(example, context);
    run.say(EVENTS);
    run.hangUp();
    expect(await run.ended).toEqual(WELL);
    await expectOnceIn(run);
    expect(run.opened).toEqual([0n]);
  });

  test(
    "regression: a second run of the Python and Go examples doubled their text",
    needs(example.tool),
    async (context) => {
      const events = EVENTS.filter((_, at) => BigInt(at + 1) !== REFUSED);
      const first = await start(example, context);
      first.say(events.slice(0, 300));
      await expect.poll(() => first.committed, POLL).toBe(300n);
      first.kill();
      await first.ended;
      for (const from of [300n, BigInt(events.length)]) {
        const run = await start(example, context, { sessionId: first.sessionId });
        run.say(events);
        run.hangUp();
        expect(await run.ended).toEqual(WELL);
        expect(run.opened).toEqual([from]);
        expect(run.rows.at(-1)?.payload).toContain("RUN_FINISHED");
      }
      const expanded = await eventsIn(first.sessionId, { expand: true });
      expect(expanded.slice(1).map(({ payload }) => payload)).toEqual(events);
    },
  );

  test("the example prints its usage without arguments", needs(example.tool), async (context) => {
    for (const args of [[], ["127.0.0.1:1"], ["127.0.0.1:1", "s", "epoch"]]) {
      const { exitCode, stderr } = await (await start(example, context, { args })).ended;
      expect(stderr).toMatch(/^usage: \S+ ADDRESS SESSION_ID \[EPOCH\] < events\.jsonl\n$/);
      expect(exitCode).toBe(1);
    }
  });

  test(
    "regression: the Python and Go examples hung silently with a wrong address",
    needs(example.tool),
    async (context) => {
      const run = await start(example, context, { address: "127.0.0.1:1" });
      const { exitCode, stderr } = await run.ended;
      expect(stderr).toMatch(/^cannot connect to 127\.0\.0\.1:1: is the service running, .*\n$/);
      expect(exitCode).toBe(1);
    },
  );

  test(
    "the example watches again after a watch was refused for a moment",
    needs(example.tool),
    async (context) => {
      const sessionId = newSession();
      // The only one that a session of that service may have.
      const { watchSessionEvents } = SessionService.method;
      const watch = known.client.serverStream(watchSessionEvents, { sessionId }, known.as);
      await watch.attached;
      const admin = callers.add(`${example.language}-example`, ["admin"]);
      await callers.save();
      const address = guarded.grpcAddress;
      const run = await start(example, context, {
        sessionId,
        address,
        env: await guardedEnv(admin),
      });
      run.say(EVENTS);
      run.hangUp();
      await expect.poll(() => run.committed, POLL).toBe(BigInt(EVENTS.length));
      expect(run.rows).toEqual([]);
      watch.cancel();
      expect(await run.ended).toEqual(WELL);
      await expectOnceIn(run, known);
    },
  );

  test(
    "the example ends with an error for an invalid session id",
    needs(example.tool),
    async (context) => {
      const run = await start(example, context, { sessionId: "a/b" });
      const { exitCode, stderr } = await run.ended;
      expect(exitCode).toBe(1);
      expect(stderr).toMatch(/invalid.?argument/i);
      expect(stderr).toContain("session_id must be");
    },
  );

  test(
    "the example works over TLS, and with a token that is replaced",
    needs(example.tool),
    async (context) => {
      const before = callers.add(`${example.language}-before`, ["editor", "runner"]);
      const after = callers.add(`${example.language}-after`, ["editor", "runner"]);
      await callers.save();
      const env = await guardedEnv(before);
      const run = await start(example, context, { address: guarded.grpcAddress, env });
      run.say(EVENTS.slice(0, 300));
      await expect.poll(() => run.committed, POLL).toBe(300n);
      // A stream that lived for less than a second is not known to have had a token that was accepted.
      await pace(1_100);
      await writeFile(env.LEDGER_TOKEN_FILE, `${after.token}\n`);
      callers.remove(before);
      await callers.save();
      await expect.poll(() => run.opened, POLL).toEqual([0n, 300n]);
      run.say(EVENTS.slice(300));
      run.hangUp();
      expect(await run.ended).toEqual(WELL);
      await expectOnceIn(run, known);
    },
  );

  test(
    "the example without a valid token ends and reports it",
    needs(example.tool),
    async (context) => {
      const env = await guardedEnv({ token: "not-a-token-of-anybody" });
      const run = await start(example, context, { address: guarded.grpcAddress, env });
      const { exitCode, stderr } = await run.ended;
      expect(exitCode).toBe(1);
      expect(stderr).toContain("the bearer token is not accepted");
    },
  );

  test(
    "the runner answers the message that waited for it, and a later one",
    needs(example.tool),
    async (context) => {
      const sessionId = newSession();
      await say(own.client, sessionId, "one");
      const run = await start(example, context, { sessionId, program: "runner" });
      const finished = async () =>
        (await eventsIn(sessionId, { expand: false })).filter(
          ({ eventType }) => eventType === "RUN_FINISHED",
        ).length;
      const messages = async () => {
        const listed = await own.client.unary(SessionService.method.listSessionMessages, {
          sessionId,
        });
        return listed.items.map(({ eventType, payload }) => [eventType, payload]);
      };
      // A message is stored after the events of its run, and a killed runner without a file keeps nothing.
      await expect.poll(finished, POLL).toBe(1);
      await expect.poll(messages, POLL).toHaveLength(2);
      await say(own.client, sessionId, "two \u{1F600}");
      await expect.poll(finished, POLL).toBe(2);
      await expect.poll(messages, POLL).toHaveLength(4);
      const typed = JSON.stringify({ messages: [{ id: "u1", role: "user", content: "three" }] });
      await say(own.client, sessionId, typed);
      await expect.poll(finished, POLL).toBe(3);
      await expect.poll(messages, POLL).toEqual([
        ["user", "one"],
        ["assistant", "You said: one"],
        ["user", "two \u{1F600}"],
        ["assistant", "You said: two \u{1F600}"],
        ["user", typed],
        ["assistant", "You said: three"],
      ]);
      run.kill();
      expect((await run.ended).stderr).toBe("");
    },
  );

  test(
    "the runner takes over the run of a lost runner, and ends when it is replaced",
    needs(example.tool),
    async (context) => {
      const sessionId = newSession();
      await say(own.client, sessionId, "one");
      await claim(own.client, { sessionId, runId: "lost" });
      const run = await start(example, context, { sessionId, program: "runner" });
      const types = async () =>
        (await eventsIn(sessionId, { expand: false })).map(({ eventType }) => eventType);
      const turn = ["RUN_STARTED", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"];
      await expect.poll(types, POLL).toEqual(["RUN_STARTED", "RUN_ERROR", ...turn]);
      await say(own.client, sessionId, "two");
      await expect.poll(types, POLL).toEqual(["RUN_STARTED", "RUN_ERROR", ...turn, ...turn]);
      await emit(own.client, sessionId, { type: "CUSTOM", name: "later", value: 1 }, 2n ** 62n);
      await say(own.client, sessionId, "three"); // Wakes its claim.
      const { exitCode, stderr } = await run.ended;
      expect(exitCode).toBe(1);
      expect(stderr).toMatch(/failed.?precondition/i);
    },
  );

  test(
    "the example survives lost answers and a cut connection",
    needs(example.tool),
    async (context) => {
      const proxy = await startTcpProxy(hostAndPort(service.grpcAddress));
      try {
        const run = await start(example, context, { address: `127.0.0.1:${proxy.port}` });
        run.say(EVENTS.slice(0, 200));
        await expect.poll(() => run.committed, POLL).toBeGreaterThanOrEqual(REFUSED);
        proxy.holdAnswers();
        const heard = run.committed;
        run.say(EVENTS.slice(200, 400));
        await expect.poll(() => headOf(run.sessionId), POLL).toBeGreaterThan(300n);
        proxy.cut();
        await expect.poll(() => run.opened.length, POLL).toBe(2);
        run.say(EVENTS.slice(400));
        run.hangUp();
        expect(await run.ended).toEqual(WELL);
        await expectOnceIn(run);
        // The service named a later number than the client knew, and the client continued there.
        expect(run.opened[1]).toBeGreaterThan(heard + 1n);
      } finally {
        await proxy.stop();
      }
    },
  );

  test(
    "the example survives a kill and a restart of the service",
    needs(example.tool),
    async (context) => {
      const run = await start(example, context);
      run.say(EVENTS.slice(0, 300));
      await expect.poll(() => run.committed, POLL).toBe(300n);
      // What it sends now reaches the service, which cannot commit it.
      await using held = await holdSession(sql, run.sessionId);
      run.say(EVENTS.slice(300, 400));
      await expect.poll(() => waitingForLocks(sql), POLL).toBeGreaterThan(0);
      await service.kill("SIGKILL");
      await expect.poll(() => waitingForLocks(sql), POLL).toBe(0);
      await held.release();

      service = await startAgain(service);
      await expect.poll(() => run.opened, POLL).toEqual([0n, 300n]);
      run.say(EVENTS.slice(400));
      run.hangUp();
      expect(await run.ended).toEqual(WELL);
      await expectOnceIn(run);
    },
  );
});

/** The number of the event that is not one: its delta is missing. */
const REFUSED = 150n;
const EVENTS: readonly string[] = eventsOf(600);

function eventsOf(tokens: number): readonly string[] {
  const messageId = "m1";
  const odd = [" the", "", " ", "\n", "\u{1F600}", "\u{D83D}", "\u{DE00}", '"\\', " ü"];
  const contents = Array.from({ length: tokens }, (_, at) => ({
    type: "TEXT_MESSAGE_CONTENT",
    messageId,
    delta: odd[at % odd.length],
    timestamp: 1_700_000_000_000 + at * 20,
  }));
  const events: object[] = [
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    ...contents,
    { type: "TEXT_MESSAGE_END", messageId },
    { type: "RUN_FINISHED", threadId: "t1", runId: "run-1" },
  ];
  events.splice(Number(REFUSED) - 1, 1, { type: "TEXT_MESSAGE_CONTENT", messageId });
  return events.map((event) => JSON.stringify(event));
}

/** What an example prints, one object a line. Numbers of 64 bits are strings, and zeros left out. */
const number = z.coerce.bigint().default(0n);
const lineSchema = z.object({
  opened: z.object({ lastClientSeq: number, producerEpoch: number }).optional(),
  committed: z.object({ lastClientSeq: number, lastSeq: number }).optional(),
  refused: z.object({ clientSeq: number, status: z.object({ code: z.number() }) }).optional(),
  eventCount: z.number().optional(),
  seq: number,
  payload: z.string().optional(),
});

const WELL = { exitCode: 0, stderr: "" };

class Run {
  readonly sessionId: string;
  readonly lines: z.infer<typeof lineSchema>[] = [];
  /** Resolves when all that it printed is here. */
  readonly ended: Promise<{ readonly exitCode: number | null; readonly stderr: string }>;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;

  constructor(sessionId: string, child: ChildProcessByStdio<Writable, Readable, Readable>) {
    this.sessionId = sessionId;
    this.#child = child;
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.lines.push(lineSchema.parse(JSON.parse(line)));
    });
    child.stdin.on("error", () => undefined); // It has ended: its exit code says why.
    this.ended = Promise.all([text(child.stderr), once(child, "close")]).then(([stderr]) => ({
      exitCode: child.exitCode,
      stderr,
    }));
  }

  say(payloads: readonly string[]): void {
    for (const payload of payloads) this.#child.stdin.write(`${payload}\n`);
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  hangUp(): void {
    this.#child.stdin.end();
  }

  /** Where the service said that the epoch stands, at each connection. */
  get opened(): readonly bigint[] {
    return this.lines.flatMap(({ opened }) => (opened === undefined ? [] : [opened.lastClientSeq]));
  }

  /** What its watch delivered. */
  get rows(): readonly z.infer<typeof lineSchema>[] {
    return this.lines.filter(({ eventCount }) => eventCount !== undefined);
  }

  get committed(): bigint {
    return this.lines.findLast(({ committed }) => committed)?.committed?.lastClientSeq ?? 0n;
  }
}

async function start(
  example: Example,
  { skip, onTestFinished }: TestContext,
  {
    address = service.grpcAddress,
    sessionId = newSession(),
    env = {},
    args: given = [address, sessionId],
    program = "example",
  }: Partial<Record<"address" | "sessionId", string>> & {
    readonly env?: Readonly<Record<string, string>>;
    readonly args?: readonly string[];
    readonly program?: Program;
  } = {},
): Promise<Run> {
  const { folder, generated } = example;
  if (!existsSync(join(ROOT, folder, generated))) {
    const advice = `there is no generated code: run ${folder}/generate.sh`;
    if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
    skip(advice);
  }
  const [command = "", ...args] = await example.prepare(program);
  const child = spawn(command, [...args, ...given], {
    cwd: join(ROOT, folder),
    env: { ...process.env, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  return new Run(sessionId, child);
}

/** The tables hold what was sent, once, in order and merged, and the example read the same. */
async function expectOnceIn(
  { sessionId, lines, rows: seen, committed }: Run,
  of = own,
): Promise<void> {
  const { listSessionMessages } = SessionService.method;
  const messages = await of.client.unary(listSessionMessages, { sessionId }, of.as);
  expect(messages.items.map(({ eventType, payload }) => [eventType, payload])).toEqual([
    ["user", "Go on."],
  ]);
  const accepted = EVENTS.filter((_, at) => BigInt(at + 1) !== REFUSED);
  const expanded = await eventsIn(sessionId, { expand: true, of });
  expect(expanded[0]).toMatchObject({ eventType: "RUN_STARTED", seq: 1n, runId: "run-1" });
  expect(expanded.slice(1).map(({ payload }) => JSON.parse(payload))).toEqual(
    accepted.map((payload) => JSON.parse(payload)),
  );
  expect(expanded.map(({ seq }) => seq)).toEqual(expanded.map((_, at) => BigInt(at + 1)));

  const rows = await eventsIn(sessionId, { expand: false, of });
  expect(rows.length).toBeLessThan(expanded.length / 4);
  expect(seen).toMatchObject(
    rows.map(({ seq, eventCount, payload }) => ({ seq, eventCount, payload })),
  );
  expect(committed).toBe(BigInt(EVENTS.length));
  const last = lines.findLast((line) => line.committed !== undefined)?.committed;
  expect(last?.lastSeq).toBe(BigInt(expanded.length));
  // At least once: the answer to it can be lost too, and then it comes again.
  const refused = lines.flatMap((line) => (line.refused === undefined ? [] : [line.refused]));
  expect(new Set(refused.map((one) => one.clientSeq))).toEqual(new Set([REFUSED]));
  expect(refused[0]?.status.code).toBe(3);
}

async function eventsIn(
  sessionId: string,
  { expand, of = own }: { readonly expand: boolean; readonly of?: Reader },
): Promise<readonly SessionEvent[]> {
  const request = { sessionId, pageSize: 1_000, expand };
  const { listSessionEvents } = SessionService.method;
  const { items, hasMore } = await of.client.unary(listSessionEvents, request, of.as);
  expect(hasMore).toBe(false);
  return items;
}

/** The number of the last event that is on disk. */
async function headOf(sessionId: string): Promise<bigint> {
  const request = { sessionId, pageSize: 1, descending: true, expand: true };
  const { items } = await own.client.unary(SessionService.method.listSessionEvents, request);
  return items[0]?.seq ?? 0n;
}

function hostAndPort(address: string): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(`http://${address}`);
  return { host: hostname, port: Number(port) };
}
