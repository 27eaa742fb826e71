/**
 * Sends a session event by event from its beginning, with the user messages in their places. A
 * client asks for a replay, or gets one if its snapshot is too large. It ends as a join does, with
 * the run that was the newest at its beginning; if that run is open, the join continues.
 *
 * The deltas would be appended to messages that a returning client has, so the first run begins
 * with an empty snapshot, and the client may have to forget other messages (client-messages.ts).
 * Events between runs come as a snapshot, so the replay folds the log up to its place. Callers
 * share the limit of replays for that. An interrupt that a later run has answered is not sent: it
 * would be pending until that run ends.
 */
import type { JsonObject } from "@session-ledger/agui/json";
import { Budget, overloaded } from "../base/budget.ts";
import { expand } from "@session-ledger/compressor/expand";
import { type CallContext, callerOf } from "../contract/context.ts";
import { TimeSlice } from "../contract/time-slice.ts";
import type { Delivery, LiveState } from "../live/watcher.ts";
import { type EventRow, lastSeqOf } from "../store/rows.ts";
import {
  type AguiRequest,
  type AguiSetup,
  attachAgui,
  type AttachedWatches,
  isAwaited,
  type JoinedSession,
  joinAt,
} from "./attach.ts";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import type { CanonicalEvent } from "@session-ledger/agui/canonical/event";
import { type Generation, generationOf } from "@session-ledger/agui/generation/served";
import { FORGET, OWNS_ACTIVITIES } from "./client-messages.ts";
import {
  type AguiFrame,
  eventFrames,
  EventWriter,
  stateFrame,
  type AguiFrames,
} from "./event-writer.ts";
import { LEAVES, Transcript, withoutAnswered } from "@session-ledger/agui/transcript/transcript";
import type { FoldedMessages } from "./snapshot.ts";
import { transcriptTooLarge } from "./folding.ts";
import type { Cut } from "./merging.ts";

/** Where a client continues with the live tail. Its owner calls `leave` of `attached`. */
export interface LivePosition {
  readonly attached: AttachedWatches;
  readonly deliveries: AsyncGenerator<Delivery<"events">, void, undefined>;
  readonly state: LiveState;
  readonly writer: EventWriter;
  /** The client has the session up to these numbers. */
  readonly at: Cut;
  /** The time of the newest row. */
  readonly newestMicros: bigint;
}

/** Ends with the place from which the join continues, or with undefined. */
type ReplayFrames = (
  request: AguiRequest,
  context: CallContext,
) => AsyncGenerator<AguiFrame, LivePosition | undefined, undefined>;

export function createReplay(parts: AguiSetup): ReplayFrames {
  const { replaysMax } = parts.options;
  const limit = new Budget({ max: replaysMax });
  const full = `the service replays ${replaysMax} sessions, and takes no more at once`;
  parts.metrics.limitUse.share("replays", limit);
  return async function* replay(request, context) {
    const reserved = limit.mustReserve(callerOf(context), () =>
      overloaded("TOO_MANY_WATCHERS", full),
    );
    let attached: AttachedWatches | undefined;
    let place: LivePosition | undefined;
    try {
      attached = await attachAgui(parts, request, context);
      const { sessionId } = request;
      const now = parts.transcripts.snapshot(sessionId, attached.head, context.signal);
      const joined = await joinAt(parts, sessionId, now);
      const replaying = new Replay(parts, { request, attached, context, ...joined });
      yield* replaying.frames();
      place = replaying.livePosition;
      return place;
    } finally {
      if (place === undefined) attached?.leave();
      reserved.release();
    }
  };
}

interface OneReplay extends JoinedSession {
  readonly request: AguiRequest;
  readonly attached: AttachedWatches;
  readonly context: CallContext;
}

