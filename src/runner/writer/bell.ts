/**
 * A loop waits on a bell when it has nothing to do. A ring without a waiter is kept for the next
 * waiter, so no event between two checks is missed.
 */
export class Bell {
  #hasRung = false;
  #waiting: (() => void) | undefined;

  ring(): void {
    this.#hasRung = true;
    this.#waiting?.();
  }

  /**
   * Resolves when the bell rings, and after `timeoutMs` if that is given. One loop waits on one
   * bell. `keepsAlive` false: the process may end meanwhile.
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
