package io.sessionledger.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import io.grpc.ManagedChannel;
import io.sessionledger.client.WriterListener.Refusal;
import io.sessionledger.client.WriterStats.Counts;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class LedgerWriterTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  @Test
  void killsOfTheServiceLoseNothingAndDoubleNothing() throws Exception {
    long events = 3_000;
    String sessionId = TestService.newSession("kills");
    try (TestService service = new TestService();
        Connection connection = new Connection(service.address());
        LedgerWriter writer = LedgerWriter.builder(connection.channel(), sessionId).open()) {
      Thread model =
          new Thread(() -> LongStream.range(0, events).forEach(at -> give(writer, at)));
      model.start();
      for (long committed : new long[] {1, 700, 1_500}) {
        until(() -> writer.stats().events().committed() >= committed);
        service.kill();
        service.start();
      }
      model.join();
      assertTrue(writer.close(LONG));
      assertEquals(new Counts(events, 0, 0, 0), writer.stats().events());
      List<Long> expected = LongStream.range(0, events).boxed().toList();
      assertEquals(expected, valuesIn(TestService.eventsOf(connection.channel(), sessionId)));
    }
  }

  @Test
  void withoutRoomEventsAreDroppedAndCountedAndNobodyWaits() {
    long events = 5_000;
    String sessionId = TestService.newSession("room");
    List<String> told = Collections.synchronizedList(new ArrayList<>());
    WriterListener listener =
        new WriterListener() {
          @Override
          public void dropping() {
            told.add("dropping");
          }

          @Override
          public void dropped(long count, long messages) {
            told.add("dropped " + count + " and " + messages);
          }
        };
    try (TestService service = new TestService();
        Connection connection = new Connection(service.address());
        LedgerWriter writer =
            LedgerWriter.builder(connection.channel(), sessionId)
                .bytesMax(65_536)
                .listener(listener)
                .open()) {
      give(writer, 0);
      assertTrue(writer.flush(LONG));
      service.kill();
      // A call that waited for room would wait for ever: nobody starts the service meanwhile.
      LongStream.range(1, events).forEach(at -> give(writer, at));
      Counts away = writer.stats().events();
      assertTrue(away.pending() > 100 && away.dropped() > 1_000, away::toString);
      assertEquals(events, away.committed() + away.pending() + away.dropped());
      service.start();
      assertTrue(writer.flush(LONG));
      give(writer, events);
      assertTrue(writer.close(LONG));

      Counts counts = writer.stats().events();
      assertEquals(new Counts(away.pending() + 2, 0, away.dropped(), 0), counts);
      assertEquals(List.of("dropping", "dropped " + away.dropped() + " and 0"), told);
      List<JsonObject> stored = TestService.eventsOf(connection.channel(), sessionId);
      int gap = (int) away.pending() + 1;
      JsonObject mark = stored.remove(gap);
      assertEquals("session_ledger.dropped", mark.get("name").getAsString());
      assertEquals(
          away.dropped(), mark.getAsJsonObject("value").get("events").getAsLong());
      List<Long> expected = new ArrayList<>(LongStream.range(0, gap).boxed().toList());
      expected.add(events);
      assertEquals(expected, valuesIn(stored));
    }
  }

  @Test
  void anEventAboveTheRoomIsDroppedAlone() {
    String sessionId = TestService.newSession("above");
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter writer =
            LedgerWriter.builder(connection.channel(), sessionId).bytesMax(4_096).open()) {
      writer.event(custom("x".repeat(5_000)));
      give(writer, 1);
      assertTrue(writer.close(LONG));
      assertEquals(new Counts(1, 0, 1, 0), writer.stats().events());
      assertEquals(2, TestService.eventsOf(connection.channel(), sessionId).size());
    }
  }

  @Test
  void refusedRecordsAreToldAndTheOthersAreStored() {
    String sessionId = TestService.newSession("refused");
    List<Refusal> refusals = Collections.synchronizedList(new ArrayList<>());
    WriterListener listener =
        new WriterListener() {
          @Override
          public void refused(Refusal refusal) {
            refusals.add(refusal);
            throw new IllegalStateException("of the listener");
          }
        };
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter writer =
            LedgerWriter.builder(connection.channel(), sessionId).listener(listener).open()) {
      give(writer, 0);
      writer.event("{\"type\":\"NO_SUCH_TYPE\"}");
      writer.event("x".repeat(4_170_001));
      writer.event((String) null);
      writer.message(LedgerMessage.of("", "Hello"));
      writer.message(LedgerMessage.of("user", "x".repeat(4_170_001)));
      give(writer, 1);
      assertTrue(writer.close(LONG));
      WriterStats stats = writer.stats();
      assertEquals(new Counts(2, 3, 0, 0), stats.events());
      assertEquals(new Counts(0, 2, 0, 0), stats.messages());
      List<Long> stored = valuesIn(TestService.eventsOf(connection.channel(), sessionId));
      assertEquals(List.of(0L, 1L), stored);
    }
    assertEquals(5, refusals.size());
    assertTrue(refusals.stream().allMatch(one -> one.reason().equals("INVALID_REQUEST")));
    assertTrue(refusals.stream().noneMatch(one -> one.message().isEmpty()));
    assertEquals(2, refusals.stream().filter(one -> one.kind() == Refusal.Kind.MESSAGE).count());
  }

  @Test
  void aLaterWriterEndsAnEarlierOne() throws Exception {
    String sessionId = TestService.newSession("fenced");
    CompletableFuture<WriterState> ended = new CompletableFuture<>();
    WriterListener listener =
        new WriterListener() {
          @Override
          public void ended(WriterState state, Throwable error) {
            ended.complete(state);
          }
        };
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter earlier =
            LedgerWriter.builder(connection.channel(), sessionId).epoch(5).listener(listener).open()) {
      give(earlier, 0);
      assertTrue(earlier.flush(LONG));
      try (LedgerWriter later =
          LedgerWriter.builder(connection.channel(), sessionId).epoch(6).open()) {
        give(later, 1);
        assertTrue(later.close(LONG));
        assertNull(later.stats().error());
      }
      give(earlier, 2);
      assertEquals(WriterState.FENCED, ended.get(60, TimeUnit.SECONDS));
      assertTrue(earlier.flush(LONG));
      assertEquals(new Counts(1, 0, 1, 0), earlier.stats().events());
      assertEquals("STALE_EPOCH", LedgerErrors.reason(earlier.stats().error()));
      List<JsonObject> stored = TestService.eventsOf(connection.channel(), sessionId);
      assertEquals(List.of(0L, 1L), valuesIn(stored));
    }
  }

  // Bug: one NaN in an event, and half a character in a message, lost the record.
  @Test
  void aValueThatIsNoJsonCostsOnlyItself() {
    String sessionId = TestService.newSession("values");
    List<String> kinds = new ArrayList<>();
    WriterListener listener =
        new WriterListener() {
          @Override
          public void replaced(String what) {
            kinds.add(what);
          }
        };
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter writer =
            LedgerWriter.builder(connection.channel(), sessionId).listener(listener).open()) {
      for (int levels : List.of(1, 100, 100_000)) {
        JsonObject event = new JsonObject();
        event.addProperty("type", "RAW");
        event.addProperty("source", "Infinity");
        JsonElement value = new JsonPrimitive(Double.NaN);
        for (int level = 0; level < levels; level++) {
          JsonArray list = new JsonArray();
          list.add(value);
          value = list;
        }
        event.add("event", value);
        writer.event(event);
      }
      writer.message(LedgerMessage.of("user", "half \ud83d"));
      assertTrue(writer.close(LONG));
      WriterStats stats = writer.stats();
      assertEquals(new Counts(3, 0, 0, 0), stats.events());
      assertEquals(new Counts(1, 0, 0, 0), stats.messages());
      assertEquals(3, stats.replacedValues());
      List<JsonObject> stored = TestService.eventsOf(connection.channel(), sessionId);
      assertEquals("[null]", stored.get(0).get("event").toString());
      assertEquals("Infinity", stored.get(0).get("source").getAsString());
      String cut = "[".repeat(63) + "\"[…]\"" + "]".repeat(63);
      assertEquals(cut, stored.get(1).get("event").toString());
      assertEquals(cut, stored.get(2).get("event").toString());
    }
    assertEquals(List.of("NaN", "depth"), kinds);
  }

  @Test
  void theLargestEventIsStored() {
    String sessionId = TestService.newSession("largest");
    String head = "{\"type\":\"RAW\",\"event\":\"";
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter writer = LedgerWriter.builder(connection.channel(), sessionId).open()) {
      give(writer, 0);
      writer.event(head + "x".repeat(4_170_000 - head.length() - 2) + "\"}");
      assertTrue(writer.close(LONG));
      assertEquals(new Counts(2, 0, 0, 0), writer.stats().events());
    }
  }

  @Test
  void halvesOfCharactersComeBack() {
    String sessionId = TestService.newSession("halves");
    try (Connection connection = new Connection(TestService.runningAddress());
        LedgerWriter writer = LedgerWriter.builder(connection.channel(), sessionId).open()) {
      writer.event(custom("\ud83d"));
      writer.event(custom("\ude00 \ud83d\ude00"));
      assertTrue(writer.close(LONG));
      List<JsonObject> stored = TestService.eventsOf(connection.channel(), sessionId);
      assertEquals("\ud83d", stored.get(0).get("value").getAsString());
      assertEquals("\ude00 \ud83d\ude00", stored.get(1).get("value").getAsString());
    }
  }

  @Test
  void closeEndsWithoutAService() {
    try (Connection connection = new Connection("127.0.0.1:1");
        LedgerWriter writer = LedgerWriter.builder(connection.channel(), "s1").open()) {
      give(writer, 0);
      assertFalse(writer.close(Duration.ofMillis(300)));
      assertEquals(new Counts(0, 0, 1, 0), writer.stats().events());
      assertEquals(WriterState.CLOSED, writer.stats().state());
    }
  }

  private record Connection(ManagedChannel channel) implements AutoCloseable {
    Connection(String address) {
      this(LedgerChannels.plaintext(address).build());
    }

    @Override
    public void close() {
      channel.shutdownNow();
    }
  }

  private static void give(LedgerWriter writer, long value) {
    JsonObject event = new JsonObject();
    event.addProperty("type", "CUSTOM");
    event.addProperty("name", "n");
    event.addProperty("value", value);
    writer.event(event);
  }

  private static JsonObject custom(String value) {
    JsonObject event = new JsonObject();
    event.addProperty("type", "CUSTOM");
    event.addProperty("name", "n");
    event.addProperty("value", value);
    return event;
  }

  private static List<Long> valuesIn(List<JsonObject> events) {
    return events.stream().map(event -> event.get("value").getAsLong()).toList();
  }

  private static void until(java.util.function.BooleanSupplier fact) throws InterruptedException {
    while (!fact.getAsBoolean()) Thread.sleep(1);
  }
}
