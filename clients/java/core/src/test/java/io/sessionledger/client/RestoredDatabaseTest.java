package io.sessionledger.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import io.sessionledger.ambient.v1.Batch;
import io.sessionledger.ambient.v1.Committed;
import io.sessionledger.ambient.v1.Opened;
import io.sessionledger.ambient.v1.PushSessionEventsRequest;
import io.sessionledger.ambient.v1.PushSessionEventsResponse;
import io.sessionledger.ambient.v1.SessionServiceGrpc;
import io.sessionledger.client.WriterStats.Counts;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A service that acknowledges five events, and forgets two of them in a failover. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class RestoredDatabaseTest extends SessionServiceGrpc.SessionServiceImplBase {
  private final AtomicInteger streams = new AtomicInteger();
  private final List<Long> numbers = new CopyOnWriteArrayList<>();
  private final CountDownLatch again = new CountDownLatch(2);

  @Test
  void theWriterContinuesAtTheNumberOfTheDatabase() throws Exception {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(this)
            .build()
            .start();
    ManagedChannel channel = LedgerChannels.plaintext("127.0.0.1:" + server.getPort()).build();
    try (LedgerWriter writer = LedgerWriter.builder(channel, "s1").open()) {
      for (int at = 0; at < 5; at++) writer.event("{}");
      again.await();
      writer.event("{}");
      assertTrue(writer.close(Duration.ofSeconds(30)));
      assertEquals(List.of(1L, 2L, 3L, 4L, 5L, 4L), numbers);
      assertEquals(new Counts(6, 0, 0, 0), writer.stats().events());
    } finally {
      channel.shutdownNow();
      server.shutdownNow();
    }
  }

  @Override
  public StreamObserver<PushSessionEventsRequest> pushSessionEvents(
      StreamObserver<PushSessionEventsResponse> answers) {
    boolean isFirst = streams.getAndIncrement() == 0;
    return new StreamObserver<>() {
      @Override
      public void onNext(PushSessionEventsRequest request) {
        if (request.hasOpen()) {
          Opened opened = Opened.newBuilder().setLastClientSeq(isFirst ? 0 : 3).build();
          answers.onNext(PushSessionEventsResponse.newBuilder().setOpened(opened).build());
          again.countDown();
        }
        if (!request.hasBatch()) return;
        Batch batch = request.getBatch();
        long last = batch.getFirstClientSeq() + batch.getEventsCount() - 1;
        for (long number = batch.getFirstClientSeq(); number <= last; number++) numbers.add(number);
        Committed committed = Committed.newBuilder().setLastClientSeq(last).build();
        answers.onNext(PushSessionEventsResponse.newBuilder().setCommitted(committed).build());
        if (isFirst && last == 5) {
          answers.onError(Status.UNAVAILABLE.withDescription("failover").asRuntimeException());
        }
      }

      @Override
      public void onError(Throwable error) {}

      @Override
      public void onCompleted() {
        answers.onCompleted();
      }
    };
  }
}
