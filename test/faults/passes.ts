/**
 * Readers that read the sessions again and again, each time from a random number: by pages, by a watch or
 * by server-sent events, of messages, rows or raw events. Each fault interrupts them; they continue on
 * the other replica after the last number they saw.
 */
import { setTimeout as delay } from "node:timers/promises";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { reasonOf } from "../support/history.ts";
import type { Random } from "../support/random.ts";
import { lastSeqOf, type Pass, type StoredRow } from "../support/stream-check.ts";
import { isBreak } from "../support/stream-clients.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { followSse, SseBroken } from "./sse.ts";

const { listSessionEvents, listSessionMessages, watchSessionEvents, watchSessionMessages } =
  SessionService.method;

/** The readable sessions and start numbers. */
export interface Target {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** A number that certainly exists, or 0. */
  readonly cursor: (random: Random) => bigint;
}

export const BY = ["pages", "watch", "sse"] as const;
export type By = (typeof BY)[number];

export interface OpenPass extends Pass {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly by: By;
  readonly seen: StoredRow[];
  upTo: bigint;
}

export interface Ways {
  readonly grpc: readonly string[];
  readonly http: readonly string[];
}

export type Finals = ReadonlyMap<string, Readonly<Record<StreamName, bigint>>>;

const PASS_EVENTS_MAX = [15, 150];
const PAGE_ROWS_MAX = 60;
/** The approximate number of rows that it stays in a watch. */
const STAYS_ROWS = 60;
const PAUSE_MS = 50;
/** Between two passes: every seen row is kept until the end. */
const REST_MS = 500;
const UNARY_LIMIT_MS = 5_000;
const CHANNEL = { "grpc.initial_reconnect_backoff_ms": 50, "grpc.max_reconnect_backoff_ms": 200 };

export class PassReader {
  readonly passes: OpenPass[] = [];
  breaks = 0;
  /** Errors that no reader may get. */
  failure: unknown;
  readonly ended: Promise<void>;
  readonly #by: By;
  readonly #ways: Ways;
  readonly #clients: readonly RpcClient[];
  readonly #random: Random;
  readonly #targets: readonly Target[];
  #turn = 0;
  #finals: Finals | undefined;
  #leave: () => void = () => undefined;

