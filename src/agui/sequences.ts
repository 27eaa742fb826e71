/**
 * The sequences of the sessions whose rows this replica stores, each from the row at which it met the
 * session: from its first event, everything is known; from any other, it waits for a run to begin or
 * end. So it is again where numbers are left out or come twice, as they do when another replica has
 * stored what lies between: what it did is not known, and nothing is counted because of it.
 *
 * The sessions that were heard of least recently are forgotten, by generations: one is looked up in
 * the recent half first; one that is found in the older half moves; when the recent half is full, in
 * sessions or in open ids, it becomes the older one, and what was older is forgotten. So a session
 * that is heard of costs one look-up, and needs no list that is reordered by each event.
 */
import type { EventPlace } from "./place.ts";
import { Sequence, type SequenceRule } from "./sequence.ts";

export interface SequencesLimits {
  readonly sessionsMax: number;
  /** Of what is open in all of them. */
  readonly openIdsMax: number;
}

/**
 * A session takes 0.8 kB, and an open id 120 bytes where it is a UUID (heap of Node 24, 10,000 sessions
 * with ten ids each): 20 MB where both limits are reached.
 */
export const SEQUENCES_LIMITS: SequencesLimits = { sessionsMax: 10_000, openIdsMax: 100_000 };

/** A row as it was stored. */
export interface ObservedRow {
  readonly seq: bigint;
  /** How many numbers it takes. */
  readonly eventCount: number;
  /** Undefined for a row without a place among the others, which counts as one nevertheless. */
  readonly place: EventPlace | undefined;
}

export interface Sequences {
  /** To be told of each event row that was stored, once, in the order of the numbers of a session. */
  observe(sessionId: string, row: ObservedRow): SequenceRule | undefined;
}

interface Followed {
  sequence: Sequence;
  nextSeq: bigint;
}

export function createSequences(limits: SequencesLimits): Sequences {
  return new Generations(limits);
}

class Generations implements Sequences {
  readonly #limits: SequencesLimits;
  #recent = new Map<string, Followed>();
  #older: ReadonlyMap<string, Followed> = new Map();
  /** Of the recent half. */
  #openIds = 0;

  constructor(limits: SequencesLimits) {
    this.#limits = limits;
  }

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
