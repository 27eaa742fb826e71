import type { PushSessionEventsResponse } from "../../../gen/ambient/v1/event_stream_pb.ts";
import type { ServiceError } from "../../base/errors.ts";
import type { OpenedStream } from "../../store/streams.ts";
import type { Caller } from "../../contract/context.ts";
import { googleStatusOf } from "../../contract/google-status.ts";

type Frame = PushSessionEventsResponse["frame"];

/** The position of a stream. */
export interface Standing {
  readonly lastClientSeq: bigint;
  readonly lastSeq: bigint;
}

/** The frames that a push stream sends to its caller. */
export class StreamFrames {
  readonly #caller: Caller<PushSessionEventsResponse>;
  #told: bigint;
  /** The standing that is not sent yet, or that the caller has asked for again. */
  #standing: Standing | undefined;
  #isOwed = false;

  constructor(caller: Caller<PushSessionEventsResponse>, opened: OpenedStream) {
    this.#caller = caller;
    this.#told = opened.lastClientSeq;
  }

  get unsentBytes(): number {
    return this.#caller.unsentBytes;
  }

  opened({ lastClientSeq, epoch, refused }: OpenedStream, bytesMax: number): void {
    const value = {
      $typeName: "ambient.v1.Opened",
      lastClientSeq,
      maxUnacknowledgedBytes: BigInt(bytesMax),
      producerEpoch: epoch,
      refused,
    } as const;
    this.#send({ case: "opened", value });
  }

  /**
   * A refusal goes out before the acknowledgement that covers its number, because it is sent first.
   */
  refused(clientSeq: bigint, error: ServiceError): void {
    const status = googleStatusOf(error);
    const value = { $typeName: "ambient.v1.Refused", clientSeq, status } as const;
    this.#send({ case: "refused", value });
  }

  /** The caller waits for an acknowledgement, even one with no new number. */
  owe(): void {
    this.#isOwed = true;
  }

  /**
   * Acknowledges the committed events if the number is new or owed (`isAll`: no push is under way
   * that would bring a newer number). While a slow reader has unread frames, later acknowledgements
   * wait.
   */
  acknowledge(standing: Standing, isAll: boolean): void {
    const isNews = standing.lastClientSeq > this.#told;
    this.#standing = isNews || (this.#isOwed && isAll) ? standing : undefined;
    if (this.#caller.unsentBytes === 0) this.acknowledgeNow();
  }

  /** Sends the acknowledgement that had to wait. */
  acknowledgeNow(): void {
    const standing = this.#standing;
    if (standing === undefined) return;
    this.#standing = undefined;
    this.#isOwed = false;
    this.#told = standing.lastClientSeq;
    this.#send({ case: "committed", value: { $typeName: "ambient.v1.Committed", ...standing } });
  }

  hearOn(): void {
    this.#caller.hearOn();
  }

  end(error: ServiceError | undefined): void {
    this.#caller.end(error);
  }

  #send(frame: Frame): void {
    this.#caller.send({ $typeName: "ambient.v1.PushSessionEventsResponse", frame });
  }
}
