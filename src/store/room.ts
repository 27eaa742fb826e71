/**
 * Which pushes have room in a session that cannot take all of a batch, purely. One after the other, as
 * if each had come alone:
 *
 *   no room beside what the session holds ─────────────────► refused
 *   room, but not with those that go before it ────────────► later: asked again when they are stored
 *   room ──────────────────────────────────────────────────► goes now
 *
 * A range of a push stream is refused here only if those before it are stored or go now: what follows
 * one that is refused has a gap before it, and that comes before the limits.
 */
import { type Outcome, type Push, type SessionLimits, storedBytesOf } from "./push.ts";

/** What a session holds, or what a push adds to it. */
export interface Amount {
  readonly rows: number;
  readonly bytes: number;
}

export interface Room {
  readonly refused: ReadonlyMap<Push, Outcome>;
  readonly later: ReadonlySet<Push>;
}

/** A session, and how long the id of its open run is, which each event row of the run stores. */
interface Held extends Amount {
  readonly runBytes: number;
}

/** Of one session, in the order of the batch. */
export function roomFor(pushes: readonly Push[], held: Held, limits: SessionLimits): Room {
  const refused = new Map<Push, Outcome>();
  const later = new Set<Push>();
  let taken = held;
  let isRangeLeft = false;
  for (const push of pushes) {
    const isRange = push.range !== undefined;
    // Those before it may end the run that is open: without them its id counts, with them perhaps not.
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

/** As `arrange` counts it. */
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
