/**
 * Push streams keep every raw event exactly once under faults: 32 writers stream into a session each,
 * 20 readers follow the sessions from random raw events, and one part after the other gets a SIGKILL,
 * is stopped, or is cut off. At the end the expanded sessions are what was sent, every answer was true,
 * and no reader missed an event or saw one twice.
 *
 * The load lasts at least LOAD_SECONDS, and until each fault has happened once. SEED repeats the drawn
 * moments and sizes, but not the timing of the machine.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Compression } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { endProcess, runningPostmaster, withSql } from "../support/embedded-fixture.ts";
import { embeddedUrl } from "../support/history-check.ts";
import { eventually } from "../support/eventually.ts";
import { Random, seedOfRun } from "../support/random.ts";
import {
  lastSeqOf,
  passProblemsOf,
  readStoredSessions,
  type StoredSession,
  streamProblemsOf,
} from "../support/stream-check.ts";
import {
  expectationOf,
  StreamReader,
  StreamSource,
  StreamWriter,
} from "../support/stream-clients.ts";
import { startTcpProxy, type TcpProxy } from "../support/broken-network.ts";
import { useService } from "../support/use-service.ts";

const SECONDS = Number(process.env["LOAD_SECONDS"] ?? "1");
const WRITERS = 16;
const READERS = 10;
/** Events of all writers between two faults: at least this number, and up to the next one more. */
const UNDISTURBED_EVENTS = 200;
const BETWEEN_FAULTS_EVENTS = 500;
/** A writer that waits longer for an answer opens another connection. */
const SILENCE_MS = 1_500;
const FAR_BEHIND_EVENTS = 40;

const seed = seedOfRun();
const random = new Random(seed);
process.stdout.write(`push-stream-faults: SEED=${seed}\n`);

const { service } = useService({ embedded: true });
let proxy: TcpProxy;

beforeAll(async () => {
  const { hostname, port } = new URL(`tcp://${service.grpcAddress}`);
  proxy = await startTcpProxy({ host: hostname, port: Number(port) });
});
afterAll(() => proxy.stop());

async function killPostgres(): Promise<void> {
  endProcess(await runningPostmaster(service.dataDir));
}

/** The writers are there to see whether the fault is felt. */
type Fault = (writers: readonly StreamWriter[]) => Promise<void>;

const FAULTS: Readonly<Record<string, Fault>> = {
  "SIGKILL of the service": async () => {
    await service.kill("SIGKILL");
    await service.restart();
  },
  "SIGKILL of PostgreSQL": async () => {
    const before = restarts();
    await killPostgres();
    await eventually(() => expect(restarts()).toBe(before + 1));
  },
  "SIGKILL of both": async () => {
    const postmaster = await runningPostmaster(service.dataDir);
    await service.kill("SIGKILL");
    endProcess(postmaster);
    await service.restart();
  },
  "SIGTERM of the service": async () => {
    expect(await service.stop()).toBe(0);
    await service.restart();
  },
  "a reset of the network": async () => {
    proxy.cut();
  },
  "a black hole": async (writers) => {
    const before = countOf(writers, "SILENT");
    proxy.holdAnswers();
    await eventually(() =>
      expect(countOf(writers, "SILENT")).toBeGreaterThan(before + WRITERS / 4),
    );
    proxy.cut();
  },
};

function restarts(): number {
  return service.log.filter((line) => line.includes("embedded_postgres_restarted")).length;
}

function countOf(writers: readonly StreamWriter[], reason: string): number {
  return writers.flatMap(({ breaks }) => breaks).filter((one) => one === reason).length;
}

/** By turns: of those whom a cut of the network breaks, half come back by it. */
function waysTo(): readonly string[] {
  const byProxy = `127.0.0.1:${proxy.port}`;
  return [byProxy, byProxy, service.grpcAddress];
}

function newWriter(at: number): StreamWriter {
  const own = random.fork();
  return new StreamWriter({
    sessionId: `stream-${at}`,
    ways: waysTo(),
    random: own,
    compression: own.oneIn(4) ? Compression.OFF : Compression.ON,
    maxAgeMs: own.pick([0, 20, 100, 5_000]),
    maxTextBytes: own.pick([0, 0, 64, 65_536]),
    paceMs: own.pick([0, 5, 30]),
    silenceMs: SILENCE_MS,
  });
}

/** Streams one after the other, with little or much of them still on the way. */
async function write(writer: StreamWriter, isOver: () => boolean): Promise<void> {
  const own = random.fork();
  const source = new StreamSource(own);
  while (!isOver()) {
    writer.queue(source.next());
    const behind = own.below(FAR_BEHIND_EVENTS);
    await writer.until(() => writer.events.length - writer.progress <= behind);
  }
  await writer.finish();
}

