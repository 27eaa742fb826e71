/** One connection of a stream writer: its frames, and how long it has been silent. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  OpenSchema,
  PushSessionEventsRequestSchema,
  PushSessionEventsResponse,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { type MessageStream, RpcClient, RpcFailure } from "./grpc-client.ts";
import { pace } from "./eventually.ts";

type Request = MessageInitShape<typeof PushSessionEventsRequestSchema>;

export type Open = MessageInitShape<typeof OpenSchema>;
export type ReceivedFrame = PushSessionEventsResponse["frame"];

/** The interval of the check for silence. */
const LOOK_EVERY_MS = 50;

export class Conversation {
  /** The next number to send; 0 until the service has sent the position of the epoch. */
  nextClientSeq = 0n;
  /** The highest number sent on it, or known when it opened. */
  sentClientSeq = 0n;
  bytesMax = 0n;
  /** Nothing is sent before this number is acknowledged. */
  restsUntil = 0n;
  /** Its answers are ignored from now on. */
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

  /** Records that an answer arrived. */
  heard({ isMoreDue }: { readonly isMoreDue: boolean }): void {
    this.#waitingSinceMs = isMoreDue ? performance.now() : undefined;
  }

  /** Resolves when it has waited that long for an answer. */
  async silence(limitMs: () => number): Promise<string> {
    for (;;) {
      await pace(LOOK_EVERY_MS);
      const sinceMs = this.#waitingSinceMs ?? Number.POSITIVE_INFINITY;
      if (this.isOver || performance.now() - sinceMs > limitMs()) return "SILENT";
    }
  }

  /** Ends the sending side: nothing is left to send. */
  end(): void {
    this.#hasEnded = true;
    this.#stream.end();
  }

  cancel(): void {
    this.#stream.cancel();
    this.#client.close();
  }
}

/** True when another attempt may succeed: the connection broke, or the error has a retry time. */
export function isBreak(error: unknown): boolean {
  if (!(error instanceof RpcFailure)) return false;
  const { code, reason, retryAfterMs } = error;
  // An error without a reason is not from the service but from something in between.
  return reason === undefined || code === "UNAVAILABLE" || retryAfterMs !== undefined;
}
