package io.sessionledger.client;

import io.grpc.CallCredentials;
import io.grpc.ManagedChannel;
import io.sessionledger.ambient.v1.SessionServiceGrpc;
import io.sessionledger.ambient.v1.SessionServiceGrpc.SessionServiceStub;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * What the two senders of a writer share. They run on its worker alone.
 *
 * @param credentials of each call, or null
 */
record Link(
    ManagedChannel channel,
    CallCredentials credentials,
    ScheduledExecutorService worker,
    String sessionId,
    long epoch,
    Spool spool,
    WriterListener told) {
  SessionServiceStub stub() {
    return SessionServiceGrpc.newStub(channel).withExecutor(worker).withCallCredentials(credentials);
  }

  /** Tries again after a pause, or ends the writer if this is no use. */
  boolean retry(Runnable attempt, Throwable error, long beganNanos) {
    Duration lived = Duration.ofNanos(System.nanoTime() - beganNanos);
    Optional<Duration> pause =
        channel.isShutdown() ? Optional.empty() : LedgerErrors.pauseAfter(error, lived);
    if (pause.isEmpty()) {
      WriterState state = LedgerErrors.stateAfter(error);
      if (spool.end(state, error)) told.ended(state, error);
      return false;
    }
    Runnable again =
        () -> {
          channel.resetConnectBackoff(); // gRPC itself waits up to two minutes.
          attempt.run();
        };
    worker.schedule(again, pause.get().toMillis(), TimeUnit.MILLISECONDS);
    return true;
  }
}
