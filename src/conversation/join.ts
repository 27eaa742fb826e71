/**
 * Serves a session to an AG-UI client that connects at any time. The client gets the same messages
 * and state as a client that was connected from the beginning:
 *
 *   RUN_STARTED of the newest run ─► MESSAGES_SNAPSHOT ─► STATE_SNAPSHOT ─► STARTs of open constructs
 *     ─► the live tail from exactly the next row ─► the end of the run, and of the answer
 *
 * The watch begins before the log is folded, so no row is lost between the two, and it continues
 * from the number of the fold. The end of an ended run follows at once. Without a run the client
 * waits for one, up to a limit. With `follow` it waits without a limit, and stays for further runs.
 *
 * Clients accept no events between runs. If there were such events, clients lack them when the next
 * run begins. Then they get the whole sequence again, from the fold at that moment, and rows of the
 * watch up to its number are skipped.
 *
 * A session whose snapshot is larger than one frame of a client is replayed, row by row
 * (replay.ts).
 */
import type { CanonicalRun } from "./canonical/canonical.ts";
import type { PlacedOpenings, Snapshot } from "./fold.ts";
import { type Generation, generationOf } from "./generation/served.ts";
import type { JsonObject } from "../agui/json.ts";
import type { Delivery, Standing } from "../live/watcher.ts";
import { expand } from "../compressor/expand.ts";
import { lastSeqOf } from "../store/rows.ts";
import {
  attachAgui,
  type AguiOptions,
  type AguiParts,
  type AguiRequest,
  type AguiSetup,
  type Attached,
} from "./attach.ts";
import { FORGET, outlives, refuseUnstored, reorders } from "./kept.ts";
import {
  type AguiFrame,
  eventFrames,
  type NoRun,
  noRunEvent,
  stalledEvent,
  standingFrame,
  textFrames,
  waitingFrame,
  Relay,
} from "./relay.ts";
import { createReplay, type LivePlace } from "./replay.ts";
import type { CallContext } from "../contract/context.ts";

export type { AguiRequest } from "./attach.ts";
export type { AguiFrame } from "./relay.ts";

export type AguiJoin = (
  request: AguiRequest,
  context: CallContext,
) => AsyncGenerator<AguiFrame, void, undefined>;

export function createAguiJoin(parts: AguiParts, options: AguiOptions): AguiJoin {
  const setup = { ...parts, options };
  const replay = createReplay(setup);
  return async function* join(request, context) {
    const isExpanded = request.replay === "events";
    let isReplayed = isExpanded;
    let speed = request.speed;
    do {
      const place = isReplayed
        ? yield* replay({ ...request, speed, isExpanded }, context)
        : undefined;
      if (isReplayed && place === undefined) return;
      const attached = place?.attached ?? (await attachAgui(setup, request, context));
      const joining = new Join(setup, request, attached);
      try {
        yield* joining.frames(place);
      } finally {
        attached.leave();
      }
      isReplayed = joining.isTooLarge;
      speed = undefined;
    } while (isReplayed);
  };
}

type Frames = AsyncGenerator<AguiFrame, void, undefined>;

const NOTHING_OPEN: PlacedOpenings = { before: [], after: [] };

class Join {
  readonly #parts: AguiSetup;
  readonly #request: AguiRequest;
  readonly #attached: Attached;
  readonly #generation: Generation;
  #relay: Relay | undefined;
  /** The client has the session up to this number. */
  #seq = 0n;
  /** The time of the newest row in the client's snapshot. */
  #begunMicros = 0n;
  #standing: Standing = "catching_up";
  #isOver = false;
  isTooLarge = false;

  constructor(parts: AguiSetup, request: AguiRequest, attached: Attached) {
    this.#parts = parts;
    this.#request = request;
    this.#attached = attached;
    this.#generation = generationOf(request.protocolVersion);
  }

