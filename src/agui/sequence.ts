/**
 * Finds the events of one session that are out of order for AG-UI clients. Such events are counted
 * and not refused, because people read the logs of crashed runners.
 *
 *                          RUN_STARTED
 *   before, unknown ───────────────────────► open ──┬─ RUN_FINISHED ─► finished ─┐
 *                                             ▲     └─ RUN_ERROR ────► failed ───┤
 *                                             └───────── RUN_STARTED ────────────┘
 *
 * `before` is a session whose every event was seen. `unknown` is a session whose beginning was not
 * seen: nothing is counted for it until an event begins or ends a run.
 *
 * The rules are those by which `verifyEvents`, after `transformChunks`, refuses a stream in
 * @ag-ui/client: each type as in the newest version that has it, 1.0.0, and for THINKING_* 0.0.59.
 * One rule is left out because it does not concern order: whether an event names the same subagent
 * as before. A client stops at the first event out of order; here each event is judged by the
 * constructs that are open at its time. So every delta of a text whose START was lost is out of
 * order, and a RUN_STARTED in an open run begins another run.
 *
 * The open constructs are one map, from an id to the kinds that are open under it, so an event in
 * order costs one look-up. Above OPEN_IDS_MAX ids, and for an id that is too long, nothing is
 * noted. Then, until the run ends, a fragment or an END without an open construct is not counted,
 * because it may be in order.
 */
import type { ConstructKind } from "./catalogue.ts";
import {
  type Chunked,
  ChunkLanes,
  type Effect,
  EFFECTS,
  type EventPlace,
  KEY_CHARS_MAX,
  OPEN_IDS_MAX,
  type Phase,
  phaseAfter,
} from "./constructs.ts";

export const SEQUENCE_RULES = [
  "outside_run",
  "after_run_end",
  "run_already_open",
  "start_twice",
  "fragment_without_start",
  "end_without_start",
  "run_finished_with_open_construct",
] as const;

type SequenceRule = (typeof SEQUENCE_RULES)[number];

/** One bit per kind of construct, so that one number holds the kinds that are open under one id. */
const BITS = {
  run: 0, // At most one run is open, and it needs no id here.
  step: 1,
  text: 2,
  tool_call: 4,
  thinking: 8,
  thinking_message: 16,
  reasoning: 32,
  reasoning_message: 64,
  subagent: 128,
} as const satisfies Record<ConstructKind, number>;

/** A subagent's id is for one invocation: it may not start again in the run. */
const SUBAGENT_ENDED = 256;

/** Constructs that may be open at the end of a run: 0.0.59 accepted thinking, 1.0.0 has none. */
const MAY_STAY_OPEN = BITS.thinking | BITS.thinking_message | SUBAGENT_ENDED;

export class Sequence {
  #phase: Phase;
  /** Empty between runs. */
  readonly #open = new Map<string, number>();
  /** The number of open constructs that must end before the run finishes. */
  #unfinished = 0;
  readonly #lanes = new ChunkLanes();
  /** True when a started construct is not in `#open`. */
  #isFull = false;

  constructor(phase: "before" | "unknown") {
    this.#phase = phase;
  }

  /** The number of ids in memory. */
  get ids(): number {
    return this.#open.size + this.#lanes.size;
  }

  /** Takes the next event; returns the rule that it breaks. */
  observe(place: EventPlace): SequenceRule | undefined {
    const effect = EFFECTS.get(place.type);
    if (effect === undefined) return undefined;
    if (this.#phase !== "open") return this.#outsideRun(effect);
    const { known, ended } = this.#lanes.follow(effect, place);
    const late = ended.length === 0 ? undefined : this.#endEach(ended);
    return this.#judge(effect, place, known) ?? late;
  }

  #judge(effect: Effect, place: EventPlace, known: Chunked | undefined): SequenceRule | undefined {
    const bit = effect.kind === undefined ? 0 : BITS[effect.kind];
    switch (effect.does) {
      case "start":
        return this.#start(bit, place.key ?? "");
      case "fragment":
        return this.#fragment(bit, place.key ?? "");
      case "chunk":
        return known === undefined
          ? this.#beginChunked(effect.kind, place)
          : this.#fragment(bit, known.key);
      case "end":
        return this.#end(bit, place.key ?? "");
      case "nothing":
        return undefined;
      case "open_run":
        this.#enter("open");
        return "run_already_open";
      case "fail_run":
        this.#enter("failed");
        return undefined;
      case "finish_run": {
        const isFinished = this.#unfinished === 0;
        this.#enter("finished");
        return isFinished ? undefined : "run_finished_with_open_construct";
      }
    }
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#open.clear();
    this.#unfinished = 0;
    this.#isFull = false;
  }

