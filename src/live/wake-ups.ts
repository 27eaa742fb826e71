import type { SessionHead } from "../store/rows.ts";

/**
 * The port by which the service learns that another replica has committed. Whoever brings such news
 * calls it. All of it is hints: one that comes late, twice, out of order or never costs time and no
 * row. The poll of heads is such a bringer, built in as the backstop.
 */
export interface WakeUps {
  /** A session stands at least here, or is deleted. Of a session nobody watches it costs a look-up. */
  hinted(sessionId: string, head: SessionHead): void;
  /** Hints may have been lost (a connection was cut): all watched sessions are looked up at once. */
  missed(): void;
}
