/** A map that drops its oldest entry when it has too many. An entry is as old as its last `set`. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #sizeMax: number;

  constructor(sizeMax: number) {
    super();
    this.#sizeMax = sizeMax;
  }

  override set(key: K, value: V): this {
    this.delete(key); // A Map keeps the order of insertion.
    super.set(key, value);
    if (this.size > this.#sizeMax) {
      const [oldest] = this.keys();
      if (oldest !== undefined) this.delete(oldest);
    }
    return this;
  }

  /** Gets the value, and makes its entry the newest. */
  use(key: K): V | undefined {
    const value = this.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }
}