  #outsideRun(effect: Effect): SequenceRule | undefined {
    const phase = this.#phase;
    const next = phaseAfter(phase, effect);
    if (next !== undefined) this.#enter(next);
    if (next === "open" || next === "failed" || phase === "unknown") return undefined;
    return phase === "before" ? "outside_run" : "after_run_end";
  }

  #isOpen(bit: number, key: string): boolean {
    return ((this.#open.get(key) ?? 0) & bit) !== 0 || this.#isFull;
  }

  #start(bit: number, key: string): SequenceRule | undefined {
    const bits = this.#open.get(key) ?? 0;
    if ((bits & bit) !== 0) return "start_twice";
    const isPart = bit === BITS.thinking_message; // A part of the thinking around it.
    const rule = isPart && !this.#isOpen(BITS.thinking, key) ? "fragment_without_start" : undefined;
    if (bits === 0 && (this.#open.size >= OPEN_IDS_MAX || key.length > KEY_CHARS_MAX)) {
      this.#isFull = true;
      return rule;
    }
    this.#open.set(key, bits | bit);
    if ((bit & MAY_STAY_OPEN) === 0) this.#unfinished += 1;
    return bit === BITS.subagent && (bits & SUBAGENT_ENDED) !== 0 ? "start_twice" : rule;
  }

  #fragment(bit: number, key: string): SequenceRule | undefined {
    return this.#isOpen(bit, key) ? undefined : "fragment_without_start";
  }

  #end(bit: number, key: string): SequenceRule | undefined {
    const bits = this.#open.get(key) ?? 0;
    if ((bits & bit) === 0) return this.#isFull ? undefined : "end_without_start";
    const left = (bits & ~bit) | (bit === BITS.subagent ? SUBAGENT_ENDED : 0);
    if (left === 0) this.#open.delete(key);
    else this.#open.set(key, left);
    if ((bit & MAY_STAY_OPEN) === 0) this.#unfinished -= 1;
    return undefined;
  }

  #beginChunked(kind: ConstructKind | undefined, place: EventPlace): SequenceRule | undefined {
    const { key, owner, canStart } = place;
    if (kind === undefined || key === undefined || !canStart)
      return this.#isFull ? undefined : "fragment_without_start";
    if (owner !== undefined && owner.length > KEY_CHARS_MAX) {
      this.#isFull = true;
      return undefined;
    }
    const rule = this.#start(BITS[kind], key);
    if (this.#open.has(key)) this.#lanes.begin(owner, { kind, key });
    return rule;
  }

  /** An END may follow a construct made of chunks, which has ended; then it is the second END. */
  #endEach(chunked: readonly Chunked[]): SequenceRule | undefined {
    return chunked
      .map(({ kind, key }) => this.#end(BITS[kind], key))
      .find((rule) => rule !== undefined);
  }
}

interface SequencesLimits {
  readonly sessionsMax: number;
  /** Open ids of all sequences. */
  readonly openIdsMax: number;
}

/**
 * A session takes 0.8 kB, and an open id 120 bytes where it is a UUID (heap of Node 24, 10,000 sessions
 * with ten ids each): 20 MB where both limits are reached.
 */
export const SEQUENCES_LIMITS: SequencesLimits = { sessionsMax: 10_000, openIdsMax: 100_000 };

/** A row as it was stored. */
interface ObservedRow {
  readonly seq: bigint;
  /** The count of numbers that the row takes. */
  readonly eventCount: number;
  /** Undefined for a row that the order check ignores; its numbers still count. */
  readonly place: EventPlace | undefined;
}

interface Followed {
  sequence: Sequence;
  nextSeq: bigint;
}

/**
 * The sequences of the sessions whose rows this replica stores. A sequence begins at the first row
 * that the replica stores of the session. From the session's first event on, everything is known.
 * From any other event, the sequence waits for a run to begin or end. It waits again after missing
 * or repeated numbers, which occur when another replica has stored rows between: those rows are
 * unknown, and no violation is counted because of them.
 *
 * The least recently used sessions are forgotten, by generations. A look-up searches the recent
 * half first. A session found in the older half moves to the recent half. When the recent half is
 * full, in sessions or in open ids, it becomes the older half, and the previous older half is
 * forgotten. So a known session costs one look-up, and no list is reordered by each event.
 */
export class Sequences {
  readonly #limits: SequencesLimits;
  #recent = new Map<string, Followed>();
  #older: ReadonlyMap<string, Followed> = new Map();
  /** Open ids of the recent half. */
  #openIds = 0;

  constructor(limits = SEQUENCES_LIMITS) {
    this.#limits = limits;
  }

  /** Call this once for each stored event row, in the order of the numbers of a session. */
  observe(sessionId: string, { seq, eventCount, place }: ObservedRow): SequenceRule | undefined {
    const followed = this.#recent.get(sessionId) ?? this.#admit(sessionId, seq);
    if (followed.nextSeq !== seq) {
      this.#openIds -= followed.sequence.ids;
      followed.sequence = new Sequence("unknown");
    }
    followed.nextSeq = seq + BigInt(eventCount);
    if (place === undefined) return undefined;
    const { sequence } = followed;
    const before = sequence.ids;
    const rule = sequence.observe(place);
    this.#openIds += sequence.ids - before;
    if (this.#openIds > this.#limits.openIdsMax / 2) this.#turn();
    return rule;
  }

  #admit(sessionId: string, seq: bigint): Followed {
    const followed = this.#older.get(sessionId) ?? {
      sequence: new Sequence(seq === 1n ? "before" : "unknown"),
      nextSeq: seq,
    };
    if (this.#recent.size >= this.#limits.sessionsMax / 2) this.#turn();
    this.#recent.set(sessionId, followed);
    this.#openIds += followed.sequence.ids;
    return followed;
  }

  #turn(): void {
    this.#older = this.#recent;
    this.#recent = new Map();
    this.#openIds = 0;
  }
}
