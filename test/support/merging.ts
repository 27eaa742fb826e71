/** Streams as a compressing runner pushes them, for tests that expand rows. */
import { fromBinary } from "@bufbuild/protobuf";
import { type Fragments, FragmentsSchema } from "../../gen/ambient/v1/events_pb.ts";
import { COMPRESSOR_LIMITS } from "../../src/compressor/compressor.ts";
import { encodeFragments } from "../../src/compressor/fragments.ts";
import { compressAll } from "./compressing.ts";
import type { StreamEvent } from "./streams.ts";

export interface MergedEvent extends StreamEvent {
  readonly eventCount: number;
  /** Undefined for a single event. */
  readonly fragments: Fragments | undefined;
}

/** All rows of a stream without time between its events. A text may have any size, for large rows. */
export function mergeFragments(
  events: readonly StreamEvent[],
  { eventsMax = COMPRESSOR_LIMITS.eventsMax } = {},
): readonly MergedEvent[] {
  const timed = events.map((event) => ({ ...event, createdAtMicros: 0n }));
  return compressAll(timed, { eventsMax, textBytesMax: Number.POSITIVE_INFINITY }).map(
    ({ eventType, payload, eventCount, fragments: index }) => ({
      eventType,
      payload,
      eventCount,
      fragments: index && fromBinary(FragmentsSchema, encodeFragments(index)),
    }),
  );
}
