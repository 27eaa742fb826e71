/**
 * What is being put together from CHUNKs, which come without START and END: a chunk that goes on with
 * nothing starts something, and what is no chunk of it ends it. A chunk need not say what it goes on
 * with, so one thing at a time is put together for the agent, and one for each subagent: a lane each.
 */

/** A construct that a chunk has started. */
export interface Chunked {
  readonly bit: number;
  readonly key: string;
}

interface Chunk {
  readonly bit: number;
  /** Undefined: it goes on with what is there. */
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

  /** Of the ids that it holds. */
  get chars(): number {
    return this.#chars;
  }

  /** What the chunk goes on with; if with nothing, it would start something. */
  find({ bit, key, owner }: Chunk): C | undefined {
    const fits = (chunked: C): boolean =>
      chunked.bit === bit && (key === undefined || chunked.key === key);
    const own = this.#lanes.get(owner);
    if (own !== undefined && fits(own)) return own;
    if (key === undefined && owner !== undefined) return undefined;
    // It can be of somebody else's without saying so, if there is but one that it can be of.
    const [first, second] = [...this.#lanes.values()].filter(fits);
    return key === undefined && second !== undefined ? undefined : first;
  }

  start(owner: string | undefined, chunked: C): void {
    this.end(owner);
    this.#lanes.set(owner, chunked);
    this.#chars += charsOf(owner, chunked);
  }

  /** What was being put together there, and is no more. */
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
