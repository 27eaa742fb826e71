/**
 * Push streams over two services that share one PostgreSQL. A writer that reconnects to the other
 * service learns exactly what is committed, and events that the first service still holds are not
 * stored after that. Of two writers of a session one wins, and the other gets the reason. SEED repeats
 * the drawn moments and sizes.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { Replicas } from "../support/replicas.ts";
import { startService } from "../support/service-process.ts";
import {
  readStoredSessions,
  streamProblemsOf,
  type WriterRecord,
} from "../support/stream-check.ts";
import { expectationOf, StreamSource, StreamWriter } from "../support/stream-clients.ts";
import type { StreamEvent } from "../support/streams.ts";
import { startTcpProxy } from "../support/broken-network.ts";

const LOCK_TIMEOUT_MS = 400;
const LOCKS = { interval: 2 };

const seed = seedOfRun();
const random = new Random(seed);
process.stdout.write(`push-stream-replicas: SEED=${seed}\n`);

let database: OpenDatabase;
let replicas: Replicas;

beforeAll(async () => {
  database = await openDatabase();
  const url = new URL(database.url);
  url.searchParams.set("lock_timeout", String(LOCK_TIMEOUT_MS));
  replicas = await Replicas.start(url.href);
});
afterAll(async () => {
  await replicas.stop();
  await database.stop();
  await cleanUp();
});

async function storedOf(sessionIds: readonly string[]) {
  const { address } = { address: replicas.at(0).grpcAddress };
  return readStoredSessions({ sql: database.sql, address }, sessionIds);
}

/** What is wrong with a session that these have written, in the order in which they opened. */
async function problemsAfter(...writers: readonly StreamWriter[]): Promise<readonly string[]> {
  const sessionId = writers[0]?.sessionId ?? "";
  const session = (await storedOf([sessionId])).get(sessionId);
  const records = writers.map((writer) => writer.record(expectationOf));
  return session === undefined ? ["nothing is there"] : streamProblemsOf(records, session);
}

async function waits(statements: number): Promise<void> {
  const waiting = (): Promise<number> => waitingForLocks(database.sql);
  await expect.poll(waiting, LOCKS).toBe(statements);
}

test("an event is stored once when its old stream pushes while the new one opens", async () => {
  const writer = new StreamWriter({
    sessionId: "side-by-side",
    ways: replicas.addresses,
    random: random.fork(),
  });
  const source = new StreamSource(random.fork());
  writer.queue(source.sentence(10));
  await writer.until(() => writer.progress === writer.events.length);
  for (let turn = 0; turn < 6; turn += 1) {
    await using held = await holdSession(database.sql, writer.sessionId);
    writer.queue(source.sentence(10));
    await waits(1);
    writer.leave();
    await waits(2);
    await held.release();
    await writer.until(() => writer.progress === writer.events.length);
  }
  await writer.finish();
  expect(await problemsAfter(writer)).toEqual([]);
});

test("a commit whose answer is lost between PostgreSQL and the service is not repeated", async () => {
  const { sql } = database;
  const url = new URL(database.url);
  const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.port = String(proxy.port);
  // Long enough to keep the answers back while a push waits.
  url.searchParams.set("lock_timeout", "2500");
  const service = await startService({ databaseUrl: url.href });
  try {
    const ways = [service.grpcAddress];
    const writer = new StreamWriter({ sessionId: "unheard", ways, random: random.fork() });
    const counter = async (): Promise<unknown> =>
      (await sql`select event_seq from sessions where id = ${writer.sessionId}`)[0]?.["event_seq"];
    const source = new StreamSource(random.fork());
    for (let turn = 0; turn < 4; turn += 1) {
      writer.queue(source.sentence(20));
      await writer.until(() => writer.progress === writer.events.length);
      const before = await counter();
      await using held = await holdSession(sql, writer.sessionId);
      writer.queue(source.sentence(20));
      await waits(1);
      proxy.holdAnswers();
      await held.release();
      await expect.poll(counter, LOCKS).not.toBe(before);
      proxy.cut();
    }
    await writer.finish();
    expect(writer.breaks).toEqual(["OK"]);
    expect(await problemsAfter(writer)).toEqual([]);
  } finally {
    await service.stop();
    await proxy.stop();
  }
});

describe("a session that an idle transaction locks", () => {
  test("delays only its own stream, which then gets its answers", async () => {
    const ways = replicas.addresses.slice(0, 1);
    const [held, free] = ["held-stream", "free-stream"].map(
      (sessionId) => new StreamWriter({ sessionId, ways, random: random.fork() }),
    );
    if (held === undefined || free === undefined) throw new Error("there are two");
    const source = new StreamSource(random.fork());
    const through = (writer: StreamWriter): Promise<void> => {
      writer.queue(source.sentence(5));
      return writer.until(() => writer.progress === writer.events.length);
    };
    await Promise.all([through(held), through(free)]);
    const silent = await holdSession(database.sql, held.sessionId);
    try {
      const before = held.progress;
      const waiting = through(held);
      const startMs = performance.now();
      // Longer than a statement waits for a lock, so that it has been tried again.
      while (performance.now() - startMs < LOCK_TIMEOUT_MS * 1.5) await through(free);
      expect(held.progress).toBe(before);
      await silent.release();
      await waiting;
    } finally {
      await silent.release();
    }
    expect(held.breaks).toEqual([]);
    await Promise.all([held.finish(), free.finish()]);
    expect(await problemsAfter(held)).toEqual([]);
    expect(await problemsAfter(free)).toEqual([]);
  });
});

