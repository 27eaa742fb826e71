/**
 * The horizon of feeds, a low watermark: the time up to which the rows of all sessions are complete. Every row that
 * was recorded before it is visible to a read that begins now, and no further one will come. It is
 * found by looks at the database, which all feeds of an instance share:
 *
 *   look: clock t, writers W ──► W is empty ─────────────────────────► the horizon is t
 *                                W is not ──► candidate t ── later looks list none of W ──┘
 *
 * A writer is listed from before it takes the time of its rows until after they are visible. So a
 * transaction that is not in W has rows that are visible already, or takes a time after t. While a
 * transaction stays open, the low watermark does not move, and looks become rarer. A look follows a
 * commit here or on another instance, and the interval of the poll; without feeds none runs.
 *
 * The rule needs a clock that does not go back. When another server process answers (a restart, a
 * failover, a restored backup), or the clock has fallen behind ours, the horizon is found again, and
 * every feed goes back by REWIND_MS.
 */
import type { Clock } from "@session-ledger/base/clock";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Timers } from "@session-ledger/base/timers";
import type { Log } from "../observability/log.ts";
import { defectOf } from "../store/failure.ts";
import type { FeedPosition, FeedReader, Look } from "../store/feed.ts";

/** The shortest time between two looks; under load a feed gets its rows at this pace. */
const LOOK_INTERVAL_MS = 25;
/** Machines of one database differ by less, and a poll is shorter. */
const REWIND_MS = 60_000;
/** chrony slows a clock that is ahead by at most 8 %; a clock that lost more was set back. */
const SLOWEST_CLOCK = 0.9;
const MICROS_PER_MS = 1_000n;

export interface HorizonState {
  readonly micros: bigint | undefined;
  readonly candidate: (Pick<Look, "writers"> & { readonly micros: bigint }) | undefined;
}

export const NO_HORIZON: HorizonState = { micros: undefined, candidate: undefined };

export function horizonAfter(
  { micros, candidate }: HorizonState,
  look: Pick<Look, "atMicros" | "writers">,
): HorizonState {
  if (look.writers.length === 0) return { micros: look.atMicros, candidate: undefined };
  const next = { micros: look.atMicros, writers: look.writers };
  if (candidate === undefined) return { micros, candidate: next };
  const writers = candidate.writers.filter((one) => look.writers.includes(one));
  if (writers.length > 0) return { micros, candidate: { ...candidate, writers } };
  return { micros: candidate.micros, candidate: next };
}

interface HorizonParts {
  readonly reader: Pick<FeedReader, "look">;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly log: Log;
}

/** The last answered look, by our monotonic clock. */
interface LookAnswer {
  readonly look: Look;
  readonly receivedMs: number;
}

