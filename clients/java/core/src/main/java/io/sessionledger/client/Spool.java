package io.sessionledger.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import io.sessionledger.ambient.v1.Batch;
import io.sessionledger.ambient.v1.Opened;
import io.sessionledger.ambient.v1.RawEvent;
import io.sessionledger.client.WriterStats.Counts;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** The records that wait for the service, and the counts. Its monitor guards all of it. */
final class Spool {
  /** What a record takes besides its text. */
  private static final int RECORD_BYTES = 128;

  /** A frame has at most these, so that answers come while a long backlog is sent. */
  private static final int BATCH_EVENTS_MAX = 256;

  private static final int BATCH_BYTES_MAX = 256 << 10;

  /**
   * @param after the number of messages that are stored before it
   * @param isMark the writer has made it
   */
  private record Event(ByteString payload, Instant at, long after, boolean isMark) {
    long bytes() {
      return payload.size() + RECORD_BYTES;
    }
  }

  private record Waiting(LedgerMessage message, long bytes) {}

  private static final class Tally {
    long committed;
    long refused;
    long dropped;
    long pending;

    void dropPending() {
      dropped += pending;
      pending = 0;
    }

    Counts counts() {
      return new Counts(committed, refused, dropped, pending);
    }
  }

  private final long bytesMax;
  private final boolean isReplay;
  private final WriterListener told;

  private WriterState state = WriterState.OPEN;
  private Throwable error;
  private boolean isClosing;
  private boolean isFlushAsked;
  private long bytes;
  private final Tally events = new Tally();
  private final Tally messages = new Tally();

  /** Event number first + n of the epoch is the nth of `sent`, and of `unsent` after them. */
  private final ArrayDeque<Event> sent = new ArrayDeque<>();

  private final ArrayDeque<Event> unsent = new ArrayDeque<>();
  private long first = 1;

  /** Every event up to this number is stored or refused. */
  private long acknowledged;

  private boolean wasOpened;
  private long eventsDone;

  /** Refused events of the epoch: from before this writer, those of eventsDone, above acknowledged … */
  private long refusedBefore;

  private long refusedDone;
  private final Set<Long> refusedAhead = new HashSet<>();

  /** … and the number of those whose refusal was lost with a connection. */
  private long refusedUnsaid;

  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private long messagesDone;

  /** Since when records are dropped; null: they are not. */
  private Instant gap;

  private long gapEvents;
  private long gapMessages;

  Spool(long bytesMax, boolean isReplay, WriterListener told) {
    this.bytesMax = bytesMax;
    this.isReplay = isReplay;
    this.told = told;
  }

  synchronized void addEvent(ByteString payload) {
    if (!isTaking()) events.dropped++;
    else if (hasRoom(payload.size())) {
      append(payload, false);
      events.pending++;
      settle(); // Of a replay, the service may have it.
    } else {
      events.dropped++;
      gapEvents++;
    }
  }

  synchronized void addMessage(LedgerMessage message, int size) {
    if (!isTaking()) messages.dropped++;
    else if (hasRoom(size)) {
      Waiting record = new Waiting(message, size + RECORD_BYTES);
      waiting.add(record);
      bytes += record.bytes;
      messages.pending++;
    } else {
      messages.dropped++;
      gapMessages++;
    }
  }

  synchronized void refuseEvent() {
    events.refused++;
  }

  synchronized void refuseMessage() {
    messages.refused++;
  }

  private boolean isTaking() {
    return state == WriterState.OPEN && !isClosing;
  }

  /** Without room, records are dropped until a quarter is free, so that few gaps come of it. */
  private boolean hasRoom(int size) {
    endGap();
    if (gap != null) return false;
    if (bytes + size + RECORD_BYTES <= bytesMax) return true;
    gap = Instant.now();
    told.dropping();
    return false;
  }

  /** Puts one event where records are missing. */
  private void endGap() {
    if (gap == null || bytes > bytesMax / 4 * 3) return;
    String value =
        "{\"events\":%d,\"messages\":%d,\"since\":\"%s\"}"
            .formatted(gapEvents, gapMessages, gap.truncatedTo(ChronoUnit.SECONDS));
    String mark = "{\"type\":\"CUSTOM\",\"name\":\"session_ledger.dropped\",\"value\":" + value + "}";
    told.dropped(gapEvents, gapMessages);
    gap = null;
    gapEvents = 0;
    gapMessages = 0;
    append(ByteString.copyFromUtf8(mark), true);
  }

  private void append(ByteString payload, boolean isMark) {
    Event event = new Event(payload, Instant.now(), messagesDone + waiting.size(), isMark);
    unsent.add(event);
    bytes += event.bytes();
  }

