package io.sessionledger.client;

/**
 * What a {@link LedgerWriter} did so far.
 *
 * @param replacedValues values in events that JSON does not have, or that were nested too deep
 * @param error what ended the writer, or null
 */
public record WriterStats(
    WriterState state, long epoch, Counts events, Counts messages, long replacedValues, Throwable error) {
  /** Records of one kind. The counts add up to the records that were given. */
  public record Counts(long committed, long refused, long dropped, long pending) {}
}
