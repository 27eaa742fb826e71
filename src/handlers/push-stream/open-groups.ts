/**
 * The newest push stream of each session on this replica: other code closes its group, sends to its
 * client, or ends it. The table decides which stream is the newest (storage.md); this class only
 * ends the older one at once.
 */
import type {
  Cancel,
  PushSessionEventsResponse,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { ServiceError } from "@session-ledger/base/errors";
import { staleEpoch, streamReplaced } from "../../ingest/refusal.ts";
import { sessionDeleted } from "../../store/failure.ts";
import type { OpenedStream } from "../../store/streams.ts";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import type { StreamingRedactor } from "@session-ledger/agui/redaction/streaming-redactor";

export interface StreamOfSession {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  /** Hands over its events before this call returns. */
  closeGroup(): void;
  /** Sends a frame to its client. */
  send(frame: PushSessionEventsResponse["frame"]): void;
  /** The stream cannot commit any more: ends it without a hand-over. */
  fence(error: ServiceError): void;
}

/** Sessions with remembered redactors; the session that was left the longest ago is forgotten first. */
const REDACTORS_MAX = 1_024;

interface LeftRedactor {
  readonly epoch: bigint;
  readonly lastClientSeq: bigint;
  readonly redactor: StreamingRedactor;
}

export class OpenGroups {
  readonly #streams = new Map<string, StreamOfSession>();
  readonly #left = new BoundedMap<string, LeftRedactor>(REDACTORS_MAX);
  /** The newest cancel that the client of a stream knows of. */
  readonly #sentCancels = new WeakMap<StreamOfSession, bigint>();

  /** Ends the older of two streams of a session; false when the entering one is older. */
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

  leave(stream: StreamOfSession, left?: LeftRedactor): void {
    const { sessionId } = stream;
    if (this.#streams.get(sessionId) === stream) this.#streams.delete(sessionId);
    left?.redactor.leave();
    if (left !== undefined) this.#left.set(sessionId, left);
  }

  /**
   * The redactor of an ended stream: the rest of a secret is recognised when the client returns to
   * this process and continues exactly where it stopped. Nothing outlives the process.
   */
  takeRedactor(
    sessionId: string,
    opened: Pick<OpenedStream, "epoch" | "lastClientSeq">,
  ): StreamingRedactor | undefined {
    const left = this.#left.get(sessionId);
    this.#left.delete(sessionId);
    const isNext = left?.epoch === opened.epoch && left.lastClientSeq === opened.lastClientSeq;
    return isNext ? left.redactor : undefined;
  }

  has(sessionId: string): boolean {
    return this.#streams.has(sessionId);
  }

  /** Tells the client of the session's stream, once. */
  sendCancel(sessionId: string, cancel: Cancel): void {
    const stream = this.#streams.get(sessionId);
    if (stream === undefined || this.#sentCancels.get(stream) === cancel.messageSeq) return;
    this.#sentCancels.set(stream, cancel.messageSeq);
    stream.send({ case: "cancel", value: cancel });
  }

  close(sessionId: string): void {
    this.#streams.get(sessionId)?.closeGroup();
  }

  onDelete(sessionId: string): void {
    const stream = this.#streams.get(sessionId);
    this.#streams.delete(sessionId);
    stream?.fence(sessionDeleted(sessionId));
  }
}

/** The answers for two openings may arrive in any order; the table has numbered them. */
function isNewer(one: OpenedStream, other: OpenedStream): boolean {
  return one.epoch === other.epoch ? one.stream > other.stream : one.epoch > other.epoch;
}

function fenced(older: StreamOfSession, newer: StreamOfSession): ServiceError {
  const { epoch } = older.opened;
  return epoch === newer.opened.epoch ? streamReplaced() : staleEpoch(epoch);
}
