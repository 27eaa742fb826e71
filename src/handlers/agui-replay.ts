/**
 * A session event by event from its beginning, for a client that wants to see it happen, or that could
 * not take its snapshot; then the live tail. It ends as a join does: with the run that is the newest
 * when the replay has come to where the log was when it began.
 *
 * A client that comes back has its messages still, and deltas would be appended to them; so the first
 * run begins with a snapshot of nothing. A client that says that it has messages is made to forget the
 * rest too (agui-forget.ts). One that has only activities does not say so: 1.0.0 lets go of them by
 * that snapshot, and in earlier ones each begins with one of its own that replaces it.
 *
 * What lay between runs comes as a snapshot too, of that moment, and so the replay reduces along: it
 * holds the session as far as it is, which is why there are few at once.
 *
 * An interrupt that a later run has answered would be pending in the client until that run ends: it is
 * not sent as one.
 */
import { Canonical, type CanonicalEvent } from "../agui/canonical/canonical.ts";
import { type Generation, generationOf } from "../agui/generation/served.ts";
import type { JsonObject } from "../agui/json.ts";
import { withoutAnswered } from "../agui/transcript/interrupts.ts";
import { Transcript } from "../agui/transcript/transcript.ts";
import { expand } from "../compressor/expand.ts";
import { ServiceError } from "../base/errors.ts";
import type { Standing } from "../live/watcher.ts";
import { type EventRow, lastSeqOf } from "../store/rows.ts";
import { attachAgui, type AguiSetup, type AguiRequest, type Attached } from "./agui-attach.ts";
import { FORGET, OWNS_ACTIVITIES } from "./agui-forget.ts";
import { type AguiFrame, eventFrames, stalledEvent, standingFrame } from "./agui-frames.ts";
import { refuseUnstored } from "./agui-kept.ts";
import { Pace } from "./agui-pace.ts";
import { Relay } from "./agui-relay.ts";
import type { CallContext } from "./context.ts";
import { TimeSlice } from "./time-slice.ts";
import { SessionTranscript } from "./transcripts.ts";
import { transcriptTooLarge } from "./transcripts-too-large.ts";
import { newestMicrosOf, type Snapshot } from "./transcripts-fold.ts";

export interface ReplayRequest extends AguiRequest {
  /** As the events were before they were merged into rows. */
  readonly isExpanded: boolean;
}

type Frames = AsyncGenerator<AguiFrame, void, undefined>;

export function createReplay(
  parts: AguiSetup,
): (request: ReplayRequest, context: CallContext) => Frames {
  let open = 0;
  return async function* replay(request, context) {
    const { replaysMax } = parts.options;
    if (open >= replaysMax) throw tooMany(replaysMax);
    open += 1;
    let attached: Attached | undefined;
    try {
      attached = await attachAgui(parts, request, context);
      const now = await parts.transcripts.snapshot(
        request.sessionId,
        attached.head,
        context.signal,
      );
      refuseUnstored(request.messages, now);
      yield* new Replay(parts, { request, attached, context, now }).frames();
    } finally {
      attached?.leave();
      open -= 1;
    }
  };
}

interface OneReplay {
  readonly request: ReplayRequest;
  readonly attached: Attached;
  readonly context: CallContext;
  /** The session as it was when the replay began, or later. */
  readonly now: Snapshot;
}

class Replay {
  readonly #parts: AguiSetup;
  readonly #request: ReplayRequest;
  readonly #attached: Attached;
  readonly #signal: AbortSignal;
  readonly #generation: Generation;
  readonly #pace: Pace | undefined;
  readonly #relay: Relay;
  readonly #transcript = new Transcript();
  readonly #slice = new TimeSlice();
  readonly #pending: readonly JsonObject[];
  readonly #hasState: boolean;
  /** The first snapshot: of nothing, to begin with. */
  #isFirst = true;
  #seq = 0n;
  #isOver = false;

