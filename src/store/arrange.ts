/**
 * Places the rows of a batch relative to the counters of their sessions, with pure functions: the
 * numbers of each row, and its run. The counters and the run that is open at the beginning are
 * unknown here; the statement adds them under the lock.
 */
import { type NewRow, type Outcome, type Place, type Push, type SessionLimits } from "./rows.ts";

/** A row and its place: `offset` numbers after the session's counter of its stream. */
export interface Arranged {
  readonly push: Push;
  readonly row: NewRow;
  /** True when the row carries its push's key. */
  readonly first: boolean;
  readonly offset: bigint;
  /**
   * The run, if an earlier mark in the batch sets it ("" outside of runs); undefined: the run that
   * was open before.
   */
  readonly runId: string | undefined;
}

/**
 * The use that a batch makes of one session; it grows while the rows are placed, one after the
 * other.
 */
export interface SessionUse {
  readonly sessionId: string;
  messages: bigint;
  events: bigint;
  rows: number;
  /** Stored bytes, without the run ids of the rows that the next field counts. */
  bytes: number;
  /** Rows in the run that is open when the batch begins. */
  openRunRows: number;
  epoch: bigint | undefined;
  /** The last number of the last range; undefined: there is no range. */
  lastClientSeq: bigint | undefined;
  /** Refused numbers of the ranges. */
  refused: number;
  /** The open run after the batch; undefined: unchanged. */
  runId: string | undefined;
}

export interface Arrangement {
  readonly rows: readonly Arranged[];
  readonly sessions: ReadonlyMap<string, SessionUse>;
}

/** The counters and the open run of a session at the beginning of the batch. */
export interface Base {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  readonly openRunId: string;
}

export function arrange(pushes: readonly Push[]): Arrangement {
  const sessions = new Map<string, SessionUse>();
  const rows: Arranged[] = [];
  for (const push of pushes) {
    let use = sessions.get(push.sessionId);
    if (use === undefined) {
      use = unused(push.sessionId);
      sessions.set(push.sessionId, use);
    }
    use.epoch = push.epoch ?? use.epoch;
    use.lastClientSeq = push.range?.lastClientSeq ?? use.lastClientSeq;
    use.refused += push.range?.refused ?? 0;
    use.bytes += push.bytes;
    for (const row of push.rows) rows.push(place(push, row, use));
  }
  return { rows, sessions };
}

function place(push: Push, row: NewRow, use: SessionUse): Arranged {
  const first = row === push.rows[0];
  use.rows += 1;
  if (push.stream === "messages") {
    const offset = use.messages;
    use.messages += 1n;
    return { push, row, first, offset, runId: undefined };
  }
  const offset = use.events;
  use.events += BigInt(row.eventCount);
  if (row.mark?.kind === "open") use.runId = row.mark.runId;
  const { runId } = use; // The row that ends a run belongs to that run.
  if (runId === undefined) use.openRunRows += 1;
  else use.bytes += Buffer.byteLength(runId);
  if (row.mark?.kind === "close") use.runId = "";
  return { push, row, first, offset, runId };
}

/**
 * The places of each push's rows, once its session's base is known; pushes without rows are left
 * out.
 */
export function placesOf(
  rows: readonly Arranged[],
  bases: ReadonlyMap<string, Base>,
): ReadonlyMap<Push, readonly Place[]> {
  const places = new Map<Push, Place[]>();
  for (const { push, offset, runId } of rows) {
    const base = bases.get(push.sessionId);
    if (base === undefined) throw new Error("a stored row has no base");
    const from = push.stream === "messages" ? base.messageSeq : base.eventSeq;
    const at = {
      seq: from + offset + 1n,
      runId: push.stream === "messages" ? "" : (runId ?? base.openRunId),
    };
    const known = places.get(push);
    if (known === undefined) places.set(push, [at]);
    else known.push(at);
  }
  return places;
}

function unused(sessionId: string): SessionUse {
  return {
    sessionId,
    messages: 0n,
    events: 0n,
    rows: 0,
    bytes: 0,
    openRunRows: 0,
    epoch: undefined,
    lastClientSeq: undefined,
    refused: 0,
    runId: undefined,
  };
}

/**
 * Decides which pushes fit in a session that has no room for the whole batch, with pure functions.
 * The pushes are judged one after the other, as if each had arrived alone:
 *
 *   no room beside the rows of the session ────────────────► refused
 *   room, but not after the pushes before it ───────────────► later: judged again after those are stored
 *   room ──────────────────────────────────────────────────► goes now
 *
 * A range of a push stream is refused here only if the ranges before it are stored or go now. A
 * range after a refused one has a gap before it, and the gap is reported before the limits.
 */

/** The amount that a session holds, or that a push adds. */
export interface Amount {
  readonly rows: number;
  readonly bytes: number;
}

export interface Room {
  readonly refused: ReadonlyMap<Push, Outcome>;
  readonly later: ReadonlySet<Push>;
}

/**
 * A session's amount, and the length of the id of its open run, which each event row of the run
 * stores.
 */
interface Held extends Amount {
  readonly runBytes: number;
}

/** For one session, in the order of the batch. */
export function roomFor(pushes: readonly Push[], held: Held, limits: SessionLimits): Room {
  const refused = new Map<Push, Outcome>();
  const later = new Set<Push>();
  let taken = held;
  let isRangeLeft = false;
  for (const push of pushes) {
    const isRange = push.range !== undefined;
    // Earlier pushes may end the open run: without them its id counts, and with them perhaps not.
    const isFirst = taken === held && later.size === 0;
    const least = plus(isFirst ? held : { ...held, runBytes: 0 }, push);
    const alone = push.rows.length === 0 ? undefined : excessOf(least, limits);
    const together = plus(taken, push);
    if (isRange && isRangeLeft) {
      later.add(push);
    } else if (alone !== undefined) {
      refused.set(push, alone);
      isRangeLeft ||= isRange;
    } else if (later.size > 0 || excessOf(together, limits) !== undefined) {
      later.add(push);
      isRangeLeft ||= isRange;
    } else {
      taken = together;
    }
  }
  return { refused, later };
}

/** Counts as `arrange` does. */
function plus(held: Held, { stream, rows, bytes: added }: Push): Held {
  let { runBytes } = held;
  let bytes = held.bytes + added;
  for (const row of rows) {
    if (row.mark?.kind === "open") runBytes = Buffer.byteLength(row.mark.runId);
    if (stream === "events") bytes += runBytes;
    if (row.mark?.kind === "close") runBytes = 0;
  }
  return { rows: held.rows + rows.length, bytes, runBytes };
}

function excessOf({ rows, bytes }: Amount, limits: SessionLimits): Outcome | undefined {
  const { sessionRowsMax, sessionBytesMax } = limits;
  if (rows > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
  if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
  return undefined;
}