class Replay {
  readonly #parts: AguiSetup;
  readonly #request: AguiRequest;
  readonly #attached: AttachedWatches;
  readonly #signal: AbortSignal;
  readonly #generation: Generation;
  readonly #writer: EventWriter;
  readonly #transcript = new Transcript();
  readonly #slice = new TimeSlice();
  readonly #pending: readonly JsonObject[];
  readonly #hasState: boolean;
  /** The message rows, the next one first. */
  readonly #upcoming: UpcomingMessages;
  /** True: the first snapshot makes the client forget. No client states which activities it has. */
  #mustForget: boolean;
  /** The events that go after the first snapshot. */
  #capabilities: readonly JsonObject[];
  #seq = 0n;
  #newestMicros = 0n;
  #hasEnded = false;
  /** The place where the client continues live. */
  livePosition: LivePosition | undefined;

  constructor(parts: AguiSetup, { request, attached, context, now, capabilities }: OneReplay) {
    this.#parts = parts;
    this.#request = request;
    this.#attached = attached;
    this.#signal = context.signal;
    const generation = generationOf(request.protocolVersion);
    this.#generation = generation;
    const { interrupts, stateText } = now;
    this.#pending = interrupts;
    this.#hasState = stateText !== undefined;
    this.#upcoming = new UpcomingMessages(now.messageRows(), now.cut.messages);
    this.#capabilities = capabilities;
    this.#mustForget = request.messages.length > 0 || now.hadActivities;
    const canonical = new Canonical(request.sessionId);
    this.#writer = new EventWriter(
      {
        canonical,
        generation,
        metrics: parts.metrics,
        log: this.#transcript,
        onEvent: (event) => this.#onEvent(event),
        onMessages: (messages, isFromUser) => this.#onMessages(messages, isFromUser),
        snapshotFrames: (seq) => this.#snapshotFrames(seq),
      },
      { hasWithheld: true, hasMessages: false, interrupts: [] },
    );
  }

  async *frames(): AguiFrames {
    const { events, head } = this.#attached;
    const { follow, canWait } = this.#request;
    yield* this.#messageFrames();
    if (head.events === 0n && !canWait && !this.#isAwaited) return;
    const deliveries = events.follow({ after: 0n, until: undefined });
    let state: LiveState = "catching_up";
    while (this.#seq < head.events) {
      const { value: delivery } = await deliveries.next();
      if (delivery === undefined) return;
      if (delivery.kind === "state") {
        state = delivery.state;
        yield stateFrame(state, delivery.seq);
        this.#attached.stale.setState(state);
        continue;
      }
      for (const row of delivery.rows) {
        yield* this.#rowFrames(row);
        if (this.#hasEnded) return;
      }
    }
    if (this.#signal.aborted) return;
    const writer = this.#writer;
    const { hasStarted } = this.#upcoming;
    if (hasStarted && !writer.isRunning && !writer.hasEnded && !follow && !this.#isAwaited) return;
    writer.goLive();
    const at = { events: this.#seq, messages: this.#upcoming.seq };
    const attached = this.#attached;
    const newestMicros = this.#newestMicros;
    this.livePosition = { attached, deliveries, state, writer, at, newestMicros };
  }

  /** The messages whose place is here. */
  async *#messageFrames(): AguiFrames {
    for (;;) {
      const rows = this.#upcoming.takeAt(this.#seq);
      if (rows.length === 0) return;
      const turn = this.#slice.turn();
      if (turn !== undefined) await turn;
      if (this.#signal.aborted) return;
      yield* this.#writer.writeMessages(rows, this.#seq).frames;
    }
  }

  async *#rowFrames(row: EventRow): AguiFrames {
    // Otherwise the client comes here because its snapshot was too large.
    const isExpanded = this.#request.replay === "events";
    const { head } = this.#attached;
    const { conformant } = row;
    for (const event of isExpanded ? expand(row) : [row]) {
      // A million withheld events reach no sender that would give up its turn.
      const turn = this.#slice.turn();
      if (turn !== undefined) await turn;
      if (this.#signal.aborted) return;
      this.#seq = isExpanded && row.fragments !== undefined ? event.seq : lastSeqOf(row);
      yield* this.#writer.writeEvent({ ...event, conformant }, this.#seq).frames;
      yield* this.#messageFrames();
      if (this.#seq >= head.events && this.#isEnd()) {
        this.#hasEnded = true;
        return;
      }
    }
    this.#newestMicros = row.completedAtMicros ?? row.createdAtMicros;
  }

  get #isAwaited(): boolean {
    return isAwaited(this.#request, this.#writer);
  }

  /** At or above the head of the log: true when the replay is complete. */
  #isEnd(): boolean {
    const { follow, canWait } = this.#request;
    if (this.#isAwaited) return false;
    if (this.#writer.hasEnded) return !follow;
    return !this.#writer.isRunning && !canWait;
  }

  /** Reduces the event, and returns the event to send. */
  #onEvent(event: CanonicalEvent): CanonicalEvent {
    if (event.value["type"] === LEAVES) this.#mustForget = true;
    const replacing = this.#replacing(event.value);
    this.#transcript.apply(event.value);
    this.#refuseLarge();
    const isLive = this.#seq > this.#attached.head.events;
    const value = isLive ? replacing : withoutAnswered(replacing, this.#pending);
    return value === event.value ? event : { ...event, value, text: undefined };
  }

  #onMessages(messages: readonly JsonObject[], isFromUser: boolean): void {
    this.#transcript.say(messages, isFromUser ? "person" : "agent");
    this.#refuseLarge();
  }

  #refuseLarge(): void {
    const { replayBytesMax } = this.#parts.options;
    if (this.#transcript.bytes > replayBytesMax) throw transcriptTooLarge(this.#seq);
  }

  /** The first snapshot of an activity also overwrites that of an earlier connection. */
  #replacing(value: JsonObject): JsonObject {
    const keeps = value["type"] === "ACTIVITY_SNAPSHOT" && value["replace"] === false;
    return keeps && !this.#transcript.has(value["messageId"]) ? { ...value, replace: true } : value;
  }

  /** The snapshot of everything that the client should have by now. */
  #snapshotFrames(seq: bigint): readonly AguiFrame[] {
    const generation = this.#generation;
    const { state } = this.#transcript;
    const messages = this.#transcript.messages();
    const events: JsonObject[] = this.#mustForget ? [...FORGET] : [];
    this.#mustForget = false;
    events.push({ type: "MESSAGES_SNAPSHOT", messages, metadata: OWNS_ACTIVITIES });
    if (state !== undefined) events.push({ type: "STATE_SNAPSHOT", snapshot: state });
    else if (this.#hasState) events.push({ type: "STATE_SNAPSHOT", snapshot: {} });
    events.push(...this.#capabilities);
    this.#capabilities = [];
    // Events between runs are left out where their snapshot is too large for one frame.
    return events
      .flatMap((value) => eventFrames(value, { generation, seq }))
      .filter(({ data }) => data.length <= this.#parts.options.snapshotLengthMax);
  }
}

/** Rows that go out together; each has at most 1 MiB of text by default. */
const MESSAGE_ROWS_MAX = 8;

/** The message rows that a replay has not sent yet. */
class UpcomingMessages {
  readonly #rows: readonly FoldedMessages[];
  readonly #endSeq: bigint;
  #at = 0;

  /** `endSeq`: all rows up to this number that have messages are in `rows`. */
  constructor(rows: readonly FoldedMessages[], endSeq: bigint) {
    this.#rows = rows;
    this.#endSeq = endSeq;
  }

  get hasStarted(): boolean {
    return this.#at > 0;
  }

  /** Every row up to this number was taken, or has no messages. */
  get seq(): bigint {
    const next = this.#rows[this.#at];
    return next === undefined ? this.#endSeq : next.seq - 1n;
  }

  /** The next rows before the event after `seq`; empty without any. */
  takeAt(seq: bigint): readonly (FoldedMessages & { readonly key: undefined })[] {
    const end = Math.min(this.#at + MESSAGE_ROWS_MAX, this.#rows.length);
    const rows = [];
    for (; this.#at < end; this.#at += 1) {
      const row = this.#rows[this.#at];
      if (row === undefined || row.afterSeq > seq) break;
      rows.push({ ...row, key: undefined });
    }
    return rows;
  }
}
