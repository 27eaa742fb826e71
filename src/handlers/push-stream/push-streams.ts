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
import { Budget, overloaded } from "../../base/budget.ts";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import type { Ingest } from "../../ingest/ingest.ts";
import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { OpenedStream } from "../../store/streams.ts";
import {
  type BidiCaller,
  type BidiReceiver,
  type BidiRecord,
  callerOf,
  type Handlers,
} from "../../contract/context.ts";
import type { OpenGroups } from "./open-groups.ts";
import { checkOpen, openFirst } from "./accept-event.ts";
import { GROUP_CLOSINGS } from "./row-builder.ts";
import { type OpenStreamParts, PushStream, type StreamOptions } from "./push-stream.ts";

export interface PushStreamParts
  extends Omit<OpenStreamParts, "groups" | "metrics" | "leftRedactors" | "ingest" | "charge"> {
  readonly rates: Pick<RateLimits, "charge">;
  readonly ingest: Pick<Ingest, "push" | "open">;
  readonly groups: OpenStreamParts["groups"] & Pick<OpenGroups, "enter">;
  readonly metrics: OpenStreamParts["metrics"] &
    Pick<Metrics, "limitUse" | "pushStreams" | "pushStreamGroups">;
  /** Called when a stream of a session with a cancelled run has opened. */
  readonly onCancelledRun: () => void;
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

export function createPushSessionEvents(
  parts: PushStreamParts,
  options: PushStreamOptions,
): Handlers<typeof SessionService>["pushSessionEvents"] {
  const { metrics } = parts;
  const closed = new Map(GROUP_CLOSINGS.map((by) => [by, metrics.pushStreamGroups.labels({ by })]));
  const openStreams = new Budget({ max: options.pushStreamsMax });
  metrics.limitUse.share("push_streams", openStreams);
  const onGroupClose: StreamOptions["onGroupClose"] = (by) => closed.get(by)?.inc();
  return (caller) => {
    const place = openStreams.mustReserve(callerOf(caller), tooManyStreams);
    const onEnd = (): void => {
      place.release();
      metrics.pushStreams.set(openStreams.used);
    };
    metrics.pushStreams.set(openStreams.used);
    return new PushStreamCall(parts, caller, { ...options, onGroupClose, onEnd });
  };
}

interface PushStreamCallOptions extends PushStreamOptions, Pick<StreamOptions, "onGroupClose"> {
  readonly onEnd: () => void;
}

class PushStreamCall implements BidiReceiver<PushSessionEventsRequest> {
  readonly #parts: PushStreamParts;
  readonly #caller: BidiCaller<PushSessionEventsResponse>;
  readonly #options: PushStreamCallOptions;
  #sessionId = "";
  #stream: PushStream | undefined;
  #hasEnded = false;
  #cancelWait: (() => void) | undefined;

  constructor(
    parts: PushStreamParts,
    caller: BidiCaller<PushSessionEventsResponse>,
    options: PushStreamCallOptions,
  ) {
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
        this.#onEnd();
        caller.end(error);
      },
    };
  }

  get record(): BidiRecord {
    return { sessionId: this.#sessionId, counts: this.#stream?.counts ?? {} };
  }

  get bufferedBytes(): number {
    return this.#stream?.bufferedBytes ?? 0;
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
    this.#onEnd();
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
      if (!this.#hasEnded) this.#onOpen(open, opened);
    } catch (error) {
      this.#caller.end(ServiceError.from(error));
    }
  }

  #onOpen(open: Open, opened: OpenedStream): void {
    const actor = actorOf(this.#caller.principal);
    const identity = { sessionId: open.sessionId, opened, actor };
    const options = streamOptions(open, this.#options);
    const parts = { ...this.#parts, charge: (bytes: number) => this.#charge(bytes) };
    const stream = new PushStream(parts, this.#caller, identity, options);
    if (!this.#parts.groups.enter(stream)) return;
    this.#stream = stream;
    stream.begin();
    if (opened.isCancelled) this.#parts.onCancelledRun();
  }

  #onEnd(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#cancelWait?.();
    this.#options.onEnd();
  }
}

function streamOptions(open: Open, options: PushStreamCallOptions): StreamOptions {
  const { textBytesMax, maxAgeMs } = COMPRESSOR_LIMITS;
  const { payloadBytesMax, pushStreamBytesMax: bytesMax } = options;
  return {
    ...options,
    merges: open.compression !== Compression.OFF,
    redactor: options.redactor,
    compressor: {
      textBytesMax: open.maxTextBytes === 0 ? textBytesMax : open.maxTextBytes,
      maxAgeMs: open.maxAgeMs === 0 ? maxAgeMs : open.maxAgeMs,
      payloadBytesMax: Math.min(payloadBytesMax, COMPRESSOR_LIMITS.payloadBytesMax),
    },
    stopOnRefused: open.stopOnRefused,
    bytesMax,
  };
}

function tooManyStreams(): ServiceError {
  return overloaded("TOO_MANY_STREAMS", "too many push streams are open on this instance");
}
