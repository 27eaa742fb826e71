/**
 * A Map whose entries come and go, as calls do. V8 links each table that a Map has outgrown to the next
 * one. A full collection moves the table of the moment to the old generation, and from then on the chain
 * behind it keeps every later entry alive until the next full collection: each scavenge has to copy them
 * all (decision 085). Here the entries move to a new Map after a while, which no table is linked to.
 *
 * An iterator that is open at that moment has the entries of before.
 */
export class RenewedMap<K, V> {
  #map = new Map<K, V>();
  #deleted = 0;

  get size(): number {
    return this.#map.size;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): this {
    this.#map.set(key, value);
    return this;
  }

  delete(key: K): boolean {
    if (!this.#map.delete(key)) return false;
    this.#deleted += 1;
    if (this.#deleted > DELETED_MAX + this.#map.size) {
      this.#map = new Map(this.#map);
      this.#deleted = 0;
    }
    return true;
  }

  keys(): MapIterator<K> {
    return this.#map.keys();
  }

  values(): MapIterator<V> {
    return this.#map.values();
  }

  forEach(call: (value: V, key: K) => void): void {
    for (const [key, value] of this.#map) call(value, key);
  }
}

/** A move costs as much as some deletions, and the entries of that many may stay alive. */
const DELETED_MAX = 1_000;
