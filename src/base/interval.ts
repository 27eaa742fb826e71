/**
 * Repeats an action, each time a fixed pause after the last one has ended, so a slow action never
 * overlaps itself. The action must not reject. After a stop, a later start has no effect.
 */
export class Interval {
  readonly #act: () => Promise<void>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #acting: Promise<void> | undefined;
  #isStopped = false;

  constructor(act: () => Promise<void>) {
    this.#act = act;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** The first run comes after a pause too, of another length if one is given. */
  start(pauseMs: number, firstMs = pauseMs): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#acting = this.#act().finally(() => this.start(pauseMs));
    }, firstMs);
  }

  /** Resolves when no action is running any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#acting;
  }
}
