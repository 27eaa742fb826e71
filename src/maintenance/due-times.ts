/**
 * The time before which a look at a session finds nothing new. Every pass would walk a run that
 * began long ago and is not over for long enough. Such a session is looked at again when its young
 * row is old enough. The record is bounded, and only in memory: a forgotten session is looked at
 * once more.
 */
export class DueTimes {
  readonly #sessionsMax: number;
  readonly #dueMicros = new Map<string, bigint>();

  constructor(limits: { readonly sessionsMax: number }) {
    this.#sessionsMax = limits.sessionsMax;
  }

  /** 0 means "look at once". */
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
