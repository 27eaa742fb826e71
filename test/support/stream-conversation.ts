/** One connection of a stream writer: what goes over it, and how long it has been silent. */
import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  OpenSchema,
  PushSessionEventsRequestSchema,
  PushSessionEventsResponse,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { type MessageStream, RpcClient, RpcFailure } from "./grpc-client.ts";

type Request = MessageInitShape<typeof PushSessionEventsRequestSchema>;

export type Open = MessageInitShape<typeof OpenSchema>;
export type ReceivedFrame = PushSessionEventsResponse["frame"];

/** How often it looks whether the silence is too long. */
const LOOK_EVERY_MS = 50;

export class Conversation {
  /** What is sent next; 0 until the service has said where the epoch stands. */
  nextClientSeq = 0n;
  /** The highest number that was sent on it, or was known when it opened. */
  sentClientSeq = 0n;
  bytesMax = 0n;
  /** Nothing is sent before this number is acknowledged. */
  restsUntil = 0n;
  /** Nobody listens to it any more. */
  isOver = false;
  readonly #client: RpcClient;
  readonly #stream: MessageStream<PushSessionEventsResponse> & {
    send(request: Request): void;
    end(): void;
  };
  #waitingSinceMs: number | undefined = performance.now();
  #hasEnded = false;

  constructor(address: string, open: Open) {
    this.#client = new RpcClient(address);
    this.#stream = this.#client.bidiStream(SessionService.method.pushSessionEvents);
    this.#stream.send({ frame: { case: "open", value: open } });
  }

  send(
    frame: NonNullable<Request["frame"]>,
    { isAnswerDue }: { readonly isAnswerDue: boolean },
  ): void {
    if (this.isOver || this.#hasEnded) return;
    if (isAnswerDue) this.#waitingSinceMs ??= performance.now();
    this.#stream.send({ frame });
  }

  /** Resolves when the service ends it with OK. */
  async read(came: (frame: ReceivedFrame) => void): Promise<void> {
    for await (const { frame } of this.#stream) came(frame);
  }

  /** An answer came. */
  heard({ isMoreDue }: { readonly isMoreDue: boolean }): void {
    this.#waitingSinceMs = isMoreDue ? performance.now() : undefined;
  }

  /** Resolves when it has waited for an answer that long. */
  async silence(limitMs: () => number): Promise<string> {
    for (;;) {
      await delay(LOOK_EVERY_MS);
      const sinceMs = this.#waitingSinceMs ?? Number.POSITIVE_INFINITY;
      if (this.isOver || performance.now() - sinceMs > limitMs()) return "SILENT";
    }
  }

  /** There is nothing more to send that matters. */
  end(): void {
    this.#hasEnded = true;
    this.#stream.end();
  }

  cancel(): void {
    this.#stream.cancel();
    this.#client.close();
  }
}

/** Whether it only broke a connection, and is not what the service means. */
export function isBreak(error: unknown): boolean {
  if (!(error instanceof RpcFailure)) return false;
  const { code, reason, retryAfterMs } = error;
  // Without a reason it was not the service that spoke, but whatever was in between.
  return reason === undefined || code === "UNAVAILABLE" || retryAfterMs !== undefined;
}
