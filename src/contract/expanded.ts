/**
 * Raw events as messages of the contract: the events of a merged row, each under its own number.
 * They carry the row's id, stand for one event each, and have no index and no completed_at. A row
 * without an index is one message, the row itself.
 */
import { WatchState } from "../../gen/ambient/v1/common_pb.ts";
import type { SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import { expand } from "../compressor/expand.ts";
import type { EventRow } from "../store/rows.ts";
import { toSessionEvent } from "./rows-to-wire.ts";
import { timestampOf } from "./times.ts";

/** The events with a number above `afterSeq`, in order, made on demand. */
export function* toRawEvents(
  row: EventRow,
  afterSeq: bigint,
): Generator<SessionEvent, void, undefined> {
  if (row.fragments === undefined) {
    if (row.seq > afterSeq) yield toSessionEvent(row);
    return;
  }
  const { id, sessionId, runId } = row;
  let micros = row.createdAtMicros;
  let createdAt = timestampOf(micros);
  for (const { seq, eventType, payload, createdAtMicros } of expand(row, afterSeq)) {
    if (createdAtMicros !== micros) createdAt = timestampOf(createdAtMicros);
    micros = createdAtMicros;
    yield {
      $typeName: "ambient.v1.SessionEvent",
      id,
      sessionId,
      seq,
      eventType,
      payload,
      createdAt,
      completedAt: undefined,
      eventCount: 1,
      fragments: undefined,
      deduplicated: false,
      runId,
      watchState: WatchState.UNSPECIFIED,
    };
  }
}
