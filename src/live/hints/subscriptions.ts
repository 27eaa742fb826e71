/** Sessions are in shards; an instance gets the announcements of those shards in which it watches something. */
export const SHARDS = 64;

/** FNV-1a. Every instance must give a session the same shard. */
export function shardOf(sessionId: string): number {
  let hash = 0x81_1c_9d_c5;
  for (let at = 0; at < sessionId.length; at += 1) {
    hash = Math.imul(hash ^ sessionId.charCodeAt(at), 0x01_00_01_93);
  }
  return (hash >>> 0) % SHARDS;
}

/** What this instance watches now. */
export class Subscriptions {
  readonly #watches = new Uint32Array(SHARDS);
  #watchesOfAll = 0;
  /** Called when a shard has its first watch. */
  onAdd: () => void = () => undefined;

  /** Without a session: a watch of all. */
  add(sessionId?: string): void {
    if (this.#change(sessionId, 1) === 1) this.onAdd();
  }

  remove(sessionId?: string): void {
    this.#change(sessionId, -1);
  }

  get shards(): readonly number[] {
    const shards = Array.from(this.#watches.keys());
    return this.#watchesOfAll > 0 ? shards : shards.filter((shard) => this.#watches[shard] !== 0);
  }

  #change(sessionId: string | undefined, by: 1 | -1): number {
    if (sessionId === undefined) return (this.#watchesOfAll += by);
    const shard = shardOf(sessionId);
    const watches = (this.#watches[shard] ?? 0) + by;
    this.#watches[shard] = watches;
    return watches;
  }
}