  constructor(options: {
    readonly by: By;
    readonly ways: Ways;
    readonly random: Random;
    readonly targets: readonly Target[];
  }) {
    this.#by = options.by;
    this.#ways = options.ways;
    this.#clients = options.ways.grpc.map((address) => new RpcClient(address, CHANNEL));
    this.#random = options.random;
    this.#targets = options.targets;
    this.ended = this.#run().catch((error: unknown) => {
      this.failure = error;
    });
  }

  /** The writers have ended: it reads to the end of a session once more, and ends. */
  finish(finals: Finals): void {
    this.#finals = finals;
    this.#leave();
  }

  /** Its time is over. */
  giveUp(): void {
    this.failure ??= new Error("did not come to its end");
    this.#leave();
  }

  close(): void {
    for (const client of this.#clients) client.close();
  }

  async #run(): Promise<void> {
    while (this.#finals === undefined) {
      await this.#pass(this.#random.pick(PASS_EVENTS_MAX));
      if (this.#finals === undefined) await delay(this.#random.below(REST_MS));
    }
    await this.#pass(Number.MAX_SAFE_INTEGER);
  }

  async #pass(eventsMax: number): Promise<void> {
    const { sessionId, stream, cursor } = this.#random.pick(this.#targets);
    // SSE of events is always of raw ones, and SSE of messages has nothing to expand.
    const expand = stream === "events" && (this.#by === "sse" || this.#random.oneIn(2));
    const after = cursor(this.#random);
    const name = `${this.#by} of ${sessionId} ${expand ? "raw events" : stream}`;
    const upTo = after + 1n + BigInt(this.#random.below(eventsMax));
    const pass: OpenPass = { name, by: this.#by, sessionId, stream, expand, after, seen: [], upTo };
    this.passes.push(pass);
    while (!this.#isThrough(pass) && this.failure === undefined) {
      try {
        await this.#read(pass);
      } catch (error) {
        const passes =
          error instanceof SseBroken ||
          isBreak(error) ||
          isLate(error) ||
          isNotThereYet(error, pass);
        if (!passes) throw error;
        this.breaks += 1;
        await delay(PAUSE_MS);
      }
    }
  }

  #isThrough(pass: OpenPass): boolean {
    const end = this.#finals?.get(pass.sessionId)?.[pass.stream];
    if (this.#finals !== undefined && pass.upTo > (end ?? 0n)) pass.upTo = end ?? 0n;
    return cursorOf(pass) >= pass.upTo;
  }

  async #read(pass: OpenPass): Promise<void> {
    this.#turn += 1;
    switch (pass.by) {
      case "pages":
        return this.#readPage(pass);
      case "watch":
        return this.#watch(pass);
      case "sse":
        return this.#follow(pass);
    }
  }

  get #client(): RpcClient {
    const client = this.#clients[this.#turn % this.#clients.length];
    if (client === undefined) throw new Error("there are no clients");
    return client;
  }

  async #readPage(pass: OpenPass): Promise<void> {
    const { sessionId, expand, stream } = pass;
    const pageSize = 1 + this.#random.below(PAGE_ROWS_MAX);
    const request = { sessionId, pageSize, afterSeq: cursorOf(pass) };
    const limit = { deadlineMs: UNARY_LIMIT_MS };
    const page =
      stream === "events"
        ? await this.#client.unary(listSessionEvents, { ...request, expand }, limit)
        : await this.#client.unary(listSessionMessages, request, limit);
    for (const row of page.items) pass.seen.push(seenOf(row));
    const isAtEnd = page.items.length === 0;
    if (!isAtEnd && page.nextAfterSeq !== cursorOf(pass)) {
      throw new Error(`next_after_seq is ${page.nextAfterSeq}, the last row's ${cursorOf(pass)}`);
    }
    if (isAtEnd) await delay(PAUSE_MS);
  }

  async #watch(pass: OpenPass): Promise<void> {
    const { sessionId, expand, stream } = pass;
    const request = { sessionId, afterSeq: cursorOf(pass) };
    const rows =
      stream === "events"
        ? this.#client.serverStream(watchSessionEvents, { ...request, expand })
        : this.#client.serverStream(watchSessionMessages, request);
    this.#leave = () => rows.cancel();
    for await (const row of rows) {
      pass.seen.push(seenOf(row));
      if (this.#isThrough(pass) || this.#random.oneIn(STAYS_ROWS)) return;
    }
    throw new SseBroken("the watch ended with OK");
  }

  async #follow(pass: OpenPass): Promise<void> {
    const address = this.#ways.http[this.#turn % this.#ways.http.length] ?? "";
    const leaving = new AbortController();
    this.#leave = () => leaving.abort();
    const request = { ...pass, after: cursorOf(pass), signal: leaving.signal };
    for await (const row of followSse(address, request)) {
      pass.seen.push(row);
      if (this.#isThrough(pass) || this.#random.oneIn(STAYS_ROWS)) return;
    }
  }
}

/** The deadline of a page, the only read with one: its replica may be suspended or cut off. */
function isLate(error: unknown): boolean {
  return error instanceof RpcFailure && error.code === "DEADLINE_EXCEEDED";
}

/** A session exists from its first push on, which may wait for the heal of a fault. */
function isNotThereYet(error: unknown, { after, seen }: OpenPass): boolean {
  return reasonOf(error) === "SESSION_NOT_FOUND" && after === 0n && seen.length === 0;
}

interface WireRow {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
}

function seenOf(row: WireRow | (WireRow & { readonly eventCount: number })): StoredRow {
  const { seq, eventType, payload } = row;
  return { seq, eventType, payload, eventCount: "eventCount" in row ? row.eventCount : 1 };
}

/** The cursor with which it continues. */
function cursorOf({ after, seen }: Pick<OpenPass, "after" | "seen">): bigint {
  const last = seen.at(-1);
  return last === undefined ? after : lastSeqOf(last);
}
