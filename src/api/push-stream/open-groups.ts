/**
 * The push streams of this replica by their session: at most one each, the newest. Others come here to
 * have its open group closed, or the stream itself ended. That there is one stream only is a rule of
 * the table (storage.md); this only tells the older one at once, and not at its next commit.
 */
import type { ServiceError } from "../../base/errors.ts";
import { staleEpoch, streamReplaced } from "../../ingest/refusal.ts";
import { sessionDeleted } from "../../store/refusals.ts";
import type { OpenedStream } from "../../store/streams.ts";

export interface StreamOfSession {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  /** Hands over what it has, before this returns. */
  closeGroup(): void;
  /** It cannot commit any more: ends it, and hands nothing over. */
  fence(error: ServiceError): void;
}

export class OpenGroups {
  readonly #streams = new Map<string, StreamOfSession>();

  /** Ends the older one of two streams of a session; false when that is the one that comes. */
  enter(stream: StreamOfSession): boolean {
    const other = this.#streams.get(stream.sessionId);
    if (other !== undefined && isNewer(other.opened, stream.opened)) {
      stream.fence(fenced(stream, other));
      return false;
    }
    this.#streams.set(stream.sessionId, stream);
    other?.fence(fenced(other, stream));
    return true;
  }

  leave(stream: StreamOfSession): void {
    if (this.#streams.get(stream.sessionId) === stream) this.#streams.delete(stream.sessionId);
  }

  close(sessionId: string): void {
    this.#streams.get(sessionId)?.closeGroup();
  }

  deleted(sessionId: string): void {
    const stream = this.#streams.get(sessionId);
    this.#streams.delete(sessionId);
    stream?.fence(sessionDeleted(sessionId));
  }
}

/** Two openings of one session are answered in any order; the table has counted them. */
function isNewer(one: OpenedStream, other: OpenedStream): boolean {
  return one.epoch === other.epoch ? one.stream > other.stream : one.epoch > other.epoch;
}

function fenced(older: StreamOfSession, newer: StreamOfSession): ServiceError {
  const { epoch } = older.opened;
  return epoch === newer.opened.epoch ? streamReplaced() : staleEpoch(epoch);
}
