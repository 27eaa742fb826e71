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
import { type Outcome, type Push, type SessionLimits, storedBytesOf } from "./push.ts";

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
function plus(held: Held, { stream, rows }: Push): Held {
  let { bytes, runBytes } = held;
  for (const row of rows) {
    if (row.mark?.kind === "open") runBytes = Buffer.byteLength(row.mark.runId);
    bytes += storedBytesOf(row) + (stream === "events" ? runBytes : 0);
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
