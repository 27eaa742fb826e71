/**
 * Serves a session to an AG-UI client that connects at any time. The client gets the same messages
 * and state as a client that was connected from the beginning:
 *
 *   RUN_STARTED of the newest run ─► MESSAGES_SNAPSHOT ─► STATE_SNAPSHOT ─► capabilities
 *     ─► questions of a graph ─► STARTs of open constructs ─► the live tail from the next row
 *     ─► the end of the run, and of the answer
 *
 * The watches of both streams begin before the session is folded and continue from the cut of the
 * fold, so no row is lost. The end of an ended run follows at once. A session that has messages and
 * no run comes as the snapshot of a run that the log does not have. Without either the client waits
 * for a run, up to a limit; with `follow` it waits without one, and stays for further runs.
 *
 * A client with a new message gets its answer (`answers`): the open run, if any, and every run up to
 * the one that has taken the message. Until a run begins, it keeps its messages as they are.
 *
 * Clients accept no events between runs. If the log has some, clients get the whole sequence again
 * when the next run begins, and rows of the watches up to that fold's cut are skipped. A session
 * whose snapshot is larger than one frame of a client is replayed (replay.ts).
 */
import type { Snapshot } from "./snapshot.ts";
import { type Generation, generationOf } from "@session-ledger/agui/generation/served";
import type { JsonObject } from "@session-ledger/agui/json";
import type { LiveState } from "../live/watcher.ts";
import { type EventRow, type MessageRow, lastSeqOf } from "../store/rows.ts";
import { expand } from "@session-ledger/compressor/expand";
import {
  attachAgui,
  type AguiOptions,
  type AguiParts,
  type AguiRequest,
  type AguiSetup,
  type AttachedWatches,
  isAwaited,
  type JoinedSession,
  joinAt,
} from "./attach.ts";
import { mergeWatches, type MergedDelivery } from "./merge-watches.ts";
import { transcriptTooLarge } from "./folding.ts";
import { FORGET, outlives, reorders } from "./client-messages.ts";
import type { Cut } from "./merging.ts";
import type { PlacedOpenings } from "./reopened-constructs.ts";
import {
  type AguiFrame,
  type EndedRun,
  endOf,
  eventFrames,
  type NoRun,
  noRunEvent,
  noRunnerEvents,
  stalledEvent,
  stateFrame,
  textFrames,
  waitingFrame,
  EventWriter,
  type AguiFrames,
} from "./event-writer.ts";
import { createReplay, type LivePosition } from "./replay.ts";
import { messagesOfRow } from "@session-ledger/agui/canonical/user-messages";
import { only, Pull } from "../base/pull.ts";
import type { CallContext } from "../contract/context.ts";

export type AguiJoin = (request: AguiRequest, context: CallContext) => AguiFrames;

export function createAguiJoin(parts: AguiParts, options: AguiOptions): AguiJoin {
  const setup = { ...parts, options };
  const replay = createReplay(setup);
  return async function* join(request, context) {
    let isReplayed = request.replay === "events";
    do {
      const place = isReplayed ? yield* replay(request, context) : undefined;
      if (isReplayed && place === undefined) return;
      const attached = place?.attached ?? (await attachAgui(setup, request, context));
      const joining = new Join(setup, request, attached);
      const frames = new Pull(joining.frames(place), only);
      try {
        while (frames.hasNext() || (await frames.read())) yield frames.take();
      } finally {
        attached.leave();
        await frames.close();
      }
      isReplayed = joining.isTooLarge;
    } while (isReplayed);
  };
}

const NOTHING_OPEN: PlacedOpenings = { before: [], after: [] };