describe("writers that compete for a session", () => {
  const FIGHTERS = 6;

  /** No two say the same. */
  function* wordsOf(name: string): Generator<StreamEvent, never> {
    for (let at = 0; ; at += 1) {
      const isWord = at % 12 < 10;
      const event = isWord
        ? { type: "TEXT_MESSAGE_CONTENT", messageId: name, delta: `${at} ` }
        : { type: "CUSTOM", name, value: at };
      yield { eventType: event.type, payload: JSON.stringify(event) };
    }
  }

  class Fighter {
    readonly writer: StreamWriter;
    /** What the service ended it with. */
    readonly lost: Promise<unknown>;
    #isOver = false;
    readonly #writing: Promise<void>;

    constructor(
      sessionId: string,
      { name, epoch, ways }: { name: string; epoch: bigint; ways: readonly string[] },
    ) {
      this.writer = new StreamWriter({
        sessionId,
        ways,
        epoch,
        random: random.fork(),
        maxAgeMs: 40,
      });
      this.lost = this.writer.failure();
      this.#writing = this.#write(wordsOf(name));
      this.#writing.catch(() => undefined); // A loss is reported by `lost`.
    }

    async #write(words: Iterator<StreamEvent, never>): Promise<void> {
      const { writer } = this;
      while (!this.#isOver) {
        writer.queue(Array.from({ length: 8 }, () => words.next().value));
        await writer.until(() => writer.events.length - writer.progress < 24);
      }
      await writer.finish();
    }

    async win(): Promise<void> {
      this.#isOver = true;
      await this.#writing;
    }
  }

  const LOSES = {
    higher: { code: "FAILED_PRECONDITION", reason: "STALE_EPOCH" },
    same: { code: "ABORTED", reason: "STREAM_REPLACED" },
  } as const;

  test.each(["higher", "same"] as const)(
    "with the %s epoch: who comes later wins, here or on the other service, and nothing of the loser is behind",
    async (kind) => {
      const sessionId = `fight-${kind}`;
      const fighters: Fighter[] = [];
      const losses: unknown[] = [];
      for (let at = 0; at < FIGHTERS; at += 1) {
        const before = fighters.at(-1);
        const ways = [replicas.at(random.below(2)).grpcAddress];
        const epoch = kind === "same" ? (before?.writer.epoch ?? 0n) : 0n;
        const fighter = new Fighter(sessionId, { name: `fighter ${at}`, epoch, ways });
        fighters.push(fighter);
        const far = 10 + random.below(40);
        await fighter.writer.until(() => fighter.writer.progress > far);
        losses.push(await before?.lost);
      }
      await fighters.at(-1)?.win();
      for (const lost of losses.slice(1)) expect(lost).toMatchObject(LOSES[kind]);
      const writers = fighters.map(({ writer }) => writer);
      expect(await problemsAfter(...writers)).toEqual([]);
      const epochs = writers.map(({ epoch }) => epoch);
      expect(epochs).toEqual(epochs.map((_, at) => (kind === "same" ? 1n : BigInt(at) + 1n)));
      await Promise.all(writers.map((writer) => writer.close()));
    },
  );

  test("a writer that returns after another one opened a higher epoch is refused", async () => {
    const ways = replicas.addresses;
    const first = new Fighter("fight-return", { name: "first", epoch: 0n, ways });
    await first.writer.until(() => first.writer.progress > 10);
    const second = new Fighter("fight-return", { name: "second", epoch: 7n, ways });
    first.writer.leave();
    await second.writer.until(() => second.writer.progress > 10);
    expect(await first.lost).toMatchObject(LOSES.higher);
    await second.win();
    expect(second.writer.epoch).toBe(7n);
    expect(await problemsAfter(first.writer, second.writer)).toEqual([]);
    await first.writer.close();
  });

  test("a unary push with a higher epoch takes the session and restarts the client numbers", async () => {
    const sessionId = "fight-unary";
    const [here = "", there = ""] = replicas.addresses;
    const first = new Fighter(sessionId, { name: "first", epoch: 0n, ways: [here] });
    await first.writer.until(() => first.writer.progress > 10);
    const client = new RpcClient(there);
    const [word] = wordsOf("unary");
    await client.unary(SessionService.method.pushSessionEvent, {
      sessionId,
      ...word,
      producerEpoch: 5n,
    });
    client.close();
    expect(await first.lost).toMatchObject(LOSES.higher);
    const second = new Fighter(sessionId, { name: "second", epoch: 5n, ways: [here] });
    await second.writer.until(() => second.writer.progress > 10);
    await second.win();
    await first.writer.close();
    const unary: WriterRecord = {
      ...first.writer.record(expectationOf),
      name: "the unary push",
      epoch: 4n,
      sent: word === undefined ? [] : [expectationOf(word)],
      acknowledged: [],
      isWhole: true,
    };
    const records = [first, second].map(({ writer }) => writer.record(expectationOf));
    const session = (await storedOf([sessionId])).get(sessionId);
    if (session === undefined) throw new Error("nothing is there");
    expect(streamProblemsOf(records.toSpliced(1, 0, unary), session)).toEqual([]);
  });
});
