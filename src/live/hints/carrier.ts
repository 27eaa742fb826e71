/**
 * What carries announcements from one instance to the others. Nothing has to arrive: they are hints,
 * and the poll finds what was not told. kept-line.ts keeps a line open, exchange.ts uses it.
 */
export interface Carrier {
  /** In logs and metrics. */
  readonly name: "postgres" | "nats";
  /**
   * A line on which announcements are heard, this instance's own or not. Rejects when there is none
   * within the carrier's own limit, and soon after the abort of `signal`.
   */
  open(received: (text: string) => void, signal: AbortSignal): Promise<Line>;
  /** To all other instances; resolves when it is out of our hands. */
  send(text: string): Promise<void>;
}

export interface Line {
  /** Resolves with the reason, once nothing is heard on it any more, after `close` too. */
  readonly lost: Promise<unknown>;
  /** Idempotent; resolves when nothing of it is left. */
  close(): Promise<void>;
}
