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
import type { Outcome, Push, SessionLimits } from "./push.ts";

/** What a session holds, or what a push adds to it. */
export interface Amount {
  readonly rows: number;
  readonly bytes: number;
}

export interface Room {
  readonly refused: ReadonlyMap<Push, Outcome>;
  readonly later: ReadonlySet<Push>;
}

/** Of one session, in the order of the batch. */
export function roomFor(pushes: readonly Push[], held: Amount, limits: SessionLimits): Room {
  const refused = new Map<Push, Outcome>();
  const later = new Set<Push>();
  let taken = held;
  let isRangeLeft = false;
  for (const push of pushes) {
    const isRange = push.range !== undefined;
    const adds = amountOf(push);
    const alone = adds.rows === 0 ? undefined : excessOf(plus(held, adds), limits);
    if (isRange && isRangeLeft) {
      later.add(push);
    } else if (alone !== undefined) {
      refused.set(push, alone);
      isRangeLeft ||= isRange;
    } else if (later.size > 0 || excessOf(plus(taken, adds), limits) !== undefined) {
      later.add(push);
      isRangeLeft ||= isRange;
    } else {
      taken = plus(taken, adds);
    }
  }
  return { refused, later };
}

function amountOf({ rows }: Push): Amount {
  const bytes = rows.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
  return { rows: rows.length, bytes };
}

function plus(one: Amount, other: Amount): Amount {
  return { rows: one.rows + other.rows, bytes: one.bytes + other.bytes };
}

function excessOf({ rows, bytes }: Amount, limits: SessionLimits): Outcome | undefined {
  const { sessionRowsMax, sessionBytesMax } = limits;
  if (rows > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
  if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
  return undefined;
}
