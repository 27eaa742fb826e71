/**
 * Frames of a watch that are not rows: they tell the watch's state and the last number that the
 * service has examined.
 */
import { create } from "@bufbuild/protobuf";
import { WatchState } from "../../gen/ambient/v1/common_pb.ts";
import { type SessionEvent, SessionEventSchema } from "../../gen/ambient/v1/events_pb.ts";
import { type SessionMessage, SessionMessageSchema } from "../../gen/ambient/v1/messages_pb.ts";
import type { Standing } from "../live/watcher.ts";

export interface StateFrame {
  readonly sessionId: string;
  readonly standing: Standing;
  /** The last number that the service has examined. */
  readonly seq: bigint;
}

const WATCH_STATE = {
  catching_up: WatchState.CATCHING_UP,
  live: WatchState.LIVE,
  degraded: WatchState.DEGRADED,
} as const satisfies Record<Standing, WatchState>;

export function toMessageFrame({ sessionId, standing, seq }: StateFrame): SessionMessage {
  return create(SessionMessageSchema, { sessionId, seq, watchState: WATCH_STATE[standing] });
}

export function toEventFrame({ sessionId, standing, seq }: StateFrame): SessionEvent {
  return create(SessionEventSchema, { sessionId, seq, watchState: WATCH_STATE[standing] });
}
