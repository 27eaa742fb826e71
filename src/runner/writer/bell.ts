/**
 * What a loop waits on when it has nothing to do. A bell that is rung while nobody waits is heard by
 * the next who does, so nothing that happens between two looks is missed.
 */
export class Bell {
  #hasRung = false;
  #waiting: (() => void) | undefined;

  ring(): void {
    this.#hasRung = true;
    this.#waiting?.();
  }

  /**
   * Resolves when it rings, and after `timeoutMs` if that is given. One loop waits on one bell.
   * `keepsAlive` false: the process may end in the meantime.
   */
  async wait({
    timeoutMs,
    keepsAlive = true,
  }: {
    readonly timeoutMs?: number | undefined;
    readonly keepsAlive?: boolean;
  } = {}): Promise<void> {
    if (!this.#hasRung) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = timeoutMs === undefined ? undefined : setTimeout(resolve, timeoutMs);
      if (!keepsAlive) timer?.unref();
      this.#waiting = resolve;
      await promise;
      this.#waiting = undefined;
      clearTimeout(timer);
    }
    this.#hasRung = false;
  }
}
