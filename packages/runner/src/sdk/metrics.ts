/**
 * Averages and percentiles of the last hour, counts of the process. `envelope_tokens` of the next
 * claim reports the tokens to the service, for its metrics and its alert.
 */
import type { Clock } from "@session-ledger/base/clock";
import type { TurnMetrics } from "../turn-blocks.ts";

export interface RunnerStats {
  /** Turns that have ended, failed ones included. */
  readonly turns: number;
  /** Turns that ended with RUN_ERROR. */
  readonly failures: number;
  /** User messages in these turns. */
  readonly messages: number;
  /** Estimated tokens of the packed messages, without the history. */
  readonly tokens: number;
  /** The longest time that a message waited for its turn, of 19 in 20 turns; milliseconds. */
  readonly p95WaitMs: number;
  /** The most messages of a turn, of 19 in 20 turns. */
  readonly p95BatchSize: number;
  /** Blocks of a packed turn, on average. */
  readonly packedBlockCount: number;
  /** Estimated tokens around a message, on average. */
  readonly contextTokensPerEvent: number;
}

const WINDOW_MS = 3_600_000;
/** One turn a second for an hour; above that the window is shorter. */
const TURNS_KEPT_MAX = 3_600;

interface TurnSample extends TurnMetrics {
  readonly waitMs: number;
}

export class TurnStats {
  readonly #clock: Clock;
  readonly #window: (TurnSample & { readonly atMs: number })[] = [];
  #turns = 0;
  #failures = 0;
  #messages = 0;
  #tokens = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  onTurnStart(turn: TurnSample): void {
    this.#messages += turn.batchSize;
    this.#tokens += turn.tokens;
    this.#window.push({ ...turn, atMs: this.#clock.monotonicMs() });
    this.#forget();
  }

  onTurnEnd({ hasFailed }: { readonly hasFailed: boolean }): void {
    this.#turns += 1;
    if (hasFailed) this.#failures += 1;
  }

  get stats(): RunnerStats {
    this.#forget();
    const turns = this.#window;
    const sum = (of: (turn: TurnSample) => number): number =>
      turns.reduce((total, turn) => total + of(turn), 0);
    return {
      turns: this.#turns,
      failures: this.#failures,
      messages: this.#messages,
      tokens: this.#tokens,
      p95WaitMs: p95(turns.map(({ waitMs }) => waitMs)),
      p95BatchSize: p95(turns.map(({ batchSize }) => batchSize)),
      packedBlockCount: ratio(
        sum(({ packedBlockCount }) => packedBlockCount),
        turns.length,
      ),
      contextTokensPerEvent: ratio(
        sum(({ envelopeTokens }) => envelopeTokens),
        sum(({ batchSize }) => batchSize),
      ),
    };
  }

  #forget(): void {
    const sinceMs = this.#clock.monotonicMs() - WINDOW_MS;
    const first = this.#window.findIndex(({ atMs }) => atMs >= sinceMs);
    const old = first === -1 ? this.#window.length : first;
    this.#window.splice(0, Math.max(old, this.#window.length - TURNS_KEPT_MAX));
  }
}

/** By nearest rank; 0 for no values. */
function p95(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.95) - 1] ?? 0;
}

function ratio(sum: number, count: number): number {
  return count === 0 ? 0 : sum / count;
}
