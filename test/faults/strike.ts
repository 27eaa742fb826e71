/** Every fault: how it strikes, and how it heals. A strike resolves when it is felt, a heal when it is over. */
import { setTimeout as delay } from "node:timers/promises";
import type postgres from "postgres";
import { openSql } from "./sql.ts";
import { Holding } from "../support/holding.ts";
import { holdSession } from "../support/held-session.ts";
import { askDatabase, type Cluster } from "./cluster.ts";
import type { FaultKind, PlannedFault } from "./plan.ts";

export interface Struck {
  readonly cluster: Cluster;
  /** Those that are written to. */
  readonly sessionIds: readonly string[];
}

export type Heal = () => Promise<void>;

type Strike = (struck: Struck, fault: PlannedFault) => Promise<Heal>;

const HOUR_MS = 3_600_000;
const JUMP_HOURS_MAX = 30;
/** Each flush of the log takes so much longer; PostgreSQL allows no more. */
const SLOW_FLUSH_MICROS = 100_000;
/** More than a replica may take of memory, where no limit counts them; each is a little less than the largest. */
const BODIES = 120;
const BODY_BYTES = 4_194_303;
const BODIES_LIMIT_MS = 30_000;

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
  stop_replica: async ({ cluster }, { replica }) => {
    cluster.replica(replica).signal("SIGSTOP");
    return async () => cluster.replica(replica).signal("SIGCONT");
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
      // What was on its way arrives late, or never.
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
    // With a full disk it comes up only when that has healed.
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
};

async function closed(sql: postgres.Sql): Promise<void> {
  await sql.end({ timeout: 1 }).catch(() => undefined);
}

/** Waits before each flush, as a disk does that is busy. */
async function setFlushDelay(url: string, delayMicros: number): Promise<void> {
  await askDatabase(url, async (sql) => {
    await sql.unsafe("alter system set commit_siblings = 0");
    await sql.unsafe(`alter system set commit_delay = ${delayMicros}`);
    await sql`select pg_reload_conf()`;
  });
}
