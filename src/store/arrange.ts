/**
 * The numbers and the run of each row of a batch, relative to the counters of its session; the
 * statement adds the counters and the open run under the lock. Pure functions.
 */
import {
  arrivalsOf,
  isArrival,
  endsRun,
  type EventRow,
  keyedRow,
  type Outcome,
  type Push,
  type SessionLimits,
  startsRun,
  type StoredRow,
} from "./rows.ts";

/** A row and its distance: `offset` numbers after the session's counter of its stream. */
export interface Arranged {
  readonly push: Push;
  readonly use: SessionUse;
  readonly row: StoredRow;
  /** True when the row carries its push's key. */
  readonly isKeyed: boolean;
  readonly offset: bigint;
  /** The run that an earlier row of the batch began ("": none); undefined: the run before the batch. */
  readonly runId: string | undefined;
}

/** The use that a batch makes of one session; it grows while the rows are placed. */
export class SessionUse {
  readonly sessionId: string;
  /** Among the sessions of the batch, in the order of their ids, from 1. */
  place = 0;
  readonly pushes: Push[] = [];
  messages = 0n;
  events = 0n;
  rows = 0;
  /** Stored bytes, without the run ids of the rows that the next field counts. */
  bytes = 0;
  /** Rows in the run that is open when the batch begins. */
  openRunRows = 0;
  epoch: bigint | undefined;
  /** The last number of the last range; undefined: no range. */
  lastClientSeq: bigint | undefined;
  /** Refused numbers of the ranges. */
  refused = 0;
  /** The open run after the batch; undefined: unchanged. */
  runId: string | undefined;
  /**
   * How the last run of the batch that ended did so; `ended` of one that was open before the batch and has
   * finished, `asked` of one that has asked and not ended (0009_asked.sql). Undefined: none, or it is not known.
   */
  runOutcome: string | undefined;
  arrivals = 0;
  /** Arrivals that the claim of the batch takes. */
  taken = 0;
  /** The last RUN_STARTED of a batch without a claim: the messages before it, the arrivals after it. */
  started: { readonly messages: bigint; arrivals: number } | undefined;
  /** The watermark after the claim of the batch; undefined: none. */
  turnSeq: bigint | undefined;
  /** The watermark before that turn, while its run is open. */
  openTurnSeq: bigint | undefined;
  /** The first message of the batch asks to end the open run. */
  cancels = false;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }
}

export interface Arrangement {
  readonly pushes: readonly { readonly push: Push; readonly use: SessionUse }[];
  readonly rows: readonly Arranged[];
  /** In the order of their ids, as bytes: ids are ASCII. */
  readonly uses: readonly SessionUse[];
}

export function arrange(pushes: readonly Push[]): Arrangement {
  const sessions = new Map<string, SessionUse>();
  const rows: Arranged[] = [];
  const arranged = pushes.map((push) => {
    let use = sessions.get(push.sessionId);
    if (use === undefined) {
      use = new SessionUse(push.sessionId);
      sessions.set(push.sessionId, use);
    }
    use.pushes.push(push);
    use.epoch = push.epoch ?? use.epoch;
    use.lastClientSeq = push.range?.lastClientSeq ?? use.lastClientSeq;
    use.refused += push.range?.refused ?? 0;
    if (push.isFeedback !== true) use.bytes += push.bytes;
    use.arrivals += arrivalsOf(push);
    use.taken += push.claim?.taken ?? 0;
    use.turnSeq = push.claim?.turnSeq ?? use.turnSeq;
    use.cancels ||= push.cancels === true;
    for (const row of push.rows) rows.push(arrangeRow(push, row, use));
    return { push, use };
  });
  const uses = [...sessions.values()].toSorted((one, other) =>
    one.sessionId < other.sessionId ? -1 : 1,
  );
  for (const [index, use] of uses.entries()) use.place = index + 1;
  return { pushes: arranged, rows, uses };
}