  /**
   * The position of the service. It can be before that of the writer: a database that was restored has
   * lost acknowledged events, and the others continue with the numbers that it expects.
   */
  synchronized void resume(Opened opened) {
    while (!sent.isEmpty()) unsent.addFirst(sent.pollLast());
    long last = opened.getLastClientSeq();
    if (!wasOpened && !isReplay) {
      first = last + 1;
      refusedBefore = opened.getRefused();
    } else if (last + 1 < first) {
      first = last + 1;
      refusedBefore = opened.getRefused() - refusedDone;
      refusedAhead.clear();
    }
    wasOpened = true;
    acknowledged = last;
    long ahead = refusedAhead.stream().filter(number -> number <= last).count();
    refusedUnsaid = Math.max(0, opened.getRefused() - refusedBefore - refusedDone - ahead);
    settle();
  }

  synchronized void acknowledge(long number) {
    acknowledged = Math.max(acknowledged, number);
    settle();
  }

  /** False: it is known. */
  synchronized boolean refuse(long number) {
    return number >= first && refusedAhead.add(number);
  }

  /** Counts the events that are acknowledged, and forgets them. */
  private void settle() {
    while (first <= acknowledged && !(sent.isEmpty() && unsent.isEmpty())) {
      Event event = sent.isEmpty() ? unsent.poll() : sent.poll();
      boolean isRefused = refusedAhead.remove(first);
      if (!isRefused && refusedUnsaid > 0) {
        refusedUnsaid--;
        isRefused = true;
      }
      if (isRefused) refusedDone++;
      if (!event.isMark) {
        events.pending--;
        if (isRefused) events.refused++;
        else events.committed++;
      }
      bytes -= event.bytes();
      first++;
      eventsDone++;
    }
    endGap();
    notifyAll();
  }

  /** The events that may be sent now; null: none. */
  synchronized Batch nextBatch() {
    Batch.Builder batch = null;
    long size = 0;
    while (!unsent.isEmpty() && unsent.peek().after <= messagesDone) {
      Event event = unsent.peek();
      size += event.payload.size();
      if (batch == null) batch = Batch.newBuilder().setFirstClientSeq(first + sent.size());
      else if (batch.getEventsCount() == BATCH_EVENTS_MAX || size > BATCH_BYTES_MAX) break;
      batch.addEvents(
          RawEvent.newBuilder().setPayloadBytes(event.payload).setOccurredAt(timestamp(event.at)));
      sent.add(unsent.poll());
    }
    return batch == null ? null : batch.build();
  }

  /** Without events to send: whether to flush. */
  synchronized boolean takeFlush() {
    boolean isDue = isFlushAsked && unsent.isEmpty();
    if (isDue) isFlushAsked = false;
    return isDue;
  }

  synchronized LedgerMessage firstMessage() {
    return waiting.isEmpty() ? null : waiting.peek().message;
  }

  synchronized void settleMessage(boolean isRefused) {
    if (waiting.isEmpty()) return;
    bytes -= waiting.poll().bytes;
    messagesDone++;
    messages.pending--;
    if (isRefused) messages.refused++;
    else messages.committed++;
    endGap();
    notifyAll();
  }

  synchronized void close() {
    endGap();
    isClosing = true;
  }

  /** All is settled, and nothing more comes. */
  synchronized boolean isDone() {
    return isClosing && sent.isEmpty() && unsent.isEmpty() && waiting.isEmpty();
  }

  synchronized boolean isOver() {
    return state != WriterState.OPEN;
  }

  /** For good: nothing waits after it. False: it has ended before. */
  synchronized boolean end(WriterState how, Throwable why) {
    if (isOver()) return false;
    state = how;
    error = why;
    events.dropPending();
    messages.dropPending();
    sent.clear();
    unsent.clear();
    waiting.clear();
    bytes = 0;
    notifyAll();
    return true;
  }

  synchronized void askFlush() {
    isFlushAsked = true;
  }

  /** Waits until all earlier records are settled. False: it took too long. */
  synchronized boolean flush(Duration timeout) throws InterruptedException {
    long eventsGiven = eventsDone + sent.size() + unsent.size();
    long messagesGiven = messagesDone + waiting.size();
    return await(
        () -> isOver() || (eventsDone >= eventsGiven && messagesDone >= messagesGiven), timeout);
  }

  private boolean await(BooleanSupplier condition, Duration timeout) throws InterruptedException {
    long until = System.nanoTime() + timeout.toNanos();
    while (!condition.getAsBoolean()) {
      long left = until - System.nanoTime();
      if (left <= 0) return false;
      TimeUnit.NANOSECONDS.timedWait(this, left + 1_000_000);
    }
    return true;
  }

  synchronized WriterStats stats(long epoch, long replacedValues) {
    return new WriterStats(
        state, epoch, events.counts(), messages.counts(), replacedValues, error);
  }

  static Timestamp timestamp(Instant at) {
    return Timestamp.newBuilder().setSeconds(at.getEpochSecond()).setNanos(at.getNano()).build();
  }
}