async function strikeAll(writers: readonly StreamWriter[]): Promise<void> {
  const untilMs = performance.now() + SECONDS * 1_000;
  const written = (): number => writers.reduce((sum, { progress }) => sum + progress, 0);
  do {
    for (const fault of random.shuffled(Object.keys(FAULTS))) {
      const next = written() + UNDISTURBED_EVENTS + random.below(BETWEEN_FAULTS_EVENTS);
      // A slow machine may take long for so many; that none comes for half a minute is a failure.
      while (written() < next) {
        const before = written();
        await eventually(() => expect(written()).toBeGreaterThan(before));
      }
      await FAULTS[fault]?.(writers);
    }
  } while (performance.now() < untilMs);
}

async function readStored(sessionIds: readonly string[]) {
  return withSql(await embeddedUrl(service.dataDir), (sql) =>
    readStoredSessions({ sql, address: service.grpcAddress }, sessionIds),
  );
}

describe(`${WRITERS} writers and ${READERS} readers`, () => {
  let writers: readonly StreamWriter[];
  let readers: readonly StreamReader[];
  let stored: ReadonlyMap<string, StoredSession>;

  beforeAll(async () => {
    writers = Array.from({ length: WRITERS }, (_, at) => newWriter(at));
    let isOver = false;
    const writing = Promise.all(writers.map((writer) => write(writer, () => isOver)));
    const begun = Promise.all(writers.map((writer) => writer.until(() => writer.head > 0n)));
    await Promise.race([begun, writing]);
    readers = Array.from(
      { length: READERS },
      () => new StreamReader({ ways: waysTo(), random: random.fork(), sessions: writers }),
    );
    const striking = strikeAll(writers).finally(() => (isOver = true));
    await Promise.all([writing, striking]);
    stored = await readStored(writers.map(({ sessionId }) => sessionId));
    const finals = new Map([...stored].map(([sessionId, { counter }]) => [sessionId, counter]));
    await Promise.all(readers.map((reader) => reader.finish(finals)));
  });

  test("every raw event is there exactly once, in order, as it was sent and acknowledged", () => {
    const problems = writers.flatMap((writer) => {
      const session = stored.get(writer.sessionId);
      if (session === undefined) throw new Error(`nothing was read of ${writer.sessionId}`);
      return streamProblemsOf([writer.record(expectationOf)], session);
    });
    expect(problems).toEqual([]);
  });

  test("the faults are real: streams broke, and the service gave its reason at a stop", () => {
    for (const { breaks } of writers) expect(breaks.length).toBeGreaterThan(2);
    expect(countOf(writers, "SHUTTING_DOWN")).toBeGreaterThan(0);
    expect(countOf(writers, "SILENT")).toBeGreaterThan(0);
  });

  test("rows were merged", () => {
    const sessions = [...stored.values()];
    const rows = sessions.reduce((sum, session) => sum + session.rows.length, 0);
    const events = sessions.reduce((sum, session) => sum + session.events.length, 0);
    expect(rows).toBeLessThan(events);
  });

  test("no reader missed a raw event or saw one twice", () => {
    const passes = readers.flatMap((reader) => reader.passes);
    const problems = passes.flatMap((pass) => {
      const session = stored.get(pass.sessionId);
      if (session === undefined) throw new Error(`nothing was read of ${pass.sessionId}`);
      return passProblemsOf(pass, session);
    });
    expect(problems).toEqual([]);
  });

  test("readers began inside rows, by pages and by watches, of rows and of events", () => {
    const passes = readers.flatMap((reader) => reader.passes);
    const inside = passes.filter(({ sessionId, after }) =>
      stored.get(sessionId)?.rows.some((row) => row.seq < after && after < lastSeqOf(row)),
    );
    expect(new Set(passes.map(({ name }) => name)).size).toBe(4);
    expect(new Set(inside.map(({ expand }) => expand)).size).toBe(2);
  });
});

test("the events that a runner sent before it was killed inside a sentence are stored", async () => {
  const script = fileURLToPath(new URL("../support/stream-runner.ts", import.meta.url));
  const [sessionId, events] = ["killed-runner", 50];
  const args = [script, service.grpcAddress, sessionId, String(events)];
  const runner = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(createInterface({ input: runner.stdout }), "line");
  const sql = postgres(await embeddedUrl(service.dataDir), { max: 1 });
  const counter = async (): Promise<unknown> =>
    (await sql`select event_seq::int as seq from sessions where id = ${sessionId}`)[0]?.["seq"];
  // Its START at most: what is merged waits for more.
  expect(await counter()).toBeLessThan(events);
  runner.kill("SIGKILL");
  // At once, which is a unit test: the group itself would have been committed after five seconds.
  await expect.poll(counter).toBe(events);
  await sql.end();
  const sent = new StreamSource(new Random(1)).sentence(events).slice(0, events);
  const session = (await readStored([sessionId])).get(sessionId);
  expect(session?.events.map(({ payload }) => payload)).toEqual(sent.map(({ payload }) => payload));
});
