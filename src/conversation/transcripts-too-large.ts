import { BoundedMap } from "../base/bounded-map.ts";
import { ServiceError } from "../base/errors.ts";

/** Remembered sessions; above this number, a forgotten session costs one fold again. */
const KNOWN_MAX = 10_000;

/**
 * The sessions whose transcript is larger than this service holds in memory, and the number where
 * it became so. The events before that number do not change, so a later number is not worth another
 * fold. Retention may make the session small again. The service notices that when it has forgotten
 * the session, at the latest after a restart.
 */
export class TooLarge {
  readonly #from = new BoundedMap<string, bigint>(KNOWN_MAX);

  /** Throws when the transcript is known to be too large at that number. */
  refuse(sessionId: string, seq: bigint): void {
    const from = this.#from.get(sessionId);
    if (from !== undefined && seq >= from) throw transcriptTooLarge(from);
  }

  /** The fold exceeded its limit at that number. */
  note(sessionId: string, seq: bigint): ServiceError {
    this.#from.set(sessionId, seq);
    return transcriptTooLarge(seq);
  }

  forgetAll(): void {
    this.#from.clear();
  }

  forget(sessionId: string): void {
    this.#from.delete(sessionId);
  }
}

/** Not retriable: nothing makes the session smaller. */
export function transcriptTooLarge(seq: bigint): ServiceError {
  const message = `the transcript of the session is too large to be made, from event ${seq} on`;
  return new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", message);
}
