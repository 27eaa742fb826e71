/**
 * Carries announcements between instances. Announcements are hints and may be lost; the poll finds
 * what a lost one would have told. kept-line.ts keeps a line open, exchange.ts uses it.
 */
export interface Carrier {
  /** The name in logs and metrics. */
  readonly name: "postgres" | "nats";
  /**
   * Opens a line that receives announcements, perhaps also those of this instance. Rejects when no
   * line opens within the carrier's own limit, and soon after the abort of `signal`.
   */
  open(received: (text: string) => void, signal: AbortSignal): Promise<Line>;
  /** Sends to all other instances; resolves when this process has handed the text over. */
  send(text: string): Promise<void>;
}

export interface Line {
  /** Resolves with the reason once the line receives nothing any more, also after `close`. */
  readonly lost: Promise<unknown>;
  /** Idempotent; resolves when every resource of the line is released. */
  close(): Promise<void>;
}