  constructor(parts: AguiSetup, { request, attached, context, now }: OneReplay) {
    this.#parts = parts;
    this.#request = request;
    this.#attached = attached;
    this.#signal = context.signal;
    const { speed, sessionId } = request;
    const generation = generationOf(request.protocolVersion);
    this.#generation = generation;
    this.#pace =
      speed === undefined ? undefined : new Pace({ ...parts, signal: this.#signal }, { speed });
    const { interrupts, stateText } = new SessionTranscript(now);
    this.#pending = interrupts;
    this.#hasState = stateText !== undefined;
    const canonical = new Canonical(sessionId);
    this.#relay = new Relay(
      {
        canonical,
        generation,
        metrics: parts.metrics,
        onEvent: (event) => this.#reduced(event),
        makeUp: (seq) => this.#makeUp(seq),
      },
      { withheld: true },
    );
  }

  async *frames(): Frames {
    const { watcher, stale, head } = this.#attached;
    if (head === 0n && !this.#request.waits) return;
    let standing: Standing = "catching_up";
    for await (const delivery of watcher.follow({ after: 0n, until: undefined })) {
      stale.listens(false);
      if (delivery.kind === "standing") {
        standing = delivery.standing;
        yield standingFrame(standing, delivery.seq);
        stale.stands(standing);
      } else {
        for (const row of delivery.rows) {
          yield* this.#rowFrames(row);
          if (this.#isOver) return;
        }
      }
      stale.listens(standing === "live");
    }
    if (!stale.hasStalled) return;
    const generation = this.#generation;
    yield* eventFrames(stalledEvent(this.#parts.options), { generation, seq: this.#seq });
  }

  async *#rowFrames(row: EventRow): Frames {
    const { isExpanded } = this.#request;
    const { head, stale } = this.#attached;
    const { conformant } = row;
    for (const event of isExpanded ? expand(row) : [row]) {
      // A million events that are withheld come to no sender which would do that.
      const turn = this.#slice.turn();
      if (turn !== undefined) await turn;
      // What came after the replay had begun is live, and has its own pace.
      if (event.seq <= head) await this.#pace?.until(event.createdAtMicros);
      if (this.#signal.aborted) return;
      this.#seq = isExpanded && row.fragments !== undefined ? event.seq : lastSeqOf(row);
      yield* this.#relay.next({ ...event, conformant }, this.#seq).frames;
      if (this.#seq >= head && this.#isEnd()) {
        this.#isOver = true;
        return;
      }
    }
    const isLive = this.#seq > head;
    if (this.#seq < head) return;
    if (!this.#relay.isRunning) stale.rest();
    else stale.happened(isLive ? this.#parts.clock.nowMicros() : newestMicrosOf(row));
  }

  /** At the head of the log, or beyond. */
  #isEnd(): boolean {
    const { follow, waits } = this.#request;
    if (this.#relay.isOver) return !follow;
    return !this.#relay.isRunning && !waits;
  }

  /** The event as it is to be told, after it was reduced. */
  #reduced(event: CanonicalEvent): CanonicalEvent {
    const begun = this.#begun(event.value);
    this.#transcript.apply(event.value);
    if (this.#transcript.bytes > this.#parts.options.replayBytesMax) {
      throw transcriptTooLarge(this.#seq);
    }
    const isLive = this.#seq > this.#attached.head;
    const value = isLive ? begun : withoutAnswered(begun, this.#pending);
    return value === event.value ? event : { ...event, value, text: undefined };
  }

  /** Its first snapshot sets an activity also in a client that has kept it, and takes no other. */
  #begun(value: JsonObject): JsonObject {
    const keeps = value["type"] === "ACTIVITY_SNAPSHOT" && value["replace"] === false;
    return keeps && !this.#transcript.has(value["messageId"]) ? { ...value, replace: true } : value;
  }

  /** What the client would have by now. */
  #makeUp(seq: bigint): readonly AguiFrame[] {
    const generation = this.#generation;
    const hasKept = this.#isFirst && this.#request.messages.length > 0;
    this.#isFirst = false;
    const { state } = this.#transcript;
    const messages = this.#transcript.messages();
    const told: JsonObject[] = hasKept ? [...FORGET] : [];
    told.push({ type: "MESSAGES_SNAPSHOT", messages, metadata: OWNS_ACTIVITIES });
    if (state !== undefined) told.push({ type: "STATE_SNAPSHOT", snapshot: state });
    else if (this.#hasState) told.push({ type: "STATE_SNAPSHOT", snapshot: {} });
    // Where it is too much for one frame, what lay between runs stays untold.
    return told
      .flatMap((value) => eventFrames(value, { generation, seq }))
      .filter(({ data }) => data.length <= this.#lengthMax);
  }

  get #lengthMax(): number {
    return this.#parts.options.snapshotLengthMax;
  }
}

function tooMany(max: number): ServiceError {
  const message = `the service replays ${max} sessions, and takes no more at once`;
  return new ServiceError("overloaded", "TOO_MANY_WATCHERS", message, { retryAfterMs: 1_000 });
}
