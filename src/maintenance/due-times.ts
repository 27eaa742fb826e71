/**
 * Until when there is no use in looking at a session again. A run that began long ago and has not ended
 * for long would be walked by every pass: it is looked at again when the row that was too young is old.
 * Bounded, and only in memory: what is forgotten is looked at once more.
 */
export class DueTimes {
  readonly #sessionsMax: number;
  readonly #dueMicros = new Map<string, bigint>();

  constructor(limits: { readonly sessionsMax: number }) {
    this.#sessionsMax = limits.sessionsMax;
  }

  /** 0: at once. */
  of(sessionId: string): bigint {
    return this.#dueMicros.get(sessionId) ?? 0n;
  }

  set(sessionId: string, dueMicros: bigint): void {
    this.#dueMicros.delete(sessionId);
    this.#dueMicros.set(sessionId, dueMicros);
    if (this.#dueMicros.size <= this.#sessionsMax) return;
    for (const oldest of this.#dueMicros.keys()) {
      this.#dueMicros.delete(oldest);
      return;
    }
  }
}
