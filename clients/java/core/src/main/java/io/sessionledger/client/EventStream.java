package io.sessionledger.client;

import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.sessionledger.ambient.v1.Batch;
import io.sessionledger.ambient.v1.Flush;
import io.sessionledger.ambient.v1.Open;
import io.sessionledger.ambient.v1.PushSessionEventsRequest;
import io.sessionledger.ambient.v1.PushSessionEventsResponse;
import io.sessionledger.ambient.v1.Refused;
import io.sessionledger.client.WriterListener.Refusal;
import java.util.concurrent.CompletableFuture;

/** Opens a stream of events, again and again, until the writer is closed or nothing more is accepted. */
final class EventStream {
  private final Link link;
  private final boolean isEpochGiven;

  /** Completed when no stream is open any more. */
  final CompletableFuture<Void> quiet = new CompletableFuture<>();

  private Attempt attempt;

  EventStream(Link link, boolean isEpochGiven) {
    this.link = link;
    this.isEpochGiven = isEpochGiven;
  }

  void open() {
    if (link.spool().isOver() || link.spool().isDone()) {
      quiet.complete(null);
      return;
    }
    attempt = new Attempt();
    link.stub().pushSessionEvents(attempt);
    Open open =
        Open.newBuilder().setSessionId(link.sessionId()).setProducerEpoch(link.epoch()).build();
    attempt.call.onNext(PushSessionEventsRequest.newBuilder().setOpen(open).build());
  }

  /** There may be something to send. */
  void wake() {
    if (attempt != null) attempt.send();
  }

  void cancel() {
    if (attempt != null) attempt.call.cancel("the writer was closed", null);
  }

  private void ended(Attempt ended, Throwable error) {
    if (attempt != ended) return;
    attempt = null;
    if (link.spool().isOver() || (error == null && link.spool().isDone())) {
      quiet.complete(null);
      return;
    }
    if (!link.retry(this::open, failureOf(error), ended.beganNanos)) quiet.complete(null);
  }

  private Throwable failureOf(Throwable error) {
    Status unavailable = Status.UNAVAILABLE.withDescription("the service ended the stream");
    if (error == null) return unavailable.asRuntimeException();
    // A stream was replaced. Nobody else knows an epoch that this writer has chosen, so it was by a call
    // of its own that came late. An epoch that was given to it can be another writer's too.
    boolean isOwnCall = !isEpochGiven && Status.fromThrowable(error).getCode() == Status.Code.ABORTED;
    return isOwnCall ? unavailable.withCause(error).asRuntimeException() : error;
  }

  private final class Attempt
      implements ClientResponseObserver<PushSessionEventsRequest, PushSessionEventsResponse> {
    final long beganNanos = System.nanoTime();
    ClientCallStreamObserver<PushSessionEventsRequest> call;
    private boolean isOpened;
    private boolean isHalfClosed;

    @Override
    public void beforeStart(ClientCallStreamObserver<PushSessionEventsRequest> started) {
      call = started;
      call.setOnReadyHandler(this::send);
    }

    @Override
    public void onNext(PushSessionEventsResponse answer) {
      switch (answer.getFrameCase()) {
        case OPENED -> {
          link.spool().resume(answer.getOpened());
          isOpened = true;
        }
        case COMMITTED -> link.spool().acknowledge(answer.getCommitted().getLastClientSeq());
        case REFUSED -> refused(answer.getRefused());
        case CANCEL ->
            link.told().cancelled(answer.getCancel().getRunId(), answer.getCancel().getReason());
        default -> {} // Of a later version.
      }
      send();
    }

    @Override
    public void onError(Throwable error) {
      ended(this, error);
    }

    @Override
    public void onCompleted() {
      ended(this, null);
    }

    private void refused(Refused refused) {
      if (!link.spool().refuse(refused.getClientSeq())) return;
      String reason = LedgerErrors.reason(refused.getStatus());
      String message = refused.getStatus().getMessage();
      link.told().refused(new Refusal(Refusal.Kind.EVENT, reason, message));
    }

    /** As much as gRPC takes; it calls again when it takes more. */
    void send() {
      if (attempt != this || !isOpened || isHalfClosed) return;
      while (call.isReady()) {
        Batch batch = link.spool().nextBatch();
        if (batch != null) {
          call.onNext(PushSessionEventsRequest.newBuilder().setBatch(batch).build());
        } else if (link.spool().takeFlush()) {
          Flush flush = Flush.getDefaultInstance();
          call.onNext(PushSessionEventsRequest.newBuilder().setFlush(flush).build());
        } else {
          if (link.spool().isDone()) {
            isHalfClosed = true;
            call.onCompleted();
          }
          return;
        }
      }
    }
  }
}
