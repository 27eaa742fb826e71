package io.sessionledger.client;

import com.google.gson.JsonObject;
import com.google.protobuf.ByteString;
import io.grpc.CallCredentials;
import io.grpc.ManagedChannel;
import io.sessionledger.client.WriterListener.Refusal;
import java.time.Duration;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Stores the events of a session, and messages for people. No call waits for the service but {@link
 * #flush} and {@link #close}, and none throws into the agent. A broken connection is opened again, and
 * each event is stored once and in order. Events that are given after a message are stored after it.
 *
 * <p>Records wait in a bounded room. Without room, new ones are dropped and counted, and where they are
 * missing the session gets one CUSTOM event {@code session_ledger.dropped}.
 *
 * <p>For any thread. The listener may not wait for the writer.
 */
public final class LedgerWriter implements AutoCloseable {
  private static final long BYTES_MAX_BY_DEFAULT = 64L << 20;
  private static final long BYTES_MAX_MIN = 4_096;

  /** The service's limit by default: a message with it fits in gRPC's 4 MiB. */
  private static final int PAYLOAD_BYTES_MAX = 4_170_000;

  private static final Duration CLOSE_BY_DEFAULT = Duration.ofSeconds(10);

  private final Link link;
  private final Spool spool;
  private final ScheduledThreadPoolExecutor worker;
  private final WriterListener told;
  private final EventStream stream;
  private final MessageSender sender;
  private final AtomicBoolean isWoken = new AtomicBoolean();
  private final AtomicLong replacedValues = new AtomicLong();
  private final Set<String> replacedKinds = ConcurrentHashMap.newKeySet();

  /** A writer of one session; the channel stays the caller's. */
  public static Builder builder(ManagedChannel channel, String sessionId) {
    return new Builder(channel, sessionId);
  }

  private LedgerWriter(Builder options) {
    worker = new ScheduledThreadPoolExecutor(1, LedgerWriter::thread);
    worker.setKeepAliveTime(5, TimeUnit.SECONDS);
    worker.allowCoreThreadTimeOut(true); // A silent writer has no thread.
    told = new Teller(worker, options.listener);
    spool = new Spool(options.bytesMax, options.isReplay, told);
    long epoch = options.epoch == 0 ? newEpoch() : options.epoch;
    link =
        new Link(
            options.channel, options.credentials, worker, options.sessionId, epoch, spool, told);
    stream = new EventStream(link, options.epoch != 0);
    sender = new MessageSender(link, stream::wake);
    worker.execute(stream::open);
  }

  public String sessionId() {
    return link.sessionId();
  }

  /** Takes one AG-UI event as JSON. An event that cannot be sent counts as refused. */
  public void event(String json) {
    ByteString payload = json == null ? null : ByteString.copyFromUtf8(Texts.escaped(json));
    String problem = problemOf(payload);
    if (problem == null) {
      spool.addEvent(payload);
      wake();
    } else {
      spool.refuseEvent();
      told.refused(new Refusal(Refusal.Kind.EVENT, "INVALID_REQUEST", problem));
    }
  }

  /**
   * Takes one AG-UI event. A number that JSON does not have becomes null, and what is nested deeper than
   * 64 levels a short text; both are counted.
   */
  public void event(JsonObject event) {
    event(event == null ? null : EventJson.of(event, this::replaced));
  }

  /** Takes one message for people. */
  public void message(LedgerMessage message) {
    ByteString bytes = ByteString.copyFromUtf8(Texts.whole(message.payload()));
    String problem = problemOf(bytes);
    if (problem == null) {
      spool.addMessage(message, bytes.size());
      wake();
    } else {
      spool.refuseMessage();
      told.refused(new Refusal(Refusal.Kind.MESSAGE, "INVALID_REQUEST", problem));
    }
  }

  /**
   * Waits until all earlier records are settled: stored, refused or dropped, and told. False: it took
   * too long, or the thread was interrupted.
   */
  public boolean flush(Duration timeout) {
    long until = System.nanoTime() + timeout.toNanos();
    spool.askFlush();
    wake();
    try {
      boolean isComplete = spool.flush(timeout);
      worker.submit(() -> {}).get(Math.max(0, until - System.nanoTime()), TimeUnit.NANOSECONDS);
      return isComplete;
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
      return false;
    } catch (ExecutionException | TimeoutException late) {
      return false;
    }
  }

  /** Is {@link #flush}, and ends the writer. What is not settled then is dropped. */
  public boolean close(Duration timeout) {
    long until = System.nanoTime() + timeout.toNanos();
    spool.close(); // Records that come now are dropped.
    boolean isComplete = flush(timeout);
    worker.execute(stream::wake);
    try {
      stream.quiet.get(Math.max(0, until - System.nanoTime()), TimeUnit.NANOSECONDS);
    } catch (InterruptedException interruption) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException | TimeoutException late) {
      // The stream is cancelled below.
    }
    spool.end(WriterState.CLOSED, null);
    worker.execute(stream::cancel);
    return isComplete;
  }

  /** Waits 10 seconds at most. */
  @Override
  public void close() {
    close(CLOSE_BY_DEFAULT);
  }

  /** The counts as they are now. */
  public WriterStats stats() {
    return spool.stats(link.epoch(), replacedValues.get());
  }

  /** One task for all records that come before it runs. */
  private void wake() {
    if (isWoken.getAndSet(true)) return;
    worker.execute(
        () -> {
          isWoken.set(false);
          sender.wake();
          stream.wake();
        });
  }

  private void replaced(String what) {
    replacedValues.incrementAndGet();
    if (replacedKinds.add(what)) told.replaced(what);
  }

  private static String problemOf(ByteString payload) {
    if (payload == null) return "expected a text";
    if (payload.size() <= PAYLOAD_BYTES_MAX) return null;
    return "expected at most %d bytes".formatted(PAYLOAD_BYTES_MAX);
  }

  /** Above all epochs of earlier writers, and no other writer has it. */
  private static long newEpoch() {
    return System.currentTimeMillis() << 20 | ThreadLocalRandom.current().nextLong(1 << 20);
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "session-ledger-writer");
    thread.setDaemon(true);
    return thread;
  }

  /** Options of a writer. */
  public static final class Builder {
    private final ManagedChannel channel;
    private final String sessionId;
    private CallCredentials credentials;
    private long epoch;
    private boolean isReplay;
    private long bytesMax = BYTES_MAX_BY_DEFAULT;
    private WriterListener listener = new WriterListener() {};

    private Builder(ManagedChannel channel, String sessionId) {
      this.channel = Objects.requireNonNull(channel, "channel");
      this.sessionId = Objects.requireNonNull(sessionId, "sessionId");
    }

    /** Of each call; {@link LedgerChannels#token} has those of a token. */
    public Builder credentials(CallCredentials given) {
      credentials = given;
      return this;
    }

    /** The writer's generation; a later writer fences an earlier one. By default from the time. */
    public Builder epoch(long given) {
      if (given < 0) throw new IllegalArgumentException("epoch: expected 0 to 2^63 - 1");
      epoch = given;
      return this;
    }

    /**
     * The events begin with the first one of the epoch, as after a restart; those that the service has
     * are not stored again.
     */
    public Builder replay() {
      isReplay = true;
      return this;
    }

    /** The room for records that wait. By default 64 MiB. */
    public Builder bytesMax(long given) {
      if (given < BYTES_MAX_MIN)
        throw new IllegalArgumentException("bytesMax: expected at least " + BYTES_MAX_MIN);
      bytesMax = given;
      return this;
    }

    public Builder listener(WriterListener given) {
      listener = Objects.requireNonNull(given, "listener");
      return this;
    }

    /** Begins to write the session. Close the writer. */
    public LedgerWriter open() {
      return new LedgerWriter(this);
    }
  }
}
