/** Every fault: its strike and its heal. A strike resolves when it has an effect, a heal when it is over. */
import { setTimeout as delay } from "node:timers/promises";
import { failureOf } from "../../src/store/failure.ts";
import { closed, openSql } from "./sql.ts";
import { Holding } from "../support/holding.ts";
import { holdSession } from "../support/ledger.ts";
import { Random } from "../support/random.ts";
import { askDatabase, type Cluster } from "./cluster.ts";
import type { Imported } from "./imported.ts";
import type { FaultKind, PlannedFault } from "./plan.ts";

export interface Struck {
  readonly cluster: Cluster;
  /** Sessions with writers. */
  readonly sessionIds: readonly string[];
  /** Nearly full sessions that are being filled now, or next. */
  readonly brimsAhead: () => readonly string[];
  readonly imported: Imported;
}

export type Heal = () => Promise<void>;

type Strike = (struck: Struck, fault: PlannedFault) => Promise<Heal>;

const HOUR_MS = 3_600_000;
const JUMP_HOURS_MAX = 30;
/** The delay of each flush of the log; PostgreSQL allows no more. */
const SLOW_FLUSH_MICROS = 100_000;
/** More memory than a replica may take, if no limit counts it; each is a little less than the largest. */
const BODIES = 120;
const BODY_BYTES = 4_194_303;
const BODIES_LIMIT_MS = 30_000;
/** While one holds a session the other waits for it, and so comes between two statements of a batch. */
const BRIM_LOCKERS = 2;
/** Shorter and longer than the 500 ms that a commit of the service waits for a lock. */
const BRIM_SHORT_MS_MAX = 200;
const BRIM_LONG_MS = 700;
const BRIM_PAUSE_MS = 100;

