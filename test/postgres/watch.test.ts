/**
 * Two replicas on one PostgreSQL, writing the same sessions at the same time, while watchers follow
 * on both: quick ones, one that stands still until the writing is over, one that begins in the
 * middle, and one that leaves every few rows and comes back on the other replica. In between every
 * connection is cut. What each watcher got must be what the table holds after its cursor, row by
 * row: nothing lost, nothing twice, in order.
 *
 * Windows and pages are tiny, so watchers often leave the window. The replicas see each other's rows
 * only by the poll.
 */
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { Ingest } from "../../src/ingest/ingest.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { Live } from "../../src/live/live.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import { createReader, type LedgerReader } from "../../src/store/reader.ts";
import { headOf, lastSeqOf, type StoredRow, type StreamName } from "../../src/store/rows.ts";
import { ledgerWriter, newPush, newRow, useLedger } from "../support/ledger.ts";

const LIMITS = {
  ...LIVE_LIMITS,
  windowRowsMax: 8,
  pageRowsMax: 5,
  headPollIntervalMs: 50,
  readLimitMs: 2_000,
};
const STREAMS = ["messages", "events"] as const;
const PUSHES_A_WRITER = 150;

interface Replica {
  readonly database: Database;
  readonly reader: LedgerReader;
  readonly live: Live;
  readonly ingest: Ingest;
}

const ledger = await useLedger();
let replicas: readonly [Replica, Replica];

beforeAll(async () => {
  replicas = [await startReplica(ledger.url), await startReplica(ledger.url)];
});

afterAll(async () => {
  for (const { live, ingest, database } of replicas) {
    await live.stop();
    await ingest.stop();
    await database.stop();
  }
});

async function startReplica(url: string): Promise<Replica> {
  const database = createDatabase({
    url: () => url,
    connectionsMax: 6,
    statementTimeoutMs: 5_000,
    lockTimeoutMs: 500,
  });
  await database.start();
  const reader = createReader(database);
  const log = createLogTo({ write: () => undefined }, "silent");
  const live = new Live({ reader, clock: systemClock, log }, LIMITS);
  const ingest = new Ingest(
    {
      writer: ledgerWriter(database),
      publish: (rows) => live.onCommit(rows),
      clock: systemClock,
      metrics: createMetrics(),
    },
    {
      batch: { rowsMax: 64, bytesMax: 1_000_000 },
      queueRowsMax: 10_000,
      queueBytesMax: 10_000_000,
    },
  );
  return { database, reader, live, ingest };
}

/** Follows from a cursor until `leave`; `roams` to the other replica every few rows. */
class Follower {
  readonly got: StoredRow[] = [];
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly after: bigint;
  readonly #roams: boolean;
  readonly #reached = new Map<bigint, () => void>();
  #leave = new AbortController();
  #hasLeft = false;
  #still: PromiseWithResolvers<void> | undefined;

  constructor(follow: {
    readonly sessionId: string;
    readonly stream: StreamName;
    readonly after?: bigint;
    readonly roams?: boolean;
  }) {
    this.sessionId = follow.sessionId;
    this.stream = follow.stream;
    this.after = follow.after ?? 0n;
    this.#roams = follow.roams ?? false;
  }

  standStill(): void {
    this.#still = Promise.withResolvers();
  }

  goOn(): void {
    this.#still?.resolve();
    this.#still = undefined;
  }

  leave(): void {
    this.#hasLeft = true; // It may roam at this moment, and its signal takes no second reason.
    this.#leave.abort("left");
  }

  get cursor(): bigint {
    const last = this.got.at(-1);
    return last === undefined ? this.after : lastSeqOf(last);
  }

  /** Resolves when the cursor has got to `seq`. */
  reached(seq: bigint): Promise<void> {
    if (this.cursor >= seq) return Promise.resolve();
    return new Promise((resolve) => this.#reached.set(seq, resolve));
  }

  /** Ends after `leave`; a refusal because of the database is tried again, as clients do. */
  async run(at: 0 | 1): Promise<void> {
    for (let replica = at; !this.#hasLeft; replica = replica === 0 ? 1 : 0) {
      await this.#follow(replicas[replica]).catch((error: unknown) => {
        if (!isUnavailable(error)) throw error;
      });
      if (this.#leave.signal.reason === "roam") this.#leave = new AbortController();
    }
  }