export class Horizon {
  readonly #parts: HorizonParts;
  readonly #pollIntervalMs: number;
  /** One for each feed; called after every look. */
  readonly #feeds = new Set<() => void>();
  #state = NO_HORIZON;
  #last: LookAnswer | undefined;
  /** How often the feeds had to go back. */
  rewinds = 0;
  #looksStarted = 0;
  /** Looks that had started before the last answered one, and that one. */
  #looksAnswered = 0;
  isFailing = false;
  /** A look failed in a way that another one does not mend: the feeds end. */
  defect: ServiceError | undefined;
  #looking: Promise<void> | undefined;
  #wasWoken = false;
  #delayMs = LOOK_INTERVAL_MS;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(parts: HorizonParts, limits: { readonly pollIntervalMs: number }) {
    this.#parts = parts;
    this.#pollIntervalMs = limits.pollIntervalMs;
  }

  /** Undefined until it is found, and again after a rewind. */
  get micros(): bigint | undefined {
    return this.#state.micros;
  }

  /** Undefined before the first answer. */
  get server(): string | undefined {
    return this.#last?.look.server;
  }

  /** The clock of the database now; undefined before the first answer. */
  get nowMicros(): bigint | undefined {
    if (this.#last === undefined) return undefined;
    const { look, receivedMs } = this.#last;
    const passedMs = this.#parts.clock.monotonicMs() - receivedMs;
    return look.atMicros + BigInt(Math.floor(passedMs)) * MICROS_PER_MS;
  }

  /** The clock at a look that began after this call; undefined until it is answered. */
  fromNowOn(): () => bigint | undefined {
    const startedBefore = this.#looksStarted;
    let micros: bigint | undefined;
    return () => {
      if (this.#looksAnswered > startedBefore) micros ??= this.#last?.look.atMicros;
      return micros;
    };
  }

  /** Looks at the database until the returned function is called; `onLook` is called after every look. */
  join(onLook: () => void): () => void {
    this.#feeds.add(onLook);
    this.wake();
    return () => {
      this.#feeds.delete(onLook);
      if (this.#feeds.size === 0) this.#rest();
    };
  }

  /** A row was committed somewhere, or may have been. Costs nothing without feeds. */
  wake(): void {
    if (this.#feeds.size === 0 || this.#isStopped || this.#wasWoken) return;
    this.#wasWoken = true;
    if (this.#looking === undefined) this.#lookIn(this.#delayMs);
  }

  /** Resolves when no look is under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#rest();
    await this.#looking;
  }

  /** True when a position of that server process does not hold by the present clock. */
  isAnother(server: string, { atMicros }: FeedPosition): boolean {
    if (this.#last === undefined) return false;
    const { look } = this.#last;
    return server !== look.server || atMicros > look.atMicros;
  }

  /** The place to continue from after a rewind: some rows are sent again. */
  rewound({ atMicros }: FeedPosition): FeedPosition {
    const now = this.#last?.look.atMicros ?? atMicros;
    const micros = (atMicros < now ? atMicros : now) - BigInt(REWIND_MS) * MICROS_PER_MS;
    return { atMicros: micros > 0n ? micros : 0n, sessionId: "", seq: 0n };
  }

  #rest(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#wasWoken = false;
    this.#delayMs = LOOK_INTERVAL_MS;
    this.defect = undefined;
    // Without looks a clock that goes back is not seen, and an old horizon does not show it.
    this.#state = NO_HORIZON;
    this.#last = undefined;
  }

  #lookIn(delayMs: number): void {
    this.#cancel?.();
    this.#cancel = this.#parts.timers.after(delayMs, () => {
      this.#cancel = undefined;
      this.#looking = this.#look().finally(() => this.#onLook());
    });
  }

  async #look(): Promise<void> {
    const { reader, clock, log } = this.#parts;
    this.#wasWoken = false;
    this.#looksStarted += 1;
    const started = this.#looksStarted;
    const sentMs = clock.monotonicMs();
    try {
      const look = await reader.look();
      if (this.#feeds.size > 0) this.#observe(look, sentMs);
      this.#looksAnswered = started;
      this.isFailing = false;
    } catch (error) {
      if (!this.isFailing) log.warn({ err: error }, "feed look failed");
      this.isFailing = true;
      this.defect = defectOf(error);
      this.#slower();
    }
  }

  #onLook(): void {
    this.#looking = undefined;
    if (this.#isStopped || this.#feeds.size === 0) return;
    for (const looked of this.#feeds) looked();
    const isWanted = this.#wasWoken || this.#state.candidate !== undefined;
    this.#lookIn(isWanted ? this.#delayMs : this.#pollIntervalMs);
  }

  #observe(look: Look, sentMs: number): void {
    const last = this.#last;
    if (last !== undefined && hasGoneBack(last, look, sentMs)) {
      this.rewinds += 1;
      this.#state = NO_HORIZON;
      this.#parts.log.warn({ server: look.server }, "feeds_rewound");
    }
    this.#last = { look, receivedMs: this.#parts.clock.monotonicMs() };
    const before = this.#state.micros;
    this.#state = horizonAfter(this.#state, look);
    if (this.#state.micros === before) this.#slower();
    else this.#delayMs = LOOK_INTERVAL_MS;
  }

  #slower(): void {
    this.#delayMs = Math.min(this.#delayMs * 2, this.#pollIntervalMs);
  }
}

function hasGoneBack(
  { look: before, receivedMs }: LookAnswer,
  look: Look,
  sentMs: number,
): boolean {
  if (look.server !== before.server) return true;
  const passedMs = Number(look.atMicros - before.atMicros) / Number(MICROS_PER_MS);
  // Rounded to microseconds, hence the millisecond.
  return passedMs < (sentMs - receivedMs) * SLOWEST_CLOCK - 1;
}