export const STRIKES: Readonly<Record<FaultKind, Strike>> = {
  kill_replica: async ({ cluster }, { replica }) => {
    await cluster.replica(replica).end("SIGKILL");
    return () => cluster.replica(replica).start();
  },
  restart_replica: async ({ cluster }, { replica }) => {
    const exitCode = await cluster.replica(replica).end("SIGTERM");
    return async () => {
      await cluster.replica(replica).start();
      if (exitCode !== 0)
        throw new Error(`replica ${replica} was stopped, and ended with ${exitCode}`);
    };
  },
  kill_worker: async ({ cluster }, { replica, draw }) => {
    await cluster.replica(replica).killWorker(draw);
    return async () => undefined;
  },
  stop_replica: async ({ cluster }, { replica }) => {
    await cluster.replica(replica).signal("SIGSTOP");
    return () => cluster.replica(replica).signal("SIGCONT");
  },
  clock_jump: async ({ cluster }, { replica, draw }) => {
    const hours = (draw % JUMP_HOURS_MAX) + 1;
    const offsetMs = (draw % 2 === 0 ? hours : -hours) * HOUR_MS;
    await cluster.replica(replica).shiftClock(offsetMs);
    return () => cluster.replica(replica).shiftClock(0);
  },
  black_hole: async ({ cluster }, { replica, draw }) => {
    const { way, listenWay } = cluster.replica(replica);
    way.hold();
    listenWay.hold();
    return async () => {
      // Requests in flight arrive late, or never.
      for (const one of [way, listenWay]) {
        if (draw % 2 === 0) one.release();
        else one.cut();
      }
    };
  },
  lost_answers: async ({ cluster }, { replica }) => {
    const { way } = cluster.replica(replica);
    way.holdAnswers();
    return async () => way.reset();
  },
  connections_reset: async ({ cluster }, { replica }) => {
    const { way, listenWay } = cluster.replica(replica);
    way.reset();
    listenWay.reset();
    return async () => undefined;
  },
  bodies_held: async ({ cluster }, { replica }) => {
    const { grpcAddress, httpAddress } = cluster.replica(replica).service;
    const way = "bodies that do not end";
    const calls = { token: "nobody", way, calls: BODIES, bodyBytes: BODY_BYTES } as const;
    const holding = new Holding({
      grpcAddress,
      httpAddress,
      openLimitMs: BODIES_LIMIT_MS,
      ...calls,
    });
    await holding.held;
    return () => holding[Symbol.asyncDispose]();
  },
  listen_half_open: async ({ cluster }, { replica }) => {
    cluster.replica(replica).listenWay.silence();
    return async () => undefined; // The replica has to find out.
  },
  listen_dropped: async ({ cluster }, { replica }) => {
    cluster.replica(replica).listenWay.reset();
    return async () => undefined;
  },
  kill_postgres: async ({ cluster }) => {
    // With a full disk it starts only after the disk has healed.
    const up = cluster.killPostgres();
    return () => up;
  },
  stop_postgres: async ({ cluster }) => {
    await cluster.signalPostgres("SIGSTOP");
    return () => cluster.signalPostgres("SIGCONT");
  },
  slow_disk: async ({ cluster }) => {
    await setFlushDelay(cluster.url, SLOW_FLUSH_MICROS);
    return () => setFlushDelay(cluster.url, 0);
  },
  full_disk: async ({ cluster: { smallDisk } }) => {
    await smallDisk?.fill();
    return async () => smallDisk?.empty();
  },
  promote_standby: async ({ cluster, sessionIds }, { holdMs }) => {
    await cluster.startStandby();
    await delay(holdMs); // It follows; from here on it falls behind.
    await cluster.standbyFallsBehind();
    return () => cluster.promoteStandby(sessionIds);
  },
  session_locked: async ({ cluster, sessionIds }, { draw }) => {
    const sessionId = sessionIds[draw % sessionIds.length] ?? "";
    const sql = openSql(cluster.url);
    try {
      const held = await holdSession(sql, sessionId);
      return async () => {
        await held.release();
        await closed(sql);
      };
    } catch {
      await closed(sql); // Its row is not there yet, or the server is not.
      return async () => undefined;
    }
  },
  erased_while_imported: ({ cluster, imported }, { replica }) => imported.strike(cluster, replica),
  brims_locked: async (struck, { draw }) => {
    const over = new AbortController();
    const random = new Random(draw);
    const lockers = Promise.all(
      Array.from({ length: BRIM_LOCKERS }, () =>
        lockAgainAndAgain(struck, random.fork(), over.signal),
      ),
    );
    lockers.catch(() => undefined); // The heal says so.
    return async () => {
      over.abort();
      await lockers;
    };
  },
};

/**
 * Holds the sessions for a moment, and for longer than a push waits when rows were stored in them while
 * it waited itself: what follows in their batch is then refused the lock. Each time in one statement: of
 * a transaction of several the driver does not survive a server that goes.
 */
async function lockAgainAndAgain(
  { cluster, brimsAhead }: Struck,
  random: Random,
  over: AbortSignal,
): Promise<void> {
  const sql = openSql(cluster.url);
  while (!over.aborted) {
    const [one = "", other = one] = brimsAhead();
    const shortMs = random.below(BRIM_SHORT_MS_MAX);
    try {
      await sql`
        select pg_sleep(case
          when held.rows > (select sum(row_count) from sessions where id in (${one}, ${other}))
          then ${BRIM_LONG_MS}::float8 else ${shortMs}::float8 end / 1000)
        from (select sum(row_count) as rows from (
          select row_count from sessions where id in (${one}, ${other}) order by id for update
        ) locked) held`;
    } catch (error) {
      if (failureOf(error) === "defect") throw error;
      await delay(BRIM_PAUSE_MS); // The server is not there.
    }
  }
  await closed(sql);
}

/** Waits before each flush, as a busy disk does. */
async function setFlushDelay(url: string, delayMicros: number): Promise<void> {
  await askDatabase(url, async (sql) => {
    await sql.unsafe("alter system set commit_siblings = 0");
    await sql.unsafe(`alter system set commit_delay = ${delayMicros}`);
    await sql`select pg_reload_conf()`;
  });
}
