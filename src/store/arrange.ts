/**
 * The numbers and the run of each row of a batch, relative to the counters of its session; the
 * statement adds the counters and the open run under the lock. Pure functions.
 */
import {
  arrivalsOf,
  isArrival,
  keyedRow,
  type NewRow,
  type Outcome,
  type RowPosition,
  type Push,
  type SessionLimits,
} from "./rows.ts";

/** A row and its place: `offset` numbers after the session's counter of its stream. */
export interface Arranged {
  readonly push: Push;
  readonly row: NewRow;
  /** True when the row carries its push's key. */
  readonly isKeyed: boolean;
  readonly offset: bigint;
  /** The run that an earlier mark of the batch sets ("": none); undefined: the run before it. */
  readonly runId: string | undefined;
}

/** The use that a batch makes of one session; it grows while the rows are placed. */
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
  /** The last number of the last range; undefined: no range. */
  lastClientSeq: bigint | undefined;
  /** Refused numbers of the ranges. */
  refused: number;
  /** The open run after the batch; undefined: unchanged. */
  runId: string | undefined;
  arrivals: number;
  /** Arrivals that the claim of the batch takes. */
  taken: number;
  /** The last RUN_STARTED of a batch without a claim: the messages before it, the arrivals after it. */
  started: { readonly messages: bigint; arrivals: number } | undefined;
  /** The watermark after the claim of the batch; undefined: none. */
  turnSeq: bigint | undefined;
  /** The watermark before that turn, while its run is open. */
  openTurnSeq: bigint | undefined;
  /** The first message of the batch asks to end the open run. */
  cancels: boolean;
}

export interface Arrangement {
  readonly rows: readonly Arranged[];
  readonly sessions: ReadonlyMap<string, SessionUse>;
}

/** The counters and the open run of a session at the beginning of the batch. */
export interface SessionBase {
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
    if (isLimited(push)) use.bytes += push.bytes;
    use.arrivals += arrivalsOf(push);
    use.taken += push.claim?.taken ?? 0;
    use.turnSeq = push.claim?.turnSeq ?? use.turnSeq;
    use.cancels ||= push.cancels === true;
    for (const row of push.rows) rows.push(place(push, row, use));
  }
  return { rows, sessions };
}

function place(push: Push, row: NewRow, use: SessionUse): Arranged {
  const isKeyed = row === keyedRow(push);
  if (isLimited(push)) use.rows += 1;
  if (push.stream === "messages") {
    const offset = use.messages;
    use.messages += 1n;
    if (use.started !== undefined && isArrival(row)) use.started.arrivals += 1;
    return { push, row, isKeyed, offset, runId: undefined };
  }
  const offset = use.events;
  use.events += BigInt(row.eventCount);
  if (row.mark !== undefined) use.openTurnSeq = undefined;
  if (row.mark?.kind === "open") {
    use.runId = row.mark.runId;
    if (push.claim !== undefined) use.openTurnSeq = push.claim.fromSeq;
    else if (use.turnSeq === undefined) use.started = { messages: use.messages, arrivals: 0 };
  }
  const { runId } = use; // The row that ends a run belongs to that run.
  if (!isLimited(push)) return { push, row, isKeyed, offset, runId };
  if (runId === undefined) use.openRunRows += 1;
  else use.bytes += Buffer.byteLength(runId);
  if (row.mark?.kind === "close") use.runId = "";
  return { push, row, isKeyed, offset, runId };
}

/** The places of each push's rows, for a known base; pushes without rows are left out. */
export function positionsOf(
  rows: readonly Arranged[],
  bases: ReadonlyMap<string, SessionBase>,
): ReadonlyMap<Push, readonly RowPosition[]> {
  const places = new Map<Push, RowPosition[]>();
  for (const { push, offset, runId } of rows) {
    const base = bases.get(push.sessionId);
    if (base === undefined) throw new Error("a stored row has no base");
    const from = push.stream === "messages" ? base.messageSeq : base.eventSeq;
    const at = {
      seq: from + offset + 1n,
      runId: push.stream === "messages" ? "" : (runId ?? base.openRunId),
    };
    const positions = places.get(push);
    if (positions === undefined) places.set(push, [at]);
    else positions.push(at);
  }
  return places;
}

/** Feedback has separate limits (handlers/feedback.ts). */
function isLimited({ isFeedback = false }: Push): boolean {
  return !isFeedback;
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
    arrivals: 0,
    taken: 0,
    started: undefined,
    turnSeq: undefined,
    openTurnSeq: undefined,
    cancels: false,
  };
}

/**
 * Decides which pushes fit in a session that has no room for the whole batch, with pure functions.
 * The pushes are judged one after the other, as if each had arrived alone:
 *
 *   no room in the session      ────────────────► refused
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

/** With the length of the id of the open run, which each event row of it stores. */
export interface SessionUsage extends Amount {
  readonly runBytes: number;
  /** Arrivals that wait; undefined: they are not limited. */
  readonly pending: number | undefined;
}

/** For one session, in the order of the batch. */
export function roomFor(pushes: readonly Push[], usage: SessionUsage, limits: SessionLimits): Room {
  const refused = new Map<Push, Outcome>();
  const later = new Set<Push>();
  let taken = usage;
  let isRangeLeft = false;
  // The claim of a batch comes first, and makes room for arrivals.
  const claimed = Math.max(0, pushes[0]?.claim?.taken ?? 0);
  const leastPending = usage.pending === undefined ? undefined : usage.pending - claimed;
  for (const push of pushes) {
    const isRange = push.range !== undefined;
    // Earlier pushes may end the open run: without them its id counts, and with them perhaps not.
    const isFirst = taken === usage && later.size === 0;
    const least = plus(isFirst ? usage : { ...usage, runBytes: 0, pending: leastPending }, push);
    const alone = push.rows.length === 0 ? undefined : excessOf(least, push, limits);
    const together = plus(taken, push);
    if (isRange && isRangeLeft) {
      later.add(push);
    } else if (alone !== undefined) {
      refused.set(push, alone);
      isRangeLeft ||= isRange;
    } else if (later.size > 0 || excessOf(together, push, limits) !== undefined) {
      later.add(push);
      isRangeLeft ||= isRange;
    } else {
      taken = together;
    }
  }
  return { refused, later };
}

/** Counts as `arrange` does. */
function plus(usage: SessionUsage, push: Push): SessionUsage {
  if (!isLimited(push)) return usage;
  const { stream, rows, bytes: added } = push;
  let { runBytes } = usage;
  let bytes = usage.bytes + added;
  for (const row of rows) {
    if (row.mark?.kind === "open") runBytes = Buffer.byteLength(row.mark.runId);
    if (stream === "events") bytes += runBytes;
    if (row.mark?.kind === "close") runBytes = 0;
  }
  const more = arrivalsOf(push) - (push.claim?.taken ?? 0);
  const pending = usage.pending === undefined ? undefined : usage.pending + more;
  return { rows: usage.rows + rows.length, bytes, runBytes, pending };
}

function excessOf(
  { rows, bytes, pending = 0 }: SessionUsage,
  push: Push,
  limits: SessionLimits,
): Outcome | undefined {
  const { sessionRowsMax, sessionBytesMax, pendingMax } = limits;
  if (!isLimited(push)) return undefined;
  if (pending > pendingMax && arrivalsOf(push) > 0)
    return { kind: "full", of: "pending", max: pendingMax };
  if (rows > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
  if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
  return undefined;
}
