/**
 * Tracks the constructs made of CHUNKs, which come without START and END. A chunk without a
 * construct to continue starts one, and the next event that is not a chunk of it ends it. A chunk
 * need not name its construct, so the agent and each subagent build one construct at a time: each
 * has a lane.
 */

/** A construct that a chunk has started. */
export interface Chunked {
  readonly bit: number;
  readonly key: string;
}

interface Chunk {
  readonly bit: number;
  /** Undefined: the chunk continues the current construct. */
  readonly key: string | undefined;
  readonly owner: string | undefined;
}

export class ChunkLanes<C extends Chunked = Chunked> {
  readonly #lanes: Map<string | undefined, C>;
  #chars = 0;

  constructor(lanes?: ReadonlyMap<string | undefined, C>) {
    this.#lanes = new Map(lanes);
  }

  clone(): ChunkLanes<C> {
    const copy = new ChunkLanes<C>(this.#lanes);
    copy.#chars = this.#chars;
    return copy;
  }

  get size(): number {
    return this.#lanes.size;
  }

  /** Characters of the ids that it holds. */
  get chars(): number {
    return this.#chars;
  }

  /** The construct that the chunk continues; if there is none, the chunk starts one. */
  find({ bit, key, owner }: Chunk): C | undefined {
    const fits = (chunked: C): boolean =>
      chunked.bit === bit && (key === undefined || chunked.key === key);
    const own = this.#lanes.get(owner);
    if (own !== undefined && fits(own)) return own;
    if (key === undefined && owner !== undefined) return undefined;
    // Without naming its owner, the chunk can continue another owner's construct, if exactly one
    // fits.
    const [first, second] = [...this.#lanes.values()].filter(fits);
    return key === undefined && second !== undefined ? undefined : first;
  }

  start(owner: string | undefined, chunked: C): void {
    this.end(owner);
    this.#lanes.set(owner, chunked);
    this.#chars += charsOf(owner, chunked);
  }

  /** Ends and returns the constructs that were open there. */
  end(owner: string | undefined): readonly C[] {
    const chunked = this.#lanes.get(owner);
    if (chunked === undefined) return [];
    this.#lanes.delete(owner);
    this.#chars -= charsOf(owner, chunked);
    return [chunked];
  }

  endAll(): readonly C[] {
    const all = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#chars = 0;
    return all;
  }
}

function charsOf(owner: string | undefined, { key }: Chunked): number {
  return (owner?.length ?? 0) + key.length;
}
