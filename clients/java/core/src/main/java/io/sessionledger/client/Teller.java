package io.sessionledger.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.concurrent.Executor;

/** Calls a listener on the worker of the writer. A listener that throws does not stop the writer. */
record Teller(Executor worker, WriterListener listener) implements WriterListener {
  private static final Logger LOG = System.getLogger(LedgerWriter.class.getName());

  @Override
  public void refused(Refusal refusal) {
    tell(() -> listener.refused(refusal));
  }

  @Override
  public void replaced(String what) {
    tell(() -> listener.replaced(what));
  }

  @Override
  public void dropping() {
    tell(listener::dropping);
  }

  @Override
  public void dropped(long events, long messages) {
    tell(() -> listener.dropped(events, messages));
  }

  @Override
  public void cancelled(String runId, String reason) {
    tell(() -> listener.cancelled(runId, reason));
  }

  @Override
  public void ended(WriterState state, Throwable error) {
    tell(() -> listener.ended(state, error));
  }

  private void tell(Runnable call) {
    worker.execute(
        () -> {
          try {
            call.run();
          } catch (RuntimeException error) {
            LOG.log(Level.WARNING, "a listener of a writer failed", error);
          }
        });
  }
}