  async #follow({ live }: Replica): Promise<void> {
    const { sessionId, stream, cursor } = this;
    const watcher = await live.attach({ sessionId, stream, signal: this.#leave.signal });
    let rows = 0;
    for await (const delivery of watcher.follow({ after: cursor, until: undefined })) {
      if (delivery.kind !== "rows") continue;
      this.got.push(...delivery.rows);
      rows += delivery.rows.length;
      for (const [seq, resolve] of this.#reached) if (this.cursor >= seq) resolve();
      if (this.#roams && rows >= 7) this.#leave.abort("roam");
      await this.#still?.promise;
    }
  }
}

function isUnavailable(error: unknown): boolean {
  return error instanceof ServiceError && error.reason === "DATABASE_UNAVAILABLE";
}

async function write(replica: Replica, sessionIds: readonly string[]): Promise<void> {
  for (let count = 0; count < PUSHES_A_WRITER; count += 1) {
    const pushing = sessionIds.map((sessionId) => {
      const stream = STREAMS[count % 2] ?? "events";
      const eventCount = stream === "messages" ? 1 : 1 + (count % 5);
      const row = newRow({ eventCount, sender: stream === "messages" ? '{"id":"u"}' : undefined });
      return replica.ingest.push(newPush(sessionId, { stream, rows: [row] }), () => false);
    });
    // Without a key a cut connection leaves the outcome open; the table knows.
    await Promise.allSettled(pushing);
  }
}

/** Every connection to the database but this one. */
async function cutConnections(): Promise<void> {
  await ledger.database.run(sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()`);
}

async function tableOf(follower: Follower): Promise<readonly StoredRow[]> {
  const { stream, sessionId, after } = follower;
  const all = { rowsMax: 100_000, bytesMax: 100_000_000 };
  return replicas[0].reader.pageAfter({ stream, sessionId, after, ...all });
}

test("every watcher gets every row of the table once and in order", async () => {
  const sessionIds = ["a", "b"];
  const followers: Follower[] = [];
  const running: Promise<void>[] = [];
  const follow = (at: 0 | 1, how: ConstructorParameters<typeof Follower>[0]): Follower => {
    const follower = new Follower(how);
    followers.push(follower);
    running.push(follower.run(at));
    return follower;
  };
  const everywhere = (how: { readonly roams?: boolean } = {}) =>
    ([0, 1] as const).flatMap((at) =>
      sessionIds.flatMap((sessionId) =>
        STREAMS.map((stream) => follow(at, { sessionId, stream, ...how })),
      ),
    );
  everywhere(); // Before the sessions are there.
  everywhere({ roams: true });
  const slow = everywhere();
  for (const follower of slow) follower.standStill();

  const writing = Promise.all(replicas.map((replica) => write(replica, sessionIds)));
  const [first] = followers;
  await first?.reached(40n);
  for (const sessionId of sessionIds) {
    for (const stream of STREAMS) {
      const { reader } = replicas[1];
      const after = await reader.resolveCursor({ sessionId, stream, afterSeq: 20n });
      follow(0, { sessionId, stream, after });
      follow(1, { sessionId, stream, after });
    }
  }
  await cutConnections();
  await first?.reached(80n);
  await cutConnections();
  await writing;
  for (const follower of slow) follower.goOn();

  const heads = await replicas[0].reader.heads(sessionIds);
  for (const follower of followers) {
    const head = heads.get(follower.sessionId);
    await follower.reached(head === undefined ? 1n : headOf(head, follower.stream));
    follower.leave();
  }
  await Promise.all(running);
  for (const follower of followers) {
    const table = await tableOf(follower);
    expect(table.length).toBeGreaterThan(50);
    expect(follower.got).toEqual(table);
  }
  for (const { live } of replicas)
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
});