class Join {
  readonly #parts: AguiSetup;
  readonly #request: AguiRequest;
  readonly #attached: AttachedWatches;
  readonly #generation: Generation;
  #writer: EventWriter | undefined;
  /** The first frames. */
  #opening: AguiFrame[] = [];
  /** The client has the session up to these numbers. */
  #seq = 0n;
  #messageSeq = 0n;
  /** The time of the newest row in the client's snapshot. */
  #snapshotMicros = 0n;
  #watchState: LiveState = "catching_up";
  #hasEnded = false;
  /** The client has messages that the next snapshot must remove. */
  #mustForget = false;
  /** The client has a new message, and has been sent nothing yet. */
  #isDeferred = false;
  isTooLarge = false;

  constructor(parts: AguiSetup, request: AguiRequest, attached: AttachedWatches) {
    this.#parts = parts;
    this.#request = request;
    this.#attached = attached;
    this.#generation = generationOf(request.protocolVersion);
  }

  /** Begins with the snapshot, or at the place that a replay has reached. */
  async *frames(place: LivePosition | undefined): AguiFrames {
    const { events, messages, stale } = this.#attached;
    const { upToSeq } = this.#request;
    await this.#open(place);
    while (this.#opening.length > 0) yield* this.#opening.splice(0, 1);
    if (this.isTooLarge && upToSeq !== undefined) throw transcriptTooLarge(upToSeq);
    if (this.#hasEnded || upToSeq !== undefined) return;
    const both = mergeWatches({
      events: place?.deliveries ?? events.follow({ after: this.#seq, until: undefined }),
      messages: messages.follow({ after: this.#messageSeq, until: undefined }),
    });
    const pull = new Pull(both, only);
    while (pull.hasNext() || (await pull.read())) {
      stale.setListening(false);
      yield* this.#onDelivery(pull.take());
      if (this.#hasEnded) return;
      stale.setListening(this.#watchState === "live");
    }
    if (stale.outcome === "stalled") yield* this.#eventFrames(stalledEvent(this.#parts.options));
    if (stale.outcome === "no_run") yield* this.#withoutRun();
  }

  /** A separate method, because a generator that waits would hold the snapshot (base/pull.ts). */
  async #open(place: LivePosition | undefined): Promise<void> {
    if (place !== undefined) {
      this.#opening = [...this.#resumeFrom(place)];
      return;
    }
    const { head, signal, caller } = this.#attached;
    const { sessionId, upToSeq } = this.#request;
    const { transcripts } = this.#parts;
    const now =
      upToSeq === undefined
        ? transcripts.snapshot(sessionId, head, signal)
        : transcripts.read(sessionId, { upToSeq, signal, caller });
    this.#opening = [...this.#framesFrom(await joinAt(this.#parts, sessionId, now))];
  }

  *#withoutRun(): Generator<AguiFrame> {
    const { metrics, options } = this.#parts;
    const writer = this.#writer;
    if (writer !== undefined && isAwaited(this.#request, writer)) {
      metrics.aguiInputs.inc({ outcome: "no_runner" });
      const run = writer.messagesRun(this.#messageSeq);
      for (const event of noRunnerEvents(run, options.runWaitMs)) yield* this.#eventFrames(event);
    } else if (!this.#attached.sessionExists) {
      yield* this.#eventFrames(noRunEvent(this.#noRun));
    }
  }

  *#resumeFrom({ writer, at, state, newestMicros }: LivePosition): Generator<AguiFrame> {
    this.#writer = writer;
    this.#seq = at.events;
    this.#messageSeq = at.messages;
    this.#watchState = state;
    if (!writer.isRunning && !writer.hasEnded) yield waitingFrame(this.#noRun);
    this.#resume(writer, newestMicros);
  }

  async *#onDelivery(delivery: MergedDelivery): AguiFrames {
    if (delivery.stream === "messages") {
      // Only the state of the events is reported; both streams have the same causes.
      if (delivery.kind === "rows") yield* this.#onMessages(delivery.rows);
    } else if (delivery.kind === "rows") {
      yield* this.#onEvents(delivery.rows);
    } else {
      this.#watchState = delivery.state;
      yield stateFrame(delivery.state, delivery.seq);
      this.#attached.stale.setState(delivery.state);
    }
  }

  async *#onMessages(rows: readonly MessageRow[]): AguiFrames {
    const writer = this.#writer;
    if (writer === undefined) return;
    const messages = rows
      .filter(({ seq, eventType }) => seq > this.#messageSeq && writer.includes(eventType))
      .map((row) => ({ ...messagesOfRow(row), seq: row.seq }));
    const last = rows.at(-1)?.seq ?? 0n;
    if (last > this.#messageSeq) this.#messageSeq = last;
    const { frames, isIncomplete } = writer.writeMessages(messages, this.#seq);
    if (!isIncomplete) yield* frames;
    else if (!this.#isDeferred) yield* this.#restart();
  }

  async *#onEvents(rows: readonly EventRow[]): AguiFrames {
    for (const row of rows) {
      const isExpanded = this.#request.replay === "events" && row.fragments !== undefined;
      for (const event of isExpanded ? expand(row) : [row]) {
        const seq = isExpanded ? event.seq : lastSeqOf(row);
        if (this.#writer === undefined || seq <= this.#seq) continue;
        this.#seq = seq;
        const output = this.#writer.writeEvent({ ...event, conformant: row.conformant }, seq);
        yield* output.frames;
        if (output.isIncomplete) {
          this.#mustForget = output.mustForget === true;
          yield* this.#restart(output.endedRun);
        } else {
          this.#resume(this.#writer, this.#parts.clock.nowMicros());
        }
        if (this.#hasEnded) return;
      }
    }
  }

  /** The whole sequence, as the session is now; inside of the client's run if that is the newest. */
  async *#restart(ended?: EndedRun): AguiFrames {
    const seen: Cut = { events: this.#seq, messages: this.#messageSeq };
    const { sessionId } = this.#request;
    const now = this.#parts.transcripts.current(sessionId, seen, this.#attached.signal);
    const joined = await joinAt(this.#parts, sessionId, now);
    const isWithin = ended !== undefined && joined.now.run?.startedSeq === ended.startedSeq;
    if (ended !== undefined && !isWithin) yield* this.#eventFrames(ended.end);
    yield* this.#framesFrom(joined, { isWithin });
  }

  *#framesFrom(
    joined: JoinedSession,
    { isWithin = false } = {},
  ): Generator<AguiFrame, void, undefined> {
    yield* this.#snapshotFrames(joined, isWithin);
    if (this.#writer !== undefined) this.#resume(this.#writer, this.#snapshotMicros);
  }

  /** A list, so that a client that does not read holds its frames, and not the snapshot as well. */
  #snapshotFrames(
    { now: snapshot, capabilities }: JoinedSession,
    isWithin: boolean,
  ): readonly AguiFrame[] {
    const { options, metrics } = this.#parts;
    const { run, failure, hasMessages, interrupts } = snapshot;
    const awaits = isAwaited(this.#request, snapshot);
    this.#isDeferred = awaits && run?.status !== "running";
    const hasSnapshot = !this.#isDeferred && (run !== undefined || hasMessages);
    if (hasSnapshot && snapshot.longest > options.snapshotLengthMax) {
      this.isTooLarge = true;
      this.#hasEnded = true;
      return [];
    }
    const isFirst = this.#writer === undefined;
    this.#seq = snapshot.cut.events;
    this.#messageSeq = snapshot.cut.messages;
    this.#snapshotMicros = snapshot.newestMicros ?? 0n;
    // Its snapshot has earlier events. Other messages of the client must go.
    const hasMore = snapshot.seq > 0n || capabilities.length > 0;
    const hasOther = hasMore || this.#request.messages.length > 0;
    const hasWithheld = this.#isDeferred || (!hasSnapshot && hasOther);
    this.#writer = new EventWriter(
      { canonical: snapshot.canonical(), generation: this.#generation, metrics },
      { hasWithheld, hasMessages, interrupts },
    );
    if (this.#isDeferred) return isFirst ? [waitingFrame(this.#noRun)] : [];
    if (isFirst && run === undefined) this.#hasEnded = this.#endsWithoutRun(snapshot);
    if (hasSnapshot) return [...this.#sequenceFrames({ now: snapshot, capabilities }, isWithin)];
    if (failure !== undefined) return this.#eventFrames(failure);
    return this.#hasEnded ? [] : [waitingFrame(this.#noRun)];
  }

  #endsWithoutRun({ failure, hasMessages }: Snapshot): boolean {
    const { follow, canWait } = this.#request;
    return !canWait || (!follow && (failure !== undefined || hasMessages));
  }

  get #noRun(): NoRun {
    const { sessionId, follow, answers } = this.#request;
    const waitMs = follow ? undefined : this.#parts.options.runWaitMs;
    return { sessionId, sessionExists: this.#attached.sessionExists, answers, waitMs };
  }

  /** `isWithin`: the client is in the run of the snapshot. */
  *#sequenceFrames(
    { now: snapshot, capabilities }: JoinedSession,
    isWithin: boolean,
  ): Generator<AguiFrame, void, undefined> {
    const { run } = snapshot;
    if (!isWithin) yield* this.#eventFrames(startedOf(snapshot));
    const { before, after } = run?.end === undefined ? snapshot.openings : NOTHING_OPEN;
    for (const opening of before) yield* this.#eventFrames(opening);
    // Messages that the openings made must go, reasoning too, and must not keep a place.
    if (before.length > 0 || this.#mustForget || this.#needsReset(snapshot)) {
      for (const event of FORGET) yield* this.#eventFrames(event);
    }
    this.#mustForget = false;
    yield* textFrames(snapshot.servedAs(this.#generation), { type: undefined, seq: this.#seq });
    for (const event of capabilities) yield* this.#eventFrames(event);
    for (const event of run?.questions ?? []) yield* this.#eventFrames(event);
    const end = endedOf(snapshot);
    if (end !== undefined) yield* this.#eventFrames(end);
    for (const opening of after) yield* this.#eventFrames(opening);
  }

  /** True when the snapshot would reorder messages of the client, or would not remove them. */
  #needsReset(snapshot: Snapshot): boolean {
    const { messages: clientMessages } = this.#request;
    if (snapshot.hadActivities) return true; // Clients do not state which activities they have.
    if (clientMessages.length === 0) return false;
    const { messageIds } = snapshot;
    return reorders(clientMessages, messageIds) || outlives(clientMessages, messageIds);
  }

  #eventFrames(event: JsonObject): readonly AguiFrame[] {
    return eventFrames(event, { generation: this.#generation, seq: this.#seq });
  }

  /** A row arrived at that time: sets the timer of the silence, and ends the answer if it is complete. */
  #resume(writer: EventWriter, atMicros: bigint): void {
    const { stale } = this.#attached;
    const awaits = isAwaited(this.#request, writer);
    if (writer.isRunning) stale.onEvent(atMicros);
    else if (awaits) stale.startWait();
    else if (writer.hasEnded || this.#request.follow) stale.clear();
    else stale.startWait();
    if (writer.hasEnded && !this.#request.follow && !awaits) this.#hasEnded = true;
  }
}

function startedOf({ run, messagesRun }: Snapshot): JsonObject {
  if (run === undefined) return { type: "RUN_STARTED", ...messagesRun };
  // The snapshot has the messages of the input, or leaves them out on purpose.
  const { input: _, ...started } = run.started;
  return started;
}

/** Undefined: the run is open. */
function endedOf(snapshot: Snapshot): JsonObject | undefined {
  const { run, failure, messagesRun, interrupts } = snapshot;
  if (run === undefined) return failure ?? endOf(messagesRun, interrupts);
  return run.end && snapshot.pendingOnly(run.end);
}
