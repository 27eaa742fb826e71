import type { SessionHead } from "../../store/rows.ts";

/**
 * The port by which the service learns that another replica has committed. Whoever brings such news
 * calls it. All of it is hints: one that comes late, twice, out of order or never, or that is simply
 * wrong, costs time and no row. The poll of heads is such a bringer, built in as the backstop.
 */
export interface WakeUps {
  /**
   * A session stands at least here, it is said; 0 where nothing is said of a stream. That it is
   * deleted is looked up first. Of a session nobody watches it costs a look-up in memory.
   */
  hinted(sessionId: string, head: SessionHead): void;
  /** Hints may have been lost: all watched sessions are looked up at once. */
  missed(): void;
  /** No hints come, nobody knows since when: what the poll finds is all there is until `regained`. */
  lost(): void;
  /** Hints come again; those that did not come meanwhile are made up for as by `missed`. */
  regained(): void;
}
