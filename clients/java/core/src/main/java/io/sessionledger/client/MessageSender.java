package io.sessionledger.client;

import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import io.sessionledger.ambient.v1.PushSessionMessageRequest;
import io.sessionledger.ambient.v1.SessionMessage;
import io.sessionledger.client.WriterListener.Refusal;
import java.time.Instant;
import java.util.concurrent.TimeUnit;

/** Sends the messages one by one. The key of a message makes it safe to repeat it. */
final class MessageSender {
  private static final int DEADLINE_SECONDS = 10;

  private final Link link;

  /** Events may wait for the message. */
  private final Runnable onSettled;

  private boolean isSending;

  MessageSender(Link link, Runnable onSettled) {
    this.link = link;
    this.onSettled = onSettled;
  }

  /** There may be something to send. */
  void wake() {
    if (!isSending && !link.spool().isOver()) send();
  }

  private void send() {
    LedgerMessage message = link.spool().firstMessage();
    isSending = message != null;
    if (message == null) return;
    PushSessionMessageRequest.Builder request =
        PushSessionMessageRequest.newBuilder()
            .setSessionId(link.sessionId())
            .setEventType(message.type())
            .setPayload(message.payload())
            .setIdempotencyKey(message.key())
            .setProducerEpoch(link.epoch())
            .setSentAt(Spool.timestamp(Instant.now()));
    if (message.sender() != null) request.setSender(message.sender());
    long beganNanos = System.nanoTime();
    link.stub()
        .withDeadlineAfter(DEADLINE_SECONDS, TimeUnit.SECONDS)
        .pushSessionMessage(
            request.build(),
            new StreamObserver<SessionMessage>() {
              @Override
              public void onNext(SessionMessage row) {}

              @Override
              public void onError(Throwable error) {
                failed(error, beganNanos);
              }

              @Override
              public void onCompleted() {
                settled(false);
              }
            });
  }

  private void failed(Throwable error, long beganNanos) {
    if (link.spool().isOver()) return;
    switch (Status.fromThrowable(error).getCode()) {
      case INVALID_ARGUMENT, ALREADY_EXISTS, PERMISSION_DENIED -> {
        String reason = LedgerErrors.reason(error);
        link.told().refused(new Refusal(Refusal.Kind.MESSAGE, reason, error.getMessage()));
        settled(true);
      }
      default -> link.retry(this::send, error, beganNanos);
    }
  }

  private void settled(boolean isRefused) {
    link.spool().settleMessage(isRefused);
    onSettled.run();
    send();
  }
}
