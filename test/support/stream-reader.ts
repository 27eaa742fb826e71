/**
 * A reader of sessions that are being written. It reads one of them again and again from a random raw
 * event on, as rows or expanded, by pages or by a watch, for a random length. In the middle it leaves,
 * and returns with the cursor of its last row.
 */
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { RpcClient } from "./grpc-client.ts";
import type { Random } from "./random.ts";
import { lastSeqOf, type Pass, type StoredRow } from "./stream-check.ts";
import { isBreak } from "./stream-conversation.ts";
import { pace } from "./eventually.ts";

const { listSessionEvents, watchSessionEvents } = SessionService.method;

export interface SessionRead {
  readonly sessionId: string;
  /** A number that certainly exists. */
  readonly head: bigint;
}

interface OpenPass extends Pass {
  readonly sessionId: string;
  readonly seen: StoredRow[];
  upTo: bigint;
}

const PASS_EVENTS_MAX = 150;
const PAGE_ROWS_MAX = 60;
/** The approximate number of rows that it stays in a watch. */
const STAYS_ROWS = 40;
const PAUSE_MS = 20;
/** A channel that has lost its service reconnects as soon as a writer does. */
const CHANNEL = { "grpc.initial_reconnect_backoff_ms": 50, "grpc.max_reconnect_backoff_ms": 100 };

export class StreamReader {
  readonly passes: OpenPass[] = [];
  readonly #clients: readonly RpcClient[];
  readonly #random: Random;
  readonly #sessions: readonly SessionRead[];
  readonly #ended: Promise<void>;
  #finals: ReadonlyMap<string, bigint> | undefined;
  #stopWaiting: () => void = () => undefined;

  constructor(options: {
    readonly ways: readonly string[];
    readonly random: Random;
    readonly sessions: readonly SessionRead[];
  }) {
    this.#clients = options.ways.map((address) => new RpcClient(address, CHANNEL));
    this.#random = options.random;
    this.#sessions = options.sessions;
    this.#ended = this.#run();
    this.#ended.catch(() => undefined); // The caller of its end gets the failure.
  }

  /** The writers have ended: resolves when it has read to the end of a session once more. */
  async finish(finals: ReadonlyMap<string, bigint>): Promise<void> {
    this.#finals = finals;
    this.#stopWaiting();
    await this.#ended;
    for (const client of this.#clients) client.close();
  }

  async #run(): Promise<void> {
    while (this.#finals === undefined) await this.#pass(PASS_EVENTS_MAX);
    await this.#pass(Number.MAX_SAFE_INTEGER);
  }

  async #pass(eventsMax: number): Promise<void> {
    const session = this.#random.pick(this.#sessions);
    const after = BigInt(this.#random.below(Number(session.head) + 1));
    const expand = this.#random.oneIn(2);
    const byPages = this.#random.oneIn(2);
    const name = `${byPages ? "pages" : "watch"} of ${expand ? "events" : "rows"}`;
    const upTo = after + 1n + BigInt(this.#random.below(eventsMax));
    const { sessionId } = session;
    const pass: OpenPass = { name, sessionId, expand, after, seen: [], upTo };
    this.passes.push(pass);
    while (!this.#isThrough(pass)) {
      try {
        await (byPages ? this.#readPage(pass) : this.#watch(pass));
      } catch (error) {
        if (!isBreak(error)) throw error;
        await pace(PAUSE_MS);
      }
    }
  }

  #isThrough(pass: OpenPass): boolean {
    const end = this.#finals?.get(pass.sessionId);
    if (end !== undefined && end < pass.upTo) pass.upTo = end;
    return cursorOf(pass) >= pass.upTo;
  }

  async #readPage(pass: OpenPass): Promise<void> {
    const { sessionId, expand } = pass;
    const pageSize = 1 + this.#random.below(PAGE_ROWS_MAX);
    const request = { sessionId, expand, pageSize, afterSeq: cursorOf(pass) };
    const page = await this.#random.pick(this.#clients).unary(listSessionEvents, request);
    pass.seen.push(...page.items);
    const isAtEnd = page.items.length === 0;
    if (!isAtEnd && page.nextAfterSeq !== cursorOf(pass)) {
      throw new Error(`next_after_seq is ${page.nextAfterSeq}, the last row's ${cursorOf(pass)}`);
    }
    if (isAtEnd) await pace(PAUSE_MS);
  }

  async #watch(pass: OpenPass): Promise<void> {
    const { sessionId, expand } = pass;
    const request = { sessionId, expand, afterSeq: cursorOf(pass) };
    const stream = this.#random.pick(this.#clients).serverStream(watchSessionEvents, request);
    this.#stopWaiting = () => stream.cancel();
    for await (const event of stream) {
      pass.seen.push(event);
      if (this.#isThrough(pass) || this.#random.oneIn(STAYS_ROWS)) return;
    }
    throw new Error("the watch ended with OK");
  }
}

/** The cursor with which it continues. */
function cursorOf({ after, seen }: OpenPass): bigint {
  const last = seen.at(-1);
  return last === undefined ? after : lastSeqOf(last);
}
