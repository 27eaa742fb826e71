/**
 * Decides the next step of a stream of events from its state; stream.ts carries it out.
 *
 *              ┌─────────── a frame is due ───────────┐
 *              ▼                                      │
 *   waiting ─► send ─► coalesce ─► (all sent) ─► flush, if asked for ─► waiting for Committed
 *                                                                          │         │
 *                                       stalled: nothing acknowledged ◄────┘         ▼
 *                                                                    done, idle: nothing waits
 *
 * The first event after a pause is sent at once. Events that follow within COALESCE_MS share a
 * frame, because tokens come one by one and each frame has a cost at both ends.
 */
export interface StreamView {
  /** Events that are in the spool and were not sent on this stream. */
  readonly unsentEvents: number;
  /** Events that were sent and are not settled, and the bytes of their payloads. */
  readonly unacknowledgedEvents: number;
  readonly unacknowledgedBytes: number;
  /** The limit from Opened: above it the service stops reading. */
  readonly unacknowledgedBytesMax: number;
  /** True when the transport is full. */
  readonly isBlocked: boolean;
  /**
   * A caller waits for a commit of the sent events, and the service was not asked for a flush yet.
   */
  readonly wantsFlush: boolean;
  /** True for the lane of an earlier process: no event will be added. */
  readonly isLeft: boolean;
  readonly sinceSentMs: number;
  /** The time since the last acknowledgement, or since there is something to acknowledge. */
  readonly sinceProgressMs: number;
  /** The time since the last activity of any kind. */
  readonly sinceActiveMs: number;
}

export interface StreamLimits {
  readonly progressTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

export type StreamStep =
  | { readonly kind: "send" | "flush" | "stalled" | "done" | "idle" }
  /** Until then no event changes the decision. */
  | { readonly kind: "coalesce"; readonly forMs: number }
  /** Until something happens, but no longer. */
  | { readonly kind: "wait"; readonly forMs: number };

/**
 * The limit of one frame. Well below the 4 MiB of a request, because the last event may exceed it.
 */
export const FRAME_BYTES_MAX = 256 * 1024;
export const FRAME_EVENTS_MAX = 512;
/** Not noticeable for a watcher, and at most a hundred frames per second. */
export const COALESCE_MS = 10;

export function nextStep(view: StreamView, limits: StreamLimits): StreamStep {
  const waitsForAnswer = view.unacknowledgedEvents > 0;
  const quietMs = limits.progressTimeoutMs - view.sinceProgressMs;
  if (waitsForAnswer && quietMs <= 0) return { kind: "stalled" };
  const mayPass = !view.isBlocked && !isFull(view);
  if (view.unsentEvents > 0 && mayPass) {
    const dueMs = COALESCE_MS - view.sinceSentMs;
    const isDue = dueMs <= 0 || view.unsentEvents >= FRAME_EVENTS_MAX;
    return isDue ? { kind: "send" } : { kind: "coalesce", forMs: dueMs };
  }
  if (waitsForAnswer) {
    const flushes = view.unsentEvents === 0 && view.wantsFlush;
    return flushes ? { kind: "flush" } : { kind: "wait", forMs: quietMs };
  }
  if (view.unsentEvents > 0) return { kind: "wait", forMs: limits.progressTimeoutMs };
  if (view.isLeft) return { kind: "done" };
  const idleMs = limits.idleTimeoutMs - view.sinceActiveMs;
  return idleMs <= 0 ? { kind: "idle" } : { kind: "wait", forMs: idleMs };
}

/** One event may always be sent, with any size. */
function isFull({ unacknowledgedBytes, unacknowledgedBytesMax }: StreamView): boolean {
  return unacknowledgedBytes > 0 && unacknowledgedBytes >= unacknowledgedBytesMax;
}
