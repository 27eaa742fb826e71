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
 *          ending: the group is closed; when all is committed and told ── OK or the error ──► over
 *
 * What the caller has sent and what is on disk are one line of numbers (numbers.ts), so
 * that a break at any moment loses nothing: the next stream begins behind what was committed.
 *
 * The group is closed by its compressor, by its age, by a flush, by a unary push of the session, when
 * the unacknowledged bytes reach their limit (then the caller sends nothing before it is told of a
 * commit, and must not be left to wait for the age), and at the end. At most one acknowledgement waits
 * for a slow reader; a later one says all that it says. A caller above its rate is listened to later
 * (pace.ts).
 */
import type {
  Batch,
  PushSessionEventsRequest,
  RawEvent,
} from "../../../gen/ambient/v1/event_stream_pb.ts";
import { invalidArgument, ServiceError } from "../../base/errors.ts";
import type { OpenedStream } from "../../store/streams.ts";
import type { StreamOfSession } from "./open-groups.ts";
import { knownOf, noFrame, openOnce } from "./checks.ts";
import { HANDOVER_ROWS, StreamCommits } from "./commits.ts";
import type { StreamFrames } from "./frames.ts";
import { Intake } from "./intake.ts";
import { EVENT_UNITS, EVENTS_MAX, TURN_MS, TURN_UNITS, UNSENT_BYTES_MAX } from "./limits.ts";
import { Pace } from "./pace.ts";
import type { StreamIdentity, StreamOptions, StreamParts } from "./parts.ts";
import { StreamRows } from "./stream-rows.ts";

type State = "open" | "ending" | "over";

/** Why a stream that is ending will have ended, and what it has to say before. */
interface Ending {
  readonly error: ServiceError | undefined;
  refusedBytes: number | undefined;
}

export class PushStream implements StreamOfSession {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  readonly #parts: StreamParts;
  readonly #options: StreamOptions;
  readonly #frames: StreamFrames;
  readonly #intake: Intake;
  readonly #commits: StreamCommits;
  readonly #rows: StreamRows;
  readonly #pace: Pace;
  #state: State = "open";
  #ending: Ending | undefined;
  /** The batch under way, and its next event. */
  #events: readonly RawEvent[] = [];
  #next = 0;
  #listens = true;
  #cancelTimer: (() => void) | undefined;

  constructor(
    parts: StreamParts,
    frames: StreamFrames,
    { sessionId, opened, actor }: StreamIdentity,
    options: StreamOptions,
  ) {
    this.sessionId = sessionId;
    this.opened = opened;
    this.#parts = parts;
    this.#options = options;
    this.#frames = frames;
    this.#intake = new Intake(options.intake);
    const settled = (error: ServiceError | undefined): void =>
      this.#guarded(() => this.#settled(error));
    this.#commits = new StreamCommits(parts, { sessionId, opened, actor, settled });
    const texts = parts.openTexts.take(sessionId, opened);
    this.#rows = new StreamRows(this.#commits, parts.meter, { ...options, texts });
    this.#pace = new Pace(parts, () => this.#guarded(() => this.#goOn()));
  }

