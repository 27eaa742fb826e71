import { ServiceError } from "../base/errors.ts";

/** Sessions that are remembered; a few of them cost a fold each when there are more. */
const KNOWN_MAX = 10_000;

/**
 * The sessions whose transcript is more than this service holds in memory, and from which number on:
 * the events before it do not change, so a later number is not worth another fold. Retention may make
 * the session small again; that is seen when the service has forgotten it, at the latest by a restart.
 */
export class TooLarge {
  /** The one noted the longest ago first. */
  readonly #from = new Map<string, bigint>();

  /** Throws when the transcript is known to be too large by then. */
  refuse(sessionId: string, seq: bigint): void {
    const from = this.#from.get(sessionId);
    if (from !== undefined && seq >= from) throw transcriptTooLarge(from);
  }

  /** The fold passed its bound at that number. */
  note(sessionId: string, seq: bigint): ServiceError {
    this.#from.delete(sessionId);
    this.#from.set(sessionId, seq);
    for (const oldest of this.#from.keys()) {
      if (this.#from.size <= KNOWN_MAX) break;
      this.#from.delete(oldest);
    }
    return transcriptTooLarge(seq);
  }

  forgetAll(): void {
    this.#from.clear();
  }

  forget(sessionId: string): void {
    this.#from.delete(sessionId);
  }
}

/** Not to be tried again: nothing makes the session smaller. */
export function transcriptTooLarge(seq: bigint): ServiceError {
  const message = `the transcript of the session is too large to be made, from event ${seq} on`;
  return new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", message);
}
