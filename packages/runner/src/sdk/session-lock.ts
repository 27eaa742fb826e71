/**
 * The lock of a session, which has one run at a time. A claim holds it too, from before it is sent until
 * its answer is known, because it may begin a run at any moment.
 *
 *   a claim        waits until the lock is free
 *   a run by HTTP  is refused during a run; asks a claim that holds the lock to end, and is next
 */
import { deferred } from "@session-ledger/base/deferred";
import { RunInProgress } from "./bridge.ts";

export class SessionLock {
  #holder: SessionLease | undefined;
  readonly #claims: SessionLease[] = [];
  readonly #runs: SessionLease[] = [];
  readonly #sessionId: string;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  /** Resolves when no run is in progress. */
  get idle(): Promise<void> {
    return this.#holder?.isRun === true ? this.#holder.ended : Promise.resolve();
  }

  async acquireForClaim(): Promise<SessionLease> {
    const lease = new SessionLease(this);
    this.#claims.push(lease);
    this.#grantNext();
    await lease.granted;
    return lease;
  }

  /** Rejects with RunInProgress, or with the reason of the signal. */
  async acquireForRun(signal: AbortSignal): Promise<SessionLease> {
    if (this.#holder?.isRun === true) throw new RunInProgress(this.#sessionId);
    signal.throwIfAborted();
    const lease = new SessionLease(this);
    this.#runs.push(lease);
    this.#holder?.requestYield();
    this.#grantNext();
    const stop = (): void => {
      if (this.#remove(lease)) lease.reject(signal.reason);
    };
    signal.addEventListener("abort", stop, { once: true });
    try {
      await lease.granted;
    } finally {
      signal.removeEventListener("abort", stop);
    }
    lease.startRun();
    return lease;
  }

  /** Called by a lease when its run starts. */
  rejectRuns(): void {
    for (const one of this.#runs.splice(0)) one.reject(new RunInProgress(this.#sessionId));
  }

  /** Called by a lease at its end. */
  release(): void {
    this.#holder = undefined;
    this.#grantNext();
  }

  #grantNext(): void {
    if (this.#holder !== undefined) return;
    this.#holder = this.#runs.shift() ?? this.#claims.shift();
    this.#holder?.grant();
  }

  /** False: it holds the lock already. */
  #remove(lease: SessionLease): boolean {
    const at = this.#runs.indexOf(lease);
    if (at !== -1) this.#runs.splice(at, 1);
    return at !== -1;
  }
}

/** Waits for the lock, or holds it. */
export class SessionLease {
  readonly #lock: SessionLock;
  readonly #granted = deferred<void>();
  readonly #ended = deferred<void>();
  readonly #yield = new AbortController();
  #isRun = false;

  constructor(lock: SessionLock) {
    this.#lock = lock;
  }

  /** Resolves when it holds the lock. */
  get granted(): Promise<void> {
    return this.#granted.promise;
  }

  get isRun(): boolean {
    return this.#isRun;
  }

  /** Resolves when its run is over. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Aborts when a run waits for the lock of this claim. */
  get yieldSignal(): AbortSignal {
    return this.#yield.signal;
  }

  /** Refuses the runs that wait. */
  startRun(): void {
    this.#isRun = true;
    this.#lock.rejectRuns();
  }

  /** Call at the last event of the run: the next run may wait for the lock. */
  endRun(): void {
    this.#isRun = false;
    this.#ended.resolve();
  }

  release(): void {
    this.endRun();
    this.#lock.release();
  }

  grant(): void {
    this.#granted.resolve();
  }

  requestYield(): void {
    this.#yield.abort();
  }

  reject(reason: unknown): void {
    this.#granted.reject(reason);
  }
}
