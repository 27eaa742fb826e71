package io.sessionledger.client;

/** What a {@link LedgerWriter} tells of. It calls from its own thread, one call after the other. */
public interface WriterListener {
  /** Of a record: its kind, and why it is not stored. */
  record Refusal(Kind kind, String reason, String message) {
    /** The kind of a record. */
    public enum Kind {
      EVENT,
      MESSAGE
    }
  }

  /** A record is not accepted; the others continue. */
  default void refused(Refusal refusal) {}

  /** A value in an event was replaced, the first of its kind: {@code NaN} or {@code depth}. */
  default void replaced(String what) {}

  /** There is no room: new records are dropped from now on. */
  default void dropping() {}

  /** There is room again, after these were dropped. */
  default void dropped(long events, long messages) {}

  /** Somebody has cancelled a run of this writer. The reason may be empty. */
  default void cancelled(String runId, String reason) {}

  /** The service accepts nothing more, or a later writer took over. */
  default void ended(WriterState state, Throwable error) {}
}
