import type { SessionHead } from "../../store/rows.ts";

/**
 * The port through which the service hears that another replica has committed. Every source of such
 * news calls this port. All calls are hints: a hint that is late, repeated, out of order, lost or
 * wrong costs time and no row. The poll of heads is one such source, built in as the backstop.
 */
export interface WakeUps {
  /**
   * A hint that a session stands at least at `head`; 0 means "not stated". A hinted deletion is
   * looked up in the table first. A hint for a session without watchers costs one look-up in
   * memory.
   */
  hinted(sessionId: string, head: SessionHead): void;
  /** Hints may have been lost: all watched sessions are looked up at once. */
  missed(): void;
  /** Hints have stopped, since an unknown time: until `regained`, only the poll finds news. */
  lost(): void;
  /** Hints arrive again; all watched sessions are looked up, as by `missed`. */
  regained(): void;
}
