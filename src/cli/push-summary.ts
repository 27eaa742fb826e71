/** The results of a push, during the push and at its end. */
export class PushSummary {
  readonly sessionId: string;
  lines = 0;
  pushed = 0;
  deduplicated = 0;
  lastSeq = 0n;
  readonly #refused = new Map<string, number>();

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  get refused(): number {
    return [...this.#refused.values()].reduce((sum, count) => sum + count, 0);
  }

  refuse(reason: string): void {
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + 1);
  }

  stored({
    lastSeq,
    deduplicated,
  }: {
    readonly lastSeq: bigint;
    readonly deduplicated: boolean;
  }): void {
    if (deduplicated) this.deduplicated += 1;
    else this.pushed += 1;
    if (lastSeq > this.lastSeq) this.lastSeq = lastSeq;
  }

  text(elapsedMs: number): string {
    const perSecond = elapsedMs > 0 ? Math.round((this.pushed * 1_000) / elapsedMs) : 0;
    const reasons = [...this.#refused].map(([reason, count]) => `${reason} ${count}`).join(", ");
    return [
      `${this.pushed} pushed`,
      `${this.deduplicated} already there`,
      `${this.refused} refused${reasons === "" ? "" : ` (${reasons})`}`,
      `in ${(elapsedMs / 1_000).toFixed(1)} s, ${perSecond}/s`,
      `session ${this.sessionId} is at ${this.lastSeq}`,
    ].join(", ");
  }

  json(elapsedMs: number): string {
    return JSON.stringify({
      sessionId: this.sessionId,
      lines: this.lines,
      pushed: this.pushed,
      deduplicated: this.deduplicated,
      refused: this.refused,
      refusedByReason: Object.fromEntries(this.#refused),
      lastSeq: String(this.lastSeq), // As in protobuf's JSON: 64 bits do not fit a JSON number.
      elapsedMs: Math.round(elapsedMs),
    });
  }
}
