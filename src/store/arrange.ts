/**
 * Places the rows of a batch relative to where their sessions stand, purely: which numbers each row
 * takes, and in which run it is. What the batch cannot know, the counters and the run that is open
 * when it begins, is added under the lock.
 */
import { type NewRow, type Place, type Push, storedBytesOf } from "./push.ts";

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

/** What a batch takes of one session; it grows while the rows are placed, one after the other. */
export interface SessionUse {
  readonly sessionId: string;
  messages: bigint;
  events: bigint;
  rows: number;
  /** What is stored, but for the run ids of the rows that are counted next. */
  bytes: number;
  /** Rows in the run that is open when the batch begins. */
  openRunRows: number;
  epoch: bigint | undefined;
  /** Of the last range; undefined: there is none. */
  lastClientSeq: bigint | undefined;
  /** Numbers of ranges that were refused. */
  refused: number;
  /** The open run after the batch; undefined: as before. */
  runId: string | undefined;
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
    let use = sessions.get(push.sessionId);
    if (use === undefined) {
      use = unused(push.sessionId);
      sessions.set(push.sessionId, use);
    }
    use.epoch = push.epoch ?? use.epoch;
    use.lastClientSeq = push.range?.lastClientSeq ?? use.lastClientSeq;
    use.refused += push.range?.refused ?? 0;
    for (const row of push.rows) rows.push(place(push, row, use));
  }
  return { rows, sessions };
}

function place(push: Push, row: NewRow, use: SessionUse): Arranged {
  const first = row === push.rows[0];
  use.rows += 1;
  use.bytes += storedBytesOf(row);
  if (push.stream === "messages") {
    const offset = use.messages;
    use.messages += 1n;
    return { push, row, first, offset, runId: undefined };
  }
  const offset = use.events;
  use.events += BigInt(row.eventCount);
  if (row.mark?.kind === "open") use.runId = row.mark.runId;
  const { runId } = use; // The row that closes a run belongs to it.
  if (runId === undefined) use.openRunRows += 1;
  else use.bytes += Buffer.byteLength(runId);
  if (row.mark?.kind === "close") use.runId = "";
  return { push, row, first, offset, runId };
}

/** The places of each push's rows, once its session's base is known; a push without rows is left out. */
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