  get counts(): Readonly<Record<"events" | "refused" | "rows", number>> {
    const { numbers, rowsHanded, rowsWaiting } = this.#commits;
    const rows = rowsHanded + rowsWaiting + (this.#rows.isOpen ? 1 : 0);
    return { events: numbers.received, refused: numbers.refusedEvents, rows };
  }

  get keptBytes(): number {
    return this.#commits.numbers.unacknowledgedBytes;
  }

  /** Answers whether the next frame may come now. */
  heard({ frame }: PushSessionEventsRequest): boolean {
    switch (frame.case) {
      case "batch":
        return this.#hearBatch(frame.value);
      case "flush":
        this.#flush();
        this.#pace.frameTaken();
        return this.#mayListen();
      case "open":
        return this.#end(openOnce());
      case undefined:
        return this.#end(noFrame());
    }
  }

  misheard(error: ServiceError): void {
    this.#end(error);
  }

  heardAll(): void {
    this.#end(undefined);
  }

  /** The connection has taken something. */
  sent(): void {
    if (this.#state === "over") return;
    this.#acknowledge();
    this.#goOn();
  }

  /** The call is over; what was received is kept. */
  over(): void {
    if (this.#state === "over") return;
    this.#rows.close("end");
    this.#commits.handOver({ now: true });
    this.#leave();
  }

  closeGroup(): void {
    if (this.#state === "over") return;
    this.#rows.close("push");
    this.#commits.handOver({ now: true });
  }

  fence(error: ServiceError): void {
    if (this.#state === "over") return;
    this.#leave();
    this.#frames.end(error);
  }

  #hearBatch(batch: Batch): boolean {
    const { numbers } = this.#commits;
    const known = knownOf(batch, numbers.next);
    if (typeof known !== "number") return this.#end(invalidArgument([known]));
    // Whoever sends again what is on disk is told so.
    if (known > 0) this.#frames.owe();
    this.#events = batch.events;
    this.#next = known;
    return this.#take();
  }

  /** Takes the batch up to its end, or to a limit. */
  #take(): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    const nowMicros = this.#parts.clock.nowMicros();
    let units = 0;
    while (this.#next < this.#events.length) {
      if (this.#isFull()) this.#commits.handOver();
      if (this.#isFull()) break;
      if (units > TURN_UNITS) {
        if (this.#parts.clock.monotonicMs() - nowMs >= TURN_MS) {
          this.#goOnLater();
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
      this.#pace.frameTaken();
    }
    this.#commits.handOver();
    this.#acknowledge();
    this.#arm(nowMs);
    return this.#mayListen();
  }

  #takeOne(
    event: RawEvent,
    { nowMs, nowMicros }: { readonly nowMs: number; readonly nowMicros: bigint },
  ): void {
    const payloadBytes = Buffer.byteLength(event.payload);
    this.#pace.add(payloadBytes);
    const taken = this.#intake.take(event, nowMicros);
    if (taken.kind === "refused") {
      if (this.#options.stopOnRefused) {
        this.#end(taken.error, payloadBytes);
        return;
      }
      this.#frames.refused(this.#commits.numbers.next, taken.error);
    }
    this.#rows.add({ taken, payloadBytes, nowMs });
    if (this.#isMuch()) this.#rows.close("bytes");
  }

  /** The caller may be about to wait for an acknowledgement: what is open must not wait for its age. */
  #isMuch(): boolean {
    const { numbers } = this.#commits;
    const { bytesMax } = this.#options;
    return (
      numbers.unacknowledgedBytes >= bytesMax ||
      (numbers.openBytes + numbers.heldBytes) * 2 >= bytesMax ||
      numbers.unacknowledgedEvents >= EVENTS_MAX
    );
  }

  #flush(): void {
    this.#rows.close("flush");
    this.#commits.handOver();
    this.#frames.owe();
    this.#acknowledge();
  }

  /** Something has to be committed, taken by the connection, or paid for, before the next event. */
  #isFull(): boolean {
    const { numbers, rowsWaiting } = this.#commits;
    return (
      this.#state !== "open" ||
      this.#pace.isPausing ||
      numbers.unacknowledgedBytes >= this.#options.bytesMax ||
      numbers.unacknowledgedEvents >= EVENTS_MAX ||
      rowsWaiting >= HANDOVER_ROWS ||
      this.#frames.unsentBytes > UNSENT_BYTES_MAX
    );
  }

  #mayListen(): boolean {
    this.#listens = this.#events.length === 0 && !this.#isFull();
    return this.#listens;
  }

  /** In a turn of its own: a frame of 4 MiB has room for four snapshots that take long to validate. */
  #goOnLater(): void {
    this.#parts.timers.after(0, () => this.#guarded(() => this.#goOn()));
  }

  /** There may be room again. */
  #goOn(): void {
    if (this.#listens || this.#state !== "open" || this.#isFull()) return;
    if (this.#events.length > 0 ? this.#take() : this.#mayListen()) this.#frames.hearOn();
  }

  #settled(error: ServiceError | undefined): void {
    if (this.#state === "over") return;
    this.#acknowledge();
    if (error !== undefined) {
      this.#frames.acknowledgeNow();
      return this.fence(error);
    }
    this.#commits.handOver();
    if (this.#ending === undefined) this.#goOn();
    else this.#finish(this.#ending);
  }

  #acknowledge(): void {
    const { numbers, lastSeq } = this.#commits;
    this.#frames.acknowledge(
      { lastClientSeq: numbers.lastCommitted, lastSeq },
      numbers.isCommitted,
    );
  }

  /** Nothing more is taken; what was taken is committed and told, then the refused event, then the end. */
  #end(error: ServiceError | undefined, refusedBytes?: number): false {
    if (this.#state !== "open") return false;
    this.#state = "ending";
    this.#listens = false;
    this.#events = [];
    this.#rows.close("end");
    this.#commits.handOver();
    this.#ending = { error, refusedBytes };
    this.#finish(this.#ending);
    return false;
  }

  #finish(ending: Ending): void {
    const { numbers } = this.#commits;
    if (!numbers.isCommitted) return;
    this.#acknowledge();
    this.#frames.acknowledgeNow();
    const { error, refusedBytes } = ending;
    if (error !== undefined && refusedBytes !== undefined) {
      ending.refusedBytes = undefined;
      this.#frames.refused(numbers.next, error);
      numbers.receive(refusedBytes);
      numbers.refused(refusedBytes);
      this.#commits.handOver();
      return;
    }
    this.#leave();
    this.#frames.end(error);
  }

  #leave(): void {
    this.#state = "over";
    this.#events = [];
    this.#pace.stop();
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#parts.groups.leave(this);
    const { epoch } = this.opened;
    const left = { epoch, lastClientSeq: this.#commits.numbers.next - 1n };
    this.#parts.openTexts.leave(this.sessionId, left, this.#rows.openTexts);
  }

  /** One timer, that is set again only when it has run: groups come and go much faster. */
  #arm(nowMs: number): void {
    const { dueAtMs } = this.#rows;
    if (dueAtMs === undefined || this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#parts.timers.after(Math.max(1, dueAtMs - nowMs), () =>
      this.#guarded(() => this.#due()),
    );
  }

  /** What no caller waits for may not be lost either: a defect ends the stream, and not the service. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.fence(ServiceError.from(error));
    }
  }

  #due(): void {
    this.#cancelTimer = undefined;
    const nowMs = this.#parts.clock.monotonicMs();
    this.#rows.due(nowMs);
    this.#commits.handOver();
    this.#arm(nowMs);
  }
}
