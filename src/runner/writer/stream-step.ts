/**
 * What a stream of events does next, decided from what is known of it; stream.ts does it.
 *
 *              ┌─────────── a frame is due ───────────┐
 *              ▼                                      │
 *   waiting ─► send ─► coalesce ─► (all sent) ─► flush, if asked for ─► waiting for Committed
 *                                                                          │         │
 *                                       stalled: nothing acknowledged ◄────┘         ▼
 *                                                                    done, idle: nothing waits
 *
 * The first event after a pause leaves at once. Those that follow within COALESCE_MS share a frame,
 * because tokens come one by one and a frame has a price of its own at both ends.
 */
export interface StreamView {
  /** Events that are in the spool and were not sent on this stream. */
  readonly unsentEvents: number;
  /** Events that were sent and are not settled, and the bytes of their payloads. */
  readonly unacknowledgedEvents: number;
  readonly unacknowledgedBytes: number;
  /** From Opened: above it the service stops reading. */
  readonly unacknowledgedBytesMax: number;
  /** The transport has said that it has enough. */
  readonly isBlocked: boolean;
  /** Somebody waits for what is sent to be committed, and the service was not told yet. */
  readonly wantsFlush: boolean;
  /** Nothing will be added: of a lane of an earlier process. */
  readonly isLeft: boolean;
  readonly sinceSentMs: number;
  /** Since something was acknowledged, or since there is something to acknowledge. */
  readonly sinceProgressMs: number;
  /** Since anything happened at all. */
  readonly sinceActiveMs: number;
}

export interface StreamLimits {
  readonly progressTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

export type StreamStep =
  | { readonly kind: "send" | "flush" | "stalled" | "done" | "idle" }
  /** Until then nothing that comes changes anything. */
  | { readonly kind: "coalesce"; readonly forMs: number }
  /** Until something comes, but no longer. */
  | { readonly kind: "wait"; readonly forMs: number };

/** Of one frame. Well below the 4 MiB that a request may have, with one event more than fits. */
export const FRAME_BYTES_MAX = 256 * 1024;
export const FRAME_EVENTS_MAX = 512;
/** Not felt by a watcher, and a hundred frames a second at most. */
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

/** One event may always be under way, whatever its size. */
function isFull({ unacknowledgedBytes, unacknowledgedBytesMax }: StreamView): boolean {
  return unacknowledgedBytes > 0 && unacknowledgedBytes >= unacknowledgedBytesMax;
}
