/**
 * Places the rows of a batch relative to where their sessions stand, purely: which numbers each row
 * takes, and in which run it is. What the batch cannot know, the counters and the run that is open
 * when it begins, is added under the lock.
 */
import type { NewRow, Place, Push } from "./push.ts";

/** A row and its place: `offset` numbers after the session's counter of its stream. */
export interface Arranged {
  readonly push: Push;
  readonly row: NewRow;
  /** The row carries its push's key. */
  readonly first: boolean;
  readonly offset: bigint;
  /** The run, where a mark earlier in the batch says it ("" outside); undefined: the one open before. */
  readonly runId: string | undefined;
}

export interface SessionUse {
  readonly sessionId: string;
  readonly messages: bigint;
  readonly events: bigint;
  readonly epoch: bigint | undefined;
  /** The open run after the batch; undefined: as before. */
  readonly runId: string | undefined;
}

export interface Arrangement {
  readonly rows: readonly Arranged[];
  readonly sessions: ReadonlyMap<string, SessionUse>;
}

/** Where a session stood when the batch began. */
export interface Base {
  readonly messageSeq: bigint;
  readonly eventSeq: bigint;
  readonly openRunId: string;
}

export function arrange(pushes: readonly Push[]): Arrangement {
  const sessions = new Map<string, SessionUse>();
  const rows: Arranged[] = [];
  for (const push of pushes) {
    let use = sessions.get(push.sessionId) ?? unused(push.sessionId);
    for (const [index, row] of push.rows.entries()) {
      const offset = push.stream === "messages" ? use.messages : use.events;
      const opens = row.mark?.kind === "open" ? row.mark.runId : undefined;
      rows.push({ push, row, first: index === 0, offset, runId: opens ?? use.runId });
      use = {
        ...use,
        messages: push.stream === "messages" ? use.messages + 1n : use.messages,
        events: push.stream === "events" ? use.events + BigInt(row.eventCount) : use.events,
        runId: row.mark?.kind === "close" ? "" : (opens ?? use.runId),
      };
    }
    const epoch = push.epoch ?? use.epoch;
    sessions.set(push.sessionId, { ...use, epoch });
  }
  return { rows, sessions };
}

/** The places of one push's rows, once its session's base is known. */
export function placesOf(
  rows: readonly Arranged[],
  bases: ReadonlyMap<string, Base>,
): ReadonlyMap<Push, readonly Place[]> {
  const places = new Map<Push, Place[]>();
  for (const { push, offset, runId } of rows) {
    const base = bases.get(push.sessionId);
    if (base === undefined) throw new Error("a stored row has no base");
    const from = push.stream === "messages" ? base.messageSeq : base.eventSeq;
    const place = {
      seq: from + offset + 1n,
      runId: push.stream === "messages" ? "" : (runId ?? base.openRunId),
    };
    const known = places.get(push);
    if (known === undefined) places.set(push, [place]);
    else known.push(place);
  }
  return places;
}

function unused(sessionId: string): SessionUse {
  return { sessionId, messages: 0n, events: 0n, epoch: undefined, runId: undefined };
}
