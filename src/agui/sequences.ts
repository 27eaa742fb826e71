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
import type { EventPlace } from "./place.ts";
import { Sequence, type SequenceRule } from "./sequence.ts";

export interface SequencesLimits {
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
export interface ObservedRow {
  readonly seq: bigint;
  /** The count of numbers that the row takes. */
  readonly eventCount: number;
  /** Undefined for a row that the order check ignores; its numbers still count. */
  readonly place: EventPlace | undefined;
}

export interface Sequences {
  /** Call this once for each stored event row, in the order of the numbers of a session. */
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
  /** Open ids of the recent half. */
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
