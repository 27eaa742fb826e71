/**
 * One open push stream: raw events in, rows to ingest, acknowledgements out.
 *
 *                    batch, flush                 bytes, rows or refusals that wait at their limit
 *            ┌────────────────────────┐        ┌──────────────┐
 *            ▼                        │        ▼              │
 *   ───► listening ───────────────────┴──► not listening ─────┘ committed, or taken by the connection
 *            │  │                             │  │
 *            │  └── half-close ───────────────┤  ├── caller gone, deadline, stop: the group goes to
 *            │      a frame that is wrong     │  │   ingest, nothing waits ──────────────► over
 *            │      a refusal, where asked    │  ├── replaced, deleted, ingest refused ──► over
 *            ▼                                ▼
 *          ending: the group is closed; when all is acknowledged ── OK or the error ────────► over
 *
 * Sent events and events on disk share one line of numbers (commits.ts), so a break at any moment
 * loses nothing: the next stream begins after the last committed event.
 *
 * The group is closed by its compressor, its age, a flush, a unary push of the session, the end, and
 * the limit of unacknowledged bytes, where its caller waits for the next acknowledgement. At most
 * one acknowledgement waits for a slow reader; it covers all earlier ones. A frame is charged to the
 * rates of its caller; the next one is not read before the charge is paid.
 */