function arrangeRow(push: Push, row: StoredRow, use: SessionUse): Arranged {
  const isKeyed = row === keyedRow(push);
  const isCounted = push.isFeedback !== true; // Feedback has separate limits (handlers/feedback.ts).
  if (isCounted) use.rows += 1;
  if (row.stream === "messages") {
    const offset = use.messages;
    use.messages += 1n;
    if (use.started !== undefined && isArrival(row)) use.started.arrivals += 1;
    return { push, use, row, isKeyed, offset, runId: undefined };
  }
  const offset = use.events;
  use.events += BigInt(row.eventCount);
  const starts = startsRun(row);
  const ends = endsRun(row);
  if (starts || ends) use.openTurnSeq = undefined;
  if (starts) {
    use.runId = row.runId;
    use.runOutcome = undefined;
    if (push.claim !== undefined) use.openTurnSeq = push.claim.fromSeq;
    else if (use.turnSeq === undefined) use.started = { messages: use.messages, arrivals: 0 };
  }
  const { runId } = use; // The row that ends a run belongs to that run.
  if (!isCounted) return { push, use, row, isKeyed, offset, runId };
  if (runId === undefined) use.openRunRows += 1;
  else use.bytes += Buffer.byteLength(runId);
  if (ends) {
    use.runOutcome = outcomeAfter(use, row);
    use.runId = "";
  } else if (row.runOutcome !== undefined && use.runId !== "") use.runOutcome = row.runOutcome;
  return { push, use, row, isKeyed, offset, runId };
}

function outcomeAfter({ runId, runOutcome }: SessionUse, end: EventRow): string | undefined {
  if (end.runOutcome !== "finished") return end.runOutcome;
  if (runOutcome === "asked") return "interrupted";
  return runId === undefined ? "ended" : "finished";
}

/**
 * Decides which pushes fit in a session that has no room for the whole batch, with pure functions.
 * The pushes are judged one after the other, as if each had arrived alone:
 *
 *   no room in the session ─────────────────► full
 *   room, but not after the pushes before it ► again, after those are stored
 *   room ───────────────────────────────────► again
 *
 * A range of a push stream is refused here only if the ranges before it are stored or fit. A
 * range after a refused one has a gap before it, and the gap is reported before the limits.
 */

/** The amount that a session holds, or that a push adds. */
export interface Amount {
  readonly rows: number;
  readonly bytes: number;
}

/** With the length of the id of the open run, which each event row of it stores. */
export interface SessionUsage extends Amount {
  readonly runBytes: number;
  /** Arrivals that wait; undefined: they are not limited. */
  readonly pending: number | undefined;
}

/** For one session, in the order of the batch. */
export function roomFor(
  pushes: readonly Push[],
  usage: SessionUsage,
  limits: SessionLimits,
): ReadonlyMap<Push, Outcome> {
  const outcomes = new Map<Push, Outcome>();
  let taken = usage;
  let isLater = false;
  let isRangeLeft = false;
  // The claim of a batch comes first, and makes room for arrivals.
  const claimed = Math.max(0, pushes[0]?.claim?.taken ?? 0);
  const leastPending = usage.pending === undefined ? undefined : usage.pending - claimed;
  for (const push of pushes) {
    const isRange = push.range !== undefined;
    // Earlier pushes may end the open run: without them its id counts, and with them perhaps not.
    const isFirst = taken === usage && !isLater;
    const least = plus(isFirst ? usage : { ...usage, runBytes: 0, pending: leastPending }, push);
    const alone = push.rows.length === 0 ? undefined : excessOf(least, push, limits);
    const together = plus(taken, push);
    if (alone !== undefined && !(isRange && isRangeLeft)) {
      outcomes.set(push, alone);
      isRangeLeft ||= isRange;
      continue;
    }
    isLater ||= (isRange && isRangeLeft) || excessOf(together, push, limits) !== undefined;
    if (isLater) isRangeLeft ||= isRange;
    else taken = together;
    outcomes.set(push, { kind: "again", isLater });
  }
  return outcomes;
}

/** Counts as `arrange` does. */
function plus(usage: SessionUsage, push: Push): SessionUsage {
  if (push.isFeedback === true) return usage;
  const { rows, bytes: added } = push;
  let { runBytes } = usage;
  let bytes = usage.bytes + added;
  for (const row of rows) {
    if (row.stream === "messages") continue;
    if (startsRun(row)) runBytes = Buffer.byteLength(row.runId);
    bytes += runBytes;
    if (endsRun(row)) runBytes = 0;
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
  if (push.isFeedback === true) return undefined;
  if (pending > pendingMax && arrivalsOf(push) > 0)
    return { kind: "full", of: "pending", max: pendingMax };
  if (rows > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
  if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
  return undefined;
}
