/**
 * PushSessionEvents. A call begins with its `open` frame, which is answered from the table;
 * push-stream.ts handles the rest.
 *
 *   called ── open ──► opening ── opened ──► a push stream
 *      │                  └─ refused, or another stream came first ──► over
 *      └─ anything else ──► over
 */
import {
  Compression,
  type Open,
  type PushSessionEventsRequest,
  type PushSessionEventsResponse,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { actorOf } from "../../auth/principal.ts";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { acquire } from "../../auth/caller-memory.ts";
import { FairShare } from "../../base/fair-share.ts";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import type { Ingest } from "../../ingest/ingest.ts";
import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { OpenedStream } from "../../store/streams.ts";
import type { Caller, Conversation, ConversationRecord, Handlers } from "../../contract/context.ts";
import { type OpenGroups, LeftRedactors } from "./open-groups.ts";
import { checkOpen, openFirst } from "./intake.ts";
import { StreamMeter, type StreamMetrics } from "./meter.ts";
import type { StreamOptions, StreamParts } from "./parts.ts";
import { PushStream } from "./push-stream.ts";

const TOO_MANY_RETRY_AFTER_MS = 1_000;

export interface PushStreamParts
  extends Omit<StreamParts, "groups" | "meter" | "leftRedactors" | "ingest" | "charge"> {
  readonly rates: Pick<RateLimits, "charge">;
  readonly ingest: Pick<Ingest, "push" | "open">;
  readonly groups: Pick<OpenGroups, "enter" | "leave">;
  readonly metrics: StreamMetrics & Pick<Metrics, "limitUse">;
  /** Called when a stream of a session with a cancelled run has begun. */
  readonly cancelled: () => void;
}

export interface PushStreamOptions {
  readonly validation: ValidationMode;
  readonly payloadBytesMax: number;
  /** The limit of uncommitted payload bytes of one stream. */
  readonly pushStreamBytesMax: number;
  /** The limit of open streams. */
  readonly pushStreamsMax: number;
  /** Undefined: nothing is redacted. */
  readonly redactor?: Redactor | undefined;
}

export function createPushStreamHandlers(
  { metrics, ...parts }: PushStreamParts,
  options: PushStreamOptions,
): Pick<Handlers<typeof SessionService>, "pushSessionEvents"> {
  const meter = new StreamMeter(metrics);
  const leftRedactors = new LeftRedactors();
  const seats = new FairShare({ max: options.pushStreamsMax });
  metrics.limitUse.share("push_streams", seats);
  return {
    pushSessionEvents(caller) {
      const lease = acquire(seats, caller, tooManyStreams);
      const ended = (): void => {
        lease.release();
        meter.streams(seats.used);
      };
      meter.streams(seats.used);
      return new PushStreamCall({ ...parts, meter, leftRedactors }, caller, { ...options, ended });
    },
  };
}

type CallParts = Omit<PushStreamParts, "metrics"> & Pick<StreamParts, "meter" | "leftRedactors">;

interface CallOptions extends PushStreamOptions {
  readonly ended: () => void;
}

class PushStreamCall implements Conversation<PushSessionEventsRequest> {
  readonly #parts: CallParts;
  readonly #caller: Caller<PushSessionEventsResponse>;
  readonly #options: CallOptions;
  #sessionId = "";
  #stream: PushStream | undefined;
  #hasEnded = false;
  #cancelWait: (() => void) | undefined;

  constructor(parts: CallParts, caller: Caller<PushSessionEventsResponse>, options: CallOptions) {
    this.#parts = parts;
    this.#options = options;
    this.#caller = {
      principal: caller.principal,
      send: (message) => caller.send(message),
      get unsentBytes() {
        return caller.unsentBytes;
      },
      resume: () => caller.resume(),
      end: (error) => {
        this.#ended();
        caller.end(error);
      },
    };
  }

  get record(): ConversationRecord {
    return { sessionId: this.#sessionId, counts: this.#stream?.counts ?? {} };
  }

  get keptBytes(): number {
    return this.#stream?.keptBytes ?? 0;
  }

  onMessage(request: PushSessionEventsRequest): boolean {
    if (this.#stream !== undefined) return this.#stream.onMessage(request);
    if (request.frame.case === "open") this.#open(request.frame.value);
    else this.#caller.end(openFirst());
    return false;
  }

  onDecodeError(error: ServiceError): void {
    if (this.#stream === undefined) this.#caller.end(error);
    else this.#stream.onDecodeError(error);
  }

  onHalfClose(): void {
    if (this.#stream === undefined) this.#caller.end(openFirst());
    else this.#stream.onHalfClose();
  }

  onDrain(): void {
    this.#stream?.onDrain();
  }

  onClose(): void {
    this.#stream?.onClose();
    this.#ended();
  }

  #open(open: Open): void {
    this.#sessionId = open.sessionId;
    const violations = checkOpen(open);
    if (violations.length > 0) return this.#caller.end(invalidArgument(violations));
    const waitMs = this.#charge(0);
    if (waitMs === 0) void this.#begin(open);
    else this.#cancelWait = this.#parts.timers.after(waitMs, () => void this.#begin(open));
  }

  #charge(bytes: number): number {
    return this.#parts.rates.charge(this.#caller.principal, this.#sessionId, bytes);
  }

  async #begin(open: Open): Promise<void> {
    const { sessionId, producerEpoch: epoch } = open;
    try {
      const opened = await this.#parts.ingest.open({ sessionId, epoch }, () => this.#hasEnded);
      if (!this.#hasEnded) this.#opened(open, opened);
    } catch (error) {
      this.#caller.end(ServiceError.from(error));
    }
  }

  #opened(open: Open, opened: OpenedStream): void {
    const actor = actorOf(this.#caller.principal);
    const identity = { sessionId: open.sessionId, opened, actor };
    const options = streamOptions(open, this.#options);
    const parts = { ...this.#parts, charge: (bytes: number) => this.#charge(bytes) };
    const stream = new PushStream(parts, this.#caller, identity, options);
    if (!this.#parts.groups.enter(stream)) return;
    this.#stream = stream;
    stream.begin();
    if (opened.isCancelled) this.#parts.cancelled();
  }

  #ended(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#cancelWait?.();
    this.#options.ended();
  }
}

function streamOptions(open: Open, options: PushStreamOptions): StreamOptions {
  const { textBytesMax, maxAgeMs } = COMPRESSOR_LIMITS;
  const { validation, payloadBytesMax, redactor } = options;
  const merges = open.compression !== Compression.OFF;
  return {
    intake: { validation, payloadBytesMax, merges, redactor },
    redactor,
    compressor: {
      textBytesMax: open.maxTextBytes === 0 ? textBytesMax : open.maxTextBytes,
      maxAgeMs: open.maxAgeMs === 0 ? maxAgeMs : open.maxAgeMs,
      payloadBytesMax: Math.min(payloadBytesMax, COMPRESSOR_LIMITS.payloadBytesMax),
    },
    stopOnRefused: open.stopOnRefused,
    bytesMax: options.pushStreamBytesMax,
  };
}

function tooManyStreams(): ServiceError {
  const message = "too many push streams are open on this instance";
  return new ServiceError("overloaded", "TOO_MANY_STREAMS", message, {
    retryAfterMs: TOO_MANY_RETRY_AFTER_MS,
  });
}
