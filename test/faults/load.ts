/**
 * All the clients of a run, at work at once.
 *
 *   hot sessions     many unary writers, keyed and unkeyed, by both replicas
 *   stream sessions  a raw stream writer each, and unary writers of messages and events beside it
 *   agent sessions   the SDK's session writer, which derives its messages
 *   turned sessions  a person who writes, and runners that claim turns and take over from each other
 *   cancelled sessions  a producer whose runs are cancelled, and which often does not end them
 *   quiet sessions   one push at a time, and none before everybody has seen it
 *   brim sessions    a few rows below the most that a session may hold, and more pushes at once than
 *                    have room
 *
 *   readers          of each session from its beginning to its end, one of them slow; and many that
 *                    go in anywhere: by pages, watches and server-sent events; and the feeds
 */
import { setTimeout as delay } from "node:timers/promises";
import type postgres from "postgres";
import { createLedgerClient, type LedgerClient } from "@session-ledger/runner/internal/client";
import { History, PUSH_KINDS, type Reader } from "../support/history.ts";
import { watch } from "../support/history-clients.ts";
import type { Random } from "../support/random.ts";
import { byTurns } from "../support/replicas.ts";
import type { StreamWriter } from "../support/stream-clients.ts";
import { Cancelled, cancelRuns } from "./cancellers.ts";
import { FeedReader } from "./feed-readers.ts";
import { type Lockstep, watchQuietly, writeQuietly } from "./lockstep.ts";
import { BY, type Finals, PassReader, type Target, type Ways } from "./passes.ts";
import type { Progress } from "./progress.ts";
import { newStreamWriter, WriterRecords, writeSession, writeStream } from "./stream-writers.ts";
import { runTurns, Turned } from "./turn-runners.ts";
import { Heads, write, type WriterParts } from "./unary-writers.ts";
import type { Weather } from "./weather.ts";

const LOAD = {
  hotSessions: 3,
  streamSessions: 4,
  agentSessions: 2,
  quietSessions: 2,
  turnedSessions: 2,
  turnRunners: 3,
  cancelledSessions: 4,
  keyedWriters: 5,
  unkeyedWriters: 4,
  besideWriters: 2,
  brimSessions: 60,
  brimWriters: 3,
  passReaders: 9,
} as const;
type Counts = Readonly<Record<keyof typeof LOAD, number>>;
/** Every kind of client, on fewer sessions; its writers pause for longer. */
const LOAD_SMALL = {
  streamSessions: 2,
  agentSessions: 1,
  quietSessions: 1,
  turnedSessions: 1,
  cancelledSessions: 2,
  keyedWriters: 3,
  unkeyedWriters: 2,
  passReaders: 6,
} as const satisfies Partial<Counts>;
const PAUSES_SMALL = 4;
const LOAD_THAT_LOSES = {
  streamSessions: 0,
  agentSessions: 0,
  quietSessions: 0,
  turnedSessions: 0,
  cancelledSessions: 0,
} as const;
const PACE_MS = 25;
const LOOK_MS = 20;
/** Until the next brim session: the last is reached after half a minute, and then all are full. */
const BRIM_PACE_MS = 500;
/** One row each: the slow reader falls behind every window. */
const SLOW_ROW_MS = 40;
/** The service's default, and how many rows a brim session has room for. */
const SESSION_ROWS_MAX = 2_000_000;
const BRIM_ROOM = 4;
const BRIM_PUSHES = 2 * BRIM_ROOM;
/** After the last fault: how long no writer may make progress, and then how long the readers may need. */
export const REST_LIMIT_MS = 60_000;

