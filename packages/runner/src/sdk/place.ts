/**
 * The place of the one run of a session. A claim has it too, from before it is sent until its answer
 * is known, because it may begin a run at any moment.
 *
 *   a claim        waits until the place is free
 *   a run by HTTP  is refused during a run; asks a claim that has the place to end, and goes next
 */
import { deferred } from "@session-ledger/base/deferred";
import { RunInProgress } from "./bridge.ts";

export class Place {
  #holder: Hold | undefined;
  readonly #claims: Hold[] = [];
  readonly #runs: Hold[] = [];
  readonly #sessionId: string;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /** Resolves when no run is in progress. */
  get idle(): Promise<void> {
    return this.#holder?.isRun === true ? this.#holder.ended : Promise.resolve();
  }

  async forClaim(): Promise<Hold> {
    const hold = new Hold(this);
    this.#claims.push(hold);
    this.#fill();
    await hold.given;
    return hold;
  }

  /** Rejects with RunInProgress, or with the reason of the signal. */
  async forRun(signal: AbortSignal): Promise<Hold> {
    if (this.#holder?.isRun === true) throw new RunInProgress(this.#sessionId);
    signal.throwIfAborted();
    const hold = new Hold(this);
    this.#runs.push(hold);
    this.#holder?.giveWay();
    this.#fill();
    const stop = (): void => {
      if (this.#remove(hold)) hold.refuse(signal.reason);
    };
    signal.addEventListener("abort", stop, { once: true });
    try {
      await hold.given;
    } finally {
      signal.removeEventListener("abort", stop);
    }
    hold.began();
    return hold;
  }

  /** Of a hold: its run has begun. */
  refuseRuns(): void {
    for (const one of this.#runs.splice(0)) one.refuse(new RunInProgress(this.#sessionId));
  }

  /** Of a hold: the place is free. */
  left(): void {
    this.#holder = undefined;
    this.#fill();
  }

  #fill(): void {
    if (this.#holder !== undefined) return;
    this.#holder = this.#runs.shift() ?? this.#claims.shift();
    this.#holder?.give();
  }

  /** False: it has the place already. */
  #remove(hold: Hold): boolean {
    const at = this.#runs.indexOf(hold);
    if (at !== -1) this.#runs.splice(at, 1);
    return at !== -1;
  }
}

/** One who waits for the place or has it. */
export class Hold {
  readonly #place: Place;
  readonly #given = deferred<void>();
  readonly #ended = deferred<void>();
  readonly #wanted = new AbortController();
  #isRun = false;

  constructor(place: Place) {
    this.#place = place;
  }

  /** Resolves when it has the place. */
  get given(): Promise<void> {
    return this.#given.promise;
  }

  /** A run is in progress. */
  get isRun(): boolean {
    return this.#isRun;
  }

  /** Resolves when its run is over. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Aborts when a run waits for the place of this claim. */
  get wanted(): AbortSignal {
    return this.#wanted.signal;
  }

  /** The run has begun: nobody waits for it. */
  began(): void {
    this.#isRun = true;
    this.#place.refuseRuns();
  }

  /** The last event of the run is there: the next run may wait for the place. */
  over(): void {
    this.#isRun = false;
    this.#ended.resolve();
  }

  leave(): void {
    this.over();
    this.#place.left();
  }

  give(): void {
    this.#given.resolve();
  }

  giveWay(): void {
    this.#wanted.abort();
  }

  refuse(reason: unknown): void {
    this.#given.reject(reason);
  }
}
