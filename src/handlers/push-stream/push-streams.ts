/**
 * PushSessionEvents. A call begins with its `open` frame, which is answered from the table;
 * push-stream.ts handles the rest.
 *
 *   called ── open ──► allowed? ──► opening ── opened ──► a push stream
 *      │                  └──────────────┴─ refused, or another stream came first ──► over
 *      └─ anything else ──► over
 */
import {
  Compression,
  type Open,
  type PushSessionEventsRequest,
  type PushSessionEventsResponse,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { actorOf } from "../../auth/principal.ts";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { Budget, overloaded } from "../../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import type { Ingest } from "../../ingest/ingest.ts";
import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import { refuse } from "../../contract/checks.ts";
import { type BidiCaller, type BidiReceiver, callerOf } from "../../contract/context.ts";
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

/** Undefined: the caller may push to the session; throws or rejects if it may not. */
export type AllowSession = (sessionId: string) => void | Promise<void>;

/** Nothing is done for a session before `allow` has allowed it. */
export type OpenPushStream = (
  caller: BidiCaller<PushSessionEventsResponse>,
  allow: AllowSession,
) => BidiReceiver<PushSessionEventsRequest>;

export function createPushSessionEvents(
  parts: PushStreamParts,
  options: PushStreamOptions,
): OpenPushStream {
  const { metrics } = parts;
  const closed = new Map(GROUP_CLOSINGS.map((by) => [by, metrics.pushStreamGroups.labels({ by })]));
  const openStreams = new Budget({ max: options.pushStreamsMax });
  metrics.limitUse.share("push_streams", openStreams);
  const onGroupClose: StreamOptions["onGroupClose"] = (by) => closed.get(by)?.inc();
  return (caller, allow) => {
    const place = openStreams.mustReserve(callerOf(caller), tooManyStreams);
    const onEnd = (): void => {
      place.release();
      metrics.pushStreams.set(openStreams.used);
    };
    metrics.pushStreams.set(openStreams.used);
    return pushStreamCall(parts, caller, { ...options, onGroupClose, onEnd, allow });
  };
}

interface CallOptions extends PushStreamOptions, Pick<StreamOptions, "onGroupClose"> {
  readonly onEnd: () => void;
  readonly allow: AllowSession;
}

function pushStreamCall(
  parts: PushStreamParts,
  caller: BidiCaller<PushSessionEventsResponse>,
  options: CallOptions,
): BidiReceiver<PushSessionEventsRequest> {
  const { principal } = caller;
  let sessionId = "";
  let stream: PushStream | undefined;
  let hasEnded = false;
  let cancelWait: (() => void) | undefined;
  const leave = (): void => {
    if (hasEnded) return;
    hasEnded = true;
    cancelWait?.();
    options.onEnd();
  };
  const own = withEnd(caller, leave);
  const charge = (bytes: number): number => parts.rates.charge(principal, sessionId, bytes);

  async function open(request: Open): Promise<void> {
    const allowed = options.allow(sessionId);
    if (allowed !== undefined) await allowed;
    if (hasEnded) return;
    refuse(checkOpen(request));
    const waitMs = charge(0);
    if (waitMs > 0) await new Promise<void>((go) => (cancelWait = parts.timers.after(waitMs, go)));
    const { producerEpoch: epoch } = request;
    const opened = await parts.ingest.open({ sessionId, epoch }, () => hasEnded);
    if (hasEnded) return;
    const identity = { sessionId, opened, actor: actorOf(principal) };
    const made = new PushStream(
      { ...parts, charge },
      own,
      identity,
      streamOptions(request, options),
    );
    if (!parts.groups.enter(made)) return;
    stream = made;
    made.begin();
    if (opened.isCancelled) parts.onCancelledRun();
  }

  return {
    get record() {
      return { sessionId, counts: stream?.counts ?? {} };
    },
    get bufferedBytes() {
      return stream?.bufferedBytes ?? 0;
    },
    onMessage(request) {
      if (stream !== undefined) return stream.onMessage(request);
      if (request.frame.case === "open") {
        ({ sessionId } = request.frame.value);
        open(request.frame.value).catch((error: unknown) => own.end(ServiceError.from(error)));
      } else own.end(openFirst());
      return false;
    },
    onDecodeError: (error) => (stream === undefined ? own.end(error) : stream.onDecodeError(error)),
    onHalfClose: () => (stream === undefined ? own.end(openFirst()) : stream.onHalfClose()),
    onDrain: () => stream?.onDrain(),
    onClose() {
      stream?.onClose();
      leave();
    },
  };
}

/** The same caller; `onEnd` is called before its call ends. */
function withEnd<M>(caller: BidiCaller<M>, onEnd: () => void): BidiCaller<M> {
  return {
    principal: caller.principal,
    send: (message) => caller.send(message),
    get unsentBytes() {
      return caller.unsentBytes;
    },
    resume: () => caller.resume(),
    end(error) {
      onEnd();
      caller.end(error);
    },
  };
}

function streamOptions(open: Open, options: CallOptions): StreamOptions {
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