  /** Begins with the snapshot, or at the place that a replay has reached. */
  async *frames(place: LivePlace | undefined): Frames {
    const { watcher, stale, head } = this.#attached;
    if (place === undefined) {
      const snapshot = await this.#snapshot(head);
      refuseUnstored(this.#request.messages, snapshot);
      yield* this.#from(snapshot);
    } else {
      yield* this.#goFrom(place);
    }
    if (this.#isOver) return;
    const rest = place?.deliveries ?? watcher.follow({ after: this.#seq, until: undefined });
    for await (const delivery of rest) {
      stale.listens(false);
      yield* this.#told(delivery);
      if (this.#isOver) return;
      stale.listens(this.#standing === "live");
    }
    if (stale.outcome === "stalled") yield* this.#eventFrames(stalledEvent(this.#parts.options));
    if (stale.outcome === "no_run" && !this.#attached.isThere) {
      yield* this.#eventFrames(noRunEvent(this.#noRun));
    }
  }

  *#goFrom({ relay, seq, standing, newestMicros }: LivePlace): Generator<AguiFrame> {
    this.#relay = relay;
    this.#seq = seq;
    this.#standing = standing;
    if (!relay.isRunning && !relay.isOver) yield waitingFrame(this.#noRun);
    this.#goesOn(relay, newestMicros);
  }

  async *#told(delivery: Delivery<"events">): Frames {
    if (delivery.kind === "standing") {
      this.#standing = delivery.standing;
      yield standingFrame(delivery.standing, delivery.seq);
      this.#attached.stale.stands(delivery.standing);
      return;
    }
    for (const row of delivery.rows) {
      const isExpanded = this.#request.replay === "events" && row.fragments !== undefined;
      for (const event of isExpanded ? expand(row) : [row]) {
        const seq = isExpanded ? event.seq : lastSeqOf(row);
        if (this.#relay === undefined || seq <= this.#seq) continue;
        this.#seq = seq;
        const { frames, lacks } = this.#relay.next({ ...event, conformant: row.conformant }, seq);
        if (lacks) {
          yield* this.#from(await this.#snapshot(seq));
        } else {
          yield* frames;
          this.#goesOn(this.#relay, this.#parts.clock.nowMicros());
        }
        if (this.#isOver) return;
      }
    }
  }

  *#from(snapshot: Snapshot): Generator<AguiFrame, void, undefined> {
    yield* this.#begun(snapshot);
    if (this.#relay !== undefined) this.#goesOn(this.#relay, this.#begunMicros);
  }

  /** The snapshot of the log at `seq` or later. */
  #snapshot(seq: bigint): Promise<Snapshot> {
    const { transcripts } = this.#parts;
    return transcripts.snapshot(this.#request.sessionId, seq, this.#attached.signal);
  }

  /** A list, so that a client that does not read holds its frames, and not the snapshot as well. */
  #begun(snapshot: Snapshot): readonly AguiFrame[] {
    const { options, metrics } = this.#parts;
    const { run, failure } = snapshot;
    if (run !== undefined && snapshot.longest > options.snapshotLengthMax) {
      this.isTooLarge = true;
      this.#isOver = true;
      return [];
    }
    this.#seq = snapshot.seq;
    this.#begunMicros = snapshot.newestMicros ?? 0n;
    this.#relay = new Relay(
      { canonical: snapshot.canonical(), generation: this.#generation, metrics },
      // Events before the first run are in its snapshot. A client may also have other messages,
      // which must go.
      { withheld: run === undefined && (snapshot.seq > 0n || this.#request.messages.length > 0) },
    );
    const hasNone = run === undefined && failure === undefined;
    if (hasNone && !this.#request.waits) this.#isOver = true;
    if (failure !== undefined && !this.#request.follow) this.#isOver = true;
    if (run !== undefined) return [...this.#snapshotFrames(snapshot, run)];
    if (failure !== undefined) return this.#eventFrames(failure);
    return this.#isOver ? [] : [waitingFrame(this.#noRun)];
  }

  get #noRun(): NoRun {
    const { sessionId, follow } = this.#request;
    const waitMs = follow ? undefined : this.#parts.options.runWaitMs;
    return { sessionId, isThere: this.#attached.isThere, waitMs };
  }

  *#snapshotFrames(snapshot: Snapshot, run: CanonicalRun): Generator<AguiFrame, void, undefined> {
    // The snapshot has the messages of the input, or leaves them out on purpose.
    const { input: _, ...started } = run.started;
    yield* this.#eventFrames(started);
    const { before, after } = run.end === undefined ? snapshot.openings : NOTHING_OPEN;
    for (const opening of before) yield* this.#eventFrames(opening);
    // Messages that the openings made must go, reasoning too, and must not keep a place.
    if (before.length > 0 || this.#hasOther(snapshot)) {
      for (const event of FORGET) yield* this.#eventFrames(event);
    }
    yield* textFrames(snapshot.servedAs(this.#generation), { type: undefined, seq: this.#seq });
    if (run.end !== undefined) yield* this.#eventFrames(snapshot.pendingOnly(run.end));
    for (const opening of after) yield* this.#eventFrames(opening);
  }

  /**
   * True when the client has messages that the snapshot would put in another order, or would not
   * remove.
   */
  #hasOther(snapshot: Snapshot): boolean {
    const { messages: kept } = this.#request;
    if (snapshot.hadActivities) return true; // Clients do not state which activities they have.
    if (kept.length === 0) return false;
    const { messageIds } = snapshot;
    return reorders(kept, messageIds) || outlives(kept, messageIds);
  }

  #eventFrames(event: JsonObject): readonly AguiFrame[] {
    return eventFrames(event, { generation: this.#generation, seq: this.#seq });
  }

  /** Something happened at that time, in the open run if there is one. */
  #goesOn(relay: Relay, atMicros: bigint): void {
    const { stale } = this.#attached;
    if (relay.isRunning) stale.happened(atMicros);
    else if (relay.isOver || this.#request.follow) stale.rest();
    else stale.waits();
    if (relay.isOver && !this.#request.follow) this.#isOver = true;
  }
}