import type {
  Batch,
  PushSessionEventsRequest,
  PushSessionEventsResponse,
  RawEvent,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { Clock } from "@session-ledger/base/clock";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import type { Timers } from "@session-ledger/base/timers";
import type { BidiCaller } from "../../contract/context.ts";
import { googleStatusOf } from "../../contract/google-status.ts";
import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { OpenedStream } from "../../store/streams.ts";
import type { OpenGroups, StreamOfSession } from "./open-groups.ts";
import {
  type CommitMetrics,
  type CommitParts,
  type CommittedStream,
  HANDOVER_ROWS,
  StreamCommits,
} from "./commits.ts";
import { noFrame, openOnce, repeatedEvents } from "./accept-event.ts";
import { RowBuilder, type RowBuilderOptions } from "./row-builder.ts";

/** Uncommitted events of one stream: a limit for many small ones, which have few bytes. */
const EVENTS_MAX = 65_536;
/** Refusals and acknowledgements that a slow reader has not taken yet. */
const UNSENT_BYTES_MAX = 64 * 1024;
/** The longest time other callers may wait for one frame, checked after this much work. */
const TURN_MS = 10;
const TURN_UNITS = 65_536;
/** The cost of an event without content, in units of a payload. */
const EVENT_UNITS = 64;

export interface OpenStreamParts extends CommitParts {
  /** Charges a message; answers for how many milliseconds nothing may be read. */
  readonly charge: (bytes: number) => ReturnType<RateLimits["charge"]>;
  readonly timers: Timers;
  readonly groups: Pick<OpenGroups, "leave" | "takeRedactor">;
  readonly clock: Clock;
  readonly metrics: CommitMetrics & Pick<Metrics, "pushStreamPauses">;
}

export interface StreamOptions extends RowBuilderOptions {
  readonly stopOnRefused: boolean;
  /** The limit of payload bytes that are not committed; above it nothing is read. */
  readonly bytesMax: number;
}

type State = "open" | "ending" | "over";

/** The final status of an ending stream, and the frames to send before it. */
interface Ending {
  readonly error: ServiceError | undefined;
  refusedBytes: number | undefined;
}

export class PushStream implements StreamOfSession {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  readonly #parts: OpenStreamParts;
  readonly #options: StreamOptions;
  readonly #caller: BidiCaller<PushSessionEventsResponse>;
  readonly #commits: StreamCommits;
  readonly #rows: RowBuilder;
  #state: State = "open";
  #ending: Ending | undefined;
  /** The current batch and the index of its next event. */
  #events: readonly RawEvent[] = [];
  #next = 0;
  #isListening = true;
  /** Bytes of the current frame; undefined between two frames. */
  #frameBytes: number | undefined;
  #cancelPause: (() => void) | undefined;
  #cancelTimer: (() => void) | undefined;

  constructor(
    parts: OpenStreamParts,
    caller: BidiCaller<PushSessionEventsResponse>,
    { sessionId, opened, actor }: Omit<CommittedStream, "onSettle">,
    options: StreamOptions,
  ) {
    this.sessionId = sessionId;
    this.opened = opened;
    this.#parts = parts;
    this.#options = options;
    this.#caller = caller;
    const streaming = parts.groups.takeRedactor(sessionId, opened);
    this.#rows = new RowBuilder({ ...options, streaming });
    const onSettle = (error: ServiceError | undefined): void =>
      this.#guarded(() => this.#onSettle(error));
    this.#commits = new StreamCommits(parts, { sessionId, opened, actor, onSettle }, this.#rows);
  }

  get counts(): Readonly<Record<"events" | "refused" | "rows", number>> {
    const { received, refusedEvents, rowsHandedOver } = this.#commits;
    const { rowsWaiting, dueAtMs } = this.#rows;
    const rows = rowsHandedOver + rowsWaiting + (dueAtMs === undefined ? 0 : 1);
    return { events: received, refused: refusedEvents, rows };
  }

  get bufferedBytes(): number {
    return this.#commits.unacknowledgedBytes;
  }

  /** Answers the opening. */
  begin(): void {
    const { lastClientSeq, epoch, refused } = this.opened;
    const value = {
      $typeName: "ambient.v1.Opened",
      lastClientSeq,
      maxUnacknowledgedBytes: BigInt(this.#options.bytesMax),
      producerEpoch: epoch,
      refused,
    } as const;
    this.send({ case: "opened", value });
    this.#caller.resume();
  }

  /** Answers whether the next frame may come now. */
  onMessage({ frame }: PushSessionEventsRequest): boolean {
    switch (frame.case) {
      case "batch":
        return this.#onBatch(frame.value);
      case "flush":
        this.#flush();
        this.#chargeFrame();
        return this.#listen();
      case "open":
        return this.#end(openOnce());
      case undefined:
        return this.#end(noFrame());
    }
  }

  onDecodeError(error: ServiceError): void {
    this.#end(error);
  }

  onHalfClose(): void {
    this.#end(undefined);
  }

  /** The connection has taken some bytes. */
  onDrain(): void {
    if (this.#state === "over") return;
    this.#acknowledge();
    this.#takeMore();
  }

  /** The call is over; the received events are still committed. */
  onClose(): void {
    if (this.#state === "over") return;
    this.#closeGroup("end");
    this.#commits.handOver({ now: true });
    this.#leave();
  }

  closeGroup(): void {
    if (this.#state === "over") return;
    this.#closeGroup("push");
    this.#commits.handOver({ now: true });
  }

  #closeGroup(by: Parameters<RowBuilder["close"]>[0]): void {
    if (this.#rows.close(by)) this.#commits.closeGroup();
  }

  fence(error: ServiceError): void {
    if (this.#state === "over") return;
    this.#leave();
    this.#caller.end(error);
  }

  #onBatch(batch: Batch): boolean {
    const repeated = repeatedEvents(batch, this.#commits.next);
    if (typeof repeated !== "number") return this.#end(invalidArgument([repeated]));
    // A client that repeats committed events gets an acknowledgement.
    if (repeated > 0) this.#commits.owe();
    this.#events = batch.events;
    this.#next = repeated;
    return this.#take();
  }

  /** Takes the events of the batch up to its end, or up to a limit. */
  #take(): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    const nowMicros = this.#parts.clock.nowMicros();
    let units = 0;
    while (this.#next < this.#events.length) {
      if (this.#isFull()) this.#commits.handOver();
      if (this.#isFull()) break;
      if (units > TURN_UNITS) {
        if (this.#parts.clock.monotonicMs() - nowMs >= TURN_MS) {
          // A frame of 4 MiB has room for four snapshots that take long to validate.
          this.#parts.timers.after(0, () => this.#guarded(() => this.#takeMore()));
          break;
        }
        units = 0;
      }
      const event = this.#events[this.#next++];
      if (event === undefined) continue;
      this.#takeOne(event, { nowMs, nowMicros });
      units += event.payload.length + EVENT_UNITS;
    }
    if (this.#state !== "open") return false;
    if (this.#next === this.#events.length) {
      this.#events = [];
      this.#chargeFrame();
    }
    this.#commits.handOver();
    this.#acknowledge();
    this.#arm(nowMs);
    return this.#listen();
  }

  #takeOne(
    event: RawEvent,
    { nowMs, nowMicros }: { readonly nowMs: number; readonly nowMicros: bigint },
  ): void {
    const payloadBytes = Buffer.byteLength(event.payload);
    this.#frameBytes = (this.#frameBytes ?? 0) + payloadBytes;
    const result = this.#rows.add(event, { nowMs, nowMicros });
    if (result.ok) {
      this.#commits.addAccepted(payloadBytes, result.step);
    } else if (this.#options.stopOnRefused) {
      this.#end(result.error, payloadBytes);
      return;
    } else {
      this.#refuse(result.error);
      this.#commits.addRefused(payloadBytes);
    }
    if (this.#isMuch()) this.#closeGroup("bytes");
  }

  /** The caller may wait for an acknowledgement: the open group must not wait for its age. */
  #isMuch(): boolean {
    const { unacknowledgedBytes, openBytes, unacknowledgedEvents } = this.#commits;
    const { bytesMax } = this.#options;
    return (
      unacknowledgedBytes >= bytesMax ||
      openBytes * 2 >= bytesMax ||
      unacknowledgedEvents >= EVENTS_MAX
    );
  }

  #flush(): void {
    this.#closeGroup("flush");
    this.#commits.handOver();
    this.#commits.owe();
    this.#acknowledge();
  }

  /** True when the next event must wait for a commit, for the connection, or for the rate limit. */
  #isFull(): boolean {
    const { unacknowledgedBytes, unacknowledgedEvents } = this.#commits;
    return (
      this.#state !== "open" ||
      this.#cancelPause !== undefined ||
      unacknowledgedBytes >= this.#options.bytesMax ||
      unacknowledgedEvents >= EVENTS_MAX ||
      this.#rows.rowsWaiting >= HANDOVER_ROWS ||
      this.#caller.unsentBytes > UNSENT_BYTES_MAX
    );
  }

  #listen(): boolean {
    this.#isListening = this.#events.length === 0 && !this.#isFull();
    return this.#isListening;
  }

  /** Takes more events or frames, once room is free. */
  #takeMore(): void {
    if (this.#isListening || this.#state !== "open" || this.#isFull()) return;
    if (this.#events.length > 0 ? this.#take() : this.#listen()) this.#caller.resume();
  }

  #onSettle(error: ServiceError | undefined): void {
    if (this.#state === "over") return;
    this.#acknowledge({ now: error !== undefined });
    if (error !== undefined) return this.fence(error);
    this.#commits.handOver();
    if (this.#ending === undefined) this.#takeMore();
    else this.#finish(this.#ending);
  }

  /** While a slow reader has unread frames, the acknowledgement waits, but with `now`. */
  #acknowledge({ now }: { readonly now: boolean } = { now: false }): void {
    const { acknowledgement } = this.#commits;
    if (acknowledgement === undefined || (!now && this.#caller.unsentBytes > 0)) return;
    this.#commits.markAcknowledged(acknowledgement);
    this.send({
      case: "committed",
      value: { $typeName: "ambient.v1.Committed", ...acknowledgement },
    });
  }

  /** Before the acknowledgement that covers the number of the next event. */
  #refuse(error: ServiceError): void {
    const clientSeq = this.#commits.next;
    const status = googleStatusOf(error);
    this.send({ case: "refused", value: { $typeName: "ambient.v1.Refused", clientSeq, status } });
  }

  send(frame: PushSessionEventsResponse["frame"]): void {
    this.#caller.send({ $typeName: "ambient.v1.PushSessionEventsResponse", frame });
  }

  /** Charges the frame, and pauses until the charge is paid. */
  #chargeFrame(): void {
    const { charge, timers, metrics } = this.#parts;
    const waitMs = charge(this.#frameBytes ?? 0);
    this.#frameBytes = undefined;
    if (waitMs === 0) return;
    metrics.pushStreamPauses.inc();
    this.#cancelPause?.();
    this.#cancelPause = timers.after(waitMs, () => {
      this.#cancelPause = undefined;
      this.#guarded(() => this.#takeMore());
    });
  }

  /** Received events are committed and acknowledged, then comes the refusal, then the end. */
  #end(error: ServiceError | undefined, refusedBytes?: number): false {
    if (this.#state !== "open") return false;
    this.#state = "ending";
    this.#isListening = false;
    this.#events = [];
    this.#closeGroup("end");
    this.#commits.handOver();
    this.#ending = { error, refusedBytes };
    this.#finish(this.#ending);
    return false;
  }

  #finish(ending: Ending): void {
    if (!this.#commits.isCommitted) return;
    this.#acknowledge({ now: true });
    const { error, refusedBytes } = ending;
    if (error !== undefined && refusedBytes !== undefined) {
      ending.refusedBytes = undefined;
      this.#refuse(error);
      this.#commits.addRefused(refusedBytes);
      this.#commits.handOver();
      return;
    }
    this.#leave();
    this.#caller.end(error);
  }

  #leave(): void {
    this.#state = "over";
    this.#events = [];
    this.#cancelPause?.();
    this.#cancelPause = undefined;
    // The taken bytes of an unfinished frame.
    if (this.#frameBytes !== undefined) this.#parts.charge(this.#frameBytes);
    this.#frameBytes = undefined;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const { redactor } = this.#rows;
    const left = { epoch: this.opened.epoch, lastClientSeq: this.#commits.next - 1n };
    this.#parts.groups.leave(this, redactor && { ...left, redactor });
  }

  /** One timer, which is set again only after it has run: groups change much more often. */
  #arm(nowMs: number): void {
    const { dueAtMs } = this.#rows;
    if (dueAtMs === undefined || this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#parts.timers.after(Math.max(1, dueAtMs - nowMs), () =>
      this.#guarded(() => this.#closeDue()),
    );
  }

  /** A defect in a callback ends the stream, and not the service. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.fence(ServiceError.from(error));
    }
  }

  #closeDue(): void {
    this.#cancelTimer = undefined;
    const nowMs = this.#parts.clock.monotonicMs();
    if (this.#rows.closeDue(nowMs)) this.#commits.closeGroup();
    this.#commits.handOver();
    this.#arm(nowMs);
  }
}
