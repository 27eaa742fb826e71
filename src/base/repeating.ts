/**
 * Does a thing again and again, each time so long after the last one has ended: a slow one is never
 * under way twice. What is done must not reject; a stop that comes first is not undone by a start.
 */
export class Repeating {
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

  /** The first time is after a pause as well. */
  start(pauseMs: number): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#acting = this.#act().finally(() => this.start(pauseMs));
    }, pauseMs);
  }

  /** Resolves when nothing is under way any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#acting;
  }
}
