package io.sessionledger.client;

/** State of a {@link LedgerWriter}. */
public enum WriterState {
  /** Takes records. */
  OPEN,
  /** A later writer took over. Nothing more is stored. */
  FENCED,
  /** The service accepts nothing more. {@link WriterStats#error()} says why. */
  ENDED,
  /** Closed by its owner. */
  CLOSED
}