export class Load {
  readonly history = new History();
  readonly streamWriters: readonly StreamWriter[];
  readonly writerRecords: readonly WriterRecords[];
  readonly turned: readonly Turned[];
  readonly cancelled: readonly Cancelled[];
  readonly passReaders: readonly PassReader[];
  readonly feedReaders: readonly FeedReader[];
  readonly sessionIds: readonly string[];
  /** Sessions that only the witness reads. */
  readonly brimIds = names("brim", LOAD.brimSessions);
  /** Errors that no writer may get, and rows that were not delivered. */
  readonly failures: string[] = [];
  readonly #clients: readonly LedgerClient[];
  readonly #ended = new AbortController();
  readonly #progress: Progress;
  /** The writers that have not ended. */
  readonly #writing = new Map<string, Promise<unknown>>();
  readonly #watching: Promise<unknown>[] = [];
  readonly losesRows: boolean;
  #isOver = false;
  #isSlow = true;

  constructor(parts: {
    readonly ways: Ways;
    readonly random: Random;
    readonly weather: Weather;
    readonly progress: Progress;
    /** Rows get lost: only clients that handle it, unary writers and watchers that begin again. */
    readonly losesRows: boolean;
    /** A small part of the load, which leaves room on two cores. */
    readonly isSmall: boolean;
  }) {
    const { ways, random, weather, progress, losesRows, isSmall } = parts;
    const pauses = isSmall ? PAUSES_SMALL : 1;
    this.losesRows = losesRows;
    this.#progress = progress;
    const count: Counts = {
      ...LOAD,
      ...(isSmall && LOAD_SMALL),
      ...(losesRows && LOAD_THAT_LOSES),
    };
    this.#clients = ways.grpc.map((address) =>
      createLedgerClient({ address, ownConnection: true }),
    );
    const isOver = (): boolean => this.#isOver;
    const { history } = this;
    const heads = new Heads();
    const writing: WriterParts = { history, clients: this.#clients, progress, heads, isOver };

    const hot = names("hot", LOAD.hotSessions);
    this.streamWriters = names("stream", count.streamSessions).map((sessionId) =>
      newStreamWriter(sessionId, { ways: ways.grpc, random }),
    );
    const streamed = this.streamWriters.map(({ sessionId }) => sessionId);
    this.writerRecords = names("agent", count.agentSessions).map(
      (sessionId) => new WriterRecords(sessionId),
    );
    this.turned = names("turned", count.turnedSessions).map((sessionId) => new Turned(sessionId));
    this.cancelled = names("cancelled", count.cancelledSessions).map((id) => new Cancelled(id));
    const turned = this.turned.map(({ sessionId }) => sessionId);
    const quiet = names("quiet", count.quietSessions).map((sessionId) =>
      watchQuietly(writing, sessionId, this.#ended.signal),
    );
    this.sessionIds = [
      ...hot,
      ...streamed,
      ...this.writerRecords.map(({ sessionId }) => sessionId),
      ...turned,
      ...this.cancelled.map(({ sessionId }) => sessionId),
      ...quiet.map(({ sessionId }) => sessionId),
    ];

    this.#watchAll([...hot, ...streamed, ...turned], quiet);
    const own = (): { readonly weather: Weather; readonly random: Random } => ({
      weather,
      random: random.fork(),
    });
    this.#write([
      ...this.#unaryWriters(writing, { hot, streamed, turned, random, count, pauses }),
      ...this.turned.flatMap((one) =>
        Array.from({ length: LOAD.turnRunners }, (_, at) => {
          const name = `runner ${at} of ${one.sessionId}`;
          const runner = { name, turned: one, random: random.fork() };
          return { name, ended: runTurns({ clients: this.#clients, progress, isOver }, runner) };
        }),
      ),
      ...this.cancelled.map((one) => {
        const name = `canceller of ${one.sessionId}`;
        const canceller = { name, cancelled: one, random: random.fork() };
        return { name, ended: cancelRuns({ clients: this.#clients, progress, isOver }, canceller) };
      }),
      ...this.streamWriters.map((writer) => ({
        name: `stream writer of ${writer.sessionId}`,
        ended: writeStream({ progress, isOver, pauses }, writer, random.fork()),
      })),
      ...this.writerRecords.map((writerRecords, at) => ({
        name: `session writer of ${writerRecords.sessionId}`,
        ended: writeSession({ progress, isOver, pauses }, writerRecords, {
          address: ways.grpc[at % ways.grpc.length] ?? "",
          random: random.fork(),
        }),
      })),
      ...quiet.map((lockstep) => ({
        name: `quiet writer of ${lockstep.sessionId}`,
        ended: writeQuietly(writing, lockstep, own()),
      })),
    ]);
    this.feedReaders = (["messages", "events"] as const).map(
      (stream) => new FeedReader(stream, { addresses: ways.grpc, random: random.fork() }),
    );
    this.passReaders = losesRows
      ? []
      : this.#startPassReaders(ways, { heads, random, count: count.passReaders });
  }

  /** Before the load: adds to the counters nearly as many rows as a session may have, without any rows. */
  static async fillBrims(sql: postgres.Sql): Promise<void> {
    for (const id of names("brim", LOAD.brimSessions)) {
      await sql`insert into sessions (id, created_at, updated_at, row_count)
        values (${id}, now(), now(), ${SESSION_ROWS_MAX - BRIM_ROOM}) on conflict do nothing`;
    }
  }

  /** The session of the present pushes, and the next one. */
  brimsAhead(): readonly string[] {
    const pushed = this.history.sessionIds();
    const at = this.brimIds.findLastIndex((id) => pushed.has(id));
    return this.brimIds.slice(Math.max(at, 0), at + 2);
  }

  /** Starts nothing new; resolves when all begun work has ended, or nothing gets through for `silenceMs`. */
  async stopWriting(silenceMs: number): Promise<void> {
    this.#isOver = true;
    this.#isSlow = false;
    const beganMs = performance.now();
    const sinceMs = (): number => Math.max(beganMs, this.#progress.newestMs);
    while (this.#writing.size > 0 && performance.now() - sinceMs() < silenceMs)
      await delay(LOOK_MS);
    this.#progress.hasEnded = true;
    for (const name of this.#writing.keys()) {
      this.failures.push(`${name} did not end, and nothing got through for ${silenceMs} ms`);
    }
  }

  /** Resolves when every reader has reached the end of its session, or its time is over. */
  async finishReading(finals: Finals, limitMs: number): Promise<void> {
    const { readers } = this.history;
    const late = setTimeout(() => {
      for (const reader of readers) {
        const head = finals.get(reader.sessionId)?.[reader.stream] ?? 0n;
        const isAtEnd = reader.cursor >= head || reader.wasToldOfLoss;
        if (!isAtEnd) reader.failed(new Error(`stands at ${reader.cursor} of ${head}`));
      }
      for (const reader of [...this.passReaders, ...this.feedReaders]) reader.giveUp();
    }, limitMs);
    for (const reader of this.feedReaders) reader.finish();
    for (const reader of this.passReaders) reader.finish(finals);
    for (const reader of readers) {
      await reader.until(finals.get(reader.sessionId)?.[reader.stream] ?? 0n);
    }
    await Promise.all([...this.passReaders, ...this.feedReaders].map(({ ended }) => ended));
    clearTimeout(late);
    this.#ended.abort();
    await Promise.all(this.#watching);
    for (const reader of [...this.passReaders, ...this.feedReaders]) reader.close();
    for (const client of this.#clients) client.close();
    await Promise.allSettled(this.streamWriters.map((writer) => writer.close()));
  }

  #write(writers: readonly OpenWriter[]): void {
    for (const { name, ended } of writers) {
      const over = ended
        .catch((error: unknown) => this.failures.push(`${name}: ${textOf(error)}`))
        .finally(() => this.#writing.delete(name));
      this.#writing.set(name, over);
    }
  }

  #unaryWriters(
    writing: WriterParts,
    of: {
      readonly hot: readonly string[];
      readonly streamed: readonly string[];
      readonly turned: readonly string[];
      readonly random: Random;
      readonly count: Counts;
      readonly pauses: number;
    },
  ): readonly OpenWriter[] {
    const { hot, streamed, turned, count, pauses } = of;
    const writers = (name: string, length: number, keyed: boolean) =>
      Array.from({ length }, (_, at) => ({ name: `${name} writer ${at}`, keyed }));
    const many = [
      ...writers("keyed", count.keyedWriters, true),
      ...writers("unkeyed", count.unkeyedWriters, false),
    ].map((one) => ({ ...one, sessionIds: hot, kinds: PUSH_KINDS }));
    const besideCount = streamed.length > 0 ? count.besideWriters : 0;
    const beside = writers("beside", besideCount, true).map((one) => ({
      ...one,
      sessionIds: streamed,
      kinds: ["message", "event"] as const,
    }));
    const people = turned.map((sessionId, at) => ({
      name: `person ${at}`,
      keyed: true,
      sessionIds: [sessionId],
      kinds: ["message"] as const,
    }));
    const brim = writers("brim", this.losesRows ? 0 : LOAD.brimWriters, false).map((one) => ({
      ...one,
      sessionIds: this.brimIds,
      // Pushes of one row and of three: where one has no room another still has.
      kinds: ["message", "event", "grouped"] as const,
      paceMs: BRIM_PACE_MS,
      atOnce: BRIM_PUSHES,
    }));
    return [
      ...[...many, ...beside, ...people].map((one) => ({ ...one, paceMs: PACE_MS * pauses })),
      ...brim,
    ].map((one) => ({
      name: one.name,
      ended: write(writing, { ...one, random: of.random.fork() }),
    }));
  }

  /** From the beginning to the end, by the first replica that answers. */
  #watchAll(sessionIds: readonly string[], quiet: readonly Lockstep[]): void {
    const { signal } = this.#ended;
    const { history } = this;
    const follow = (reader: Reader, at: number, rest?: () => Promise<unknown>): void => {
      const { name, stream, sessionId } = reader;
      const again = (): Reader => history.reader(name, { stream, sessionId });
      const options = { ...(this.losesRows ? { again } : {}), ...(rest && { rest }) };
      this.#watching.push(watch(byTurns(this.#clients, at), reader, signal, options));
    };
    for (const [at, sessionId] of sessionIds.entries()) {
      for (const stream of ["messages", "events"] as const) {
        follow(history.reader("watcher", { stream, sessionId }), at);
      }
    }
    const [first = ""] = sessionIds;
    const slow = history.reader("slow watcher", { stream: "events", sessionId: first });
    follow(slow, 1, async () => (this.#isSlow ? delay(SLOW_ROW_MS) : undefined));
    this.#watching.push(...quiet.map(({ watching }) => watching));
  }

  #startPassReaders(
    ways: Ways,
    of: { readonly heads: Heads; readonly random: Random; readonly count: number },
  ): readonly PassReader[] {
    const { heads, random, count } = of;
    const targets = this.sessionIds.flatMap((sessionId) =>
      (["messages", "events"] as const).map((stream): Target & { readonly isRaw: boolean } => {
        const writer = this.streamWriters.find((one) => one.sessionId === sessionId);
        const inside = (own: Random): bigint => BigInt(own.below(Number(writer?.head ?? 0n) + 1));
        const known = (own: Random): bigint => heads.pick({ sessionId, stream }, own);
        const isStreamed = stream === "events" && writer !== undefined;
        return {
          sessionId,
          stream,
          cursor: isStreamed ? inside : known,
          // An event merged by its sender arrives as one, and SSE does not have its event_count.
          isRaw: stream === "messages" || !sessionId.startsWith("hot"),
        };
      }),
    );
    return Array.from({ length: count }, (_, at) => {
      const by = BY[at % BY.length] ?? "watch";
      const own = targets.filter(({ isRaw }) => by !== "sse" || isRaw);
      return new PassReader({ by, ways, random: random.fork(), targets: own });
    });
  }
}

interface OpenWriter {
  readonly name: string;
  readonly ended: Promise<void>;
}

function names(of: string, count: number): readonly string[] {
  return Array.from({ length: count }, (_, at) => `${of}-${at}`);
}

function textOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
