package io.sessionledger.client;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.grpc.ManagedChannel;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** The driver of the Java client for test/conformance. docs/clients.md has the protocol. */
final class ConformanceDriver {
  private final List<String> reasons = new CopyOnWriteArrayList<>();
  private ManagedChannel channel;
  private String sessionId;
  private LedgerWriter writer;

  public static void main(String[] args) throws IOException {
    ConformanceDriver driver = new ConformanceDriver();
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
      JsonObject answered = new JsonObject();
      answered.add("id", asked.get("id"));
      answered.add("answer", driver.answer(asked));
      out.println(answered);
    }
  }

  private JsonObject answer(JsonObject asked) {
    switch (asked.get("do").getAsString()) {
      case "hello":
        channel = LedgerChannels.plaintext(asked.get("address").getAsString()).build();
        sessionId = asked.get("session").getAsString();
        return hello();
      case "writer.open":
        open(asked);
        break;
      case "writer.event":
        JsonElement event = asked.get("event");
        if (event.isJsonObject()) writer.event(event.getAsJsonObject());
        else writer.event(event.getAsString());
        break;
      case "writer.message":
        writer.message(
            LedgerMessage.of(asked.get("type").getAsString(), asked.get("payload").getAsString()));
        break;
      case "writer.flush":
        return settled(writer.flush(timeoutOf(asked)));
      case "writer.close":
        return settled(writer.close(timeoutOf(asked)));
      default:
        throw new IllegalArgumentException("unknown command " + asked);
    }
    return new JsonObject();
  }

  private static JsonObject hello() {
    JsonArray features = new JsonArray();
    List.of("writer", "messages", "replay").forEach(features::add);
    JsonObject answer = new JsonObject();
    answer.add("features", features);
    return answer;
  }

  private void open(JsonObject asked) {
    LedgerWriter.Builder options =
        LedgerWriter.builder(channel, sessionId)
            .listener(
                new WriterListener() {
                  @Override
                  public void refused(Refusal refusal) {
                    reasons.add(refusal.reason());
                  }
                });
    if (asked.has("epoch")) options.epoch(Long.parseLong(asked.get("epoch").getAsString()));
    if (asked.has("bytes_max")) options.bytesMax(asked.get("bytes_max").getAsLong());
    if (asked.has("replay") && asked.get("replay").getAsBoolean()) options.replay();
    reasons.clear();
    writer = options.open();
  }

  private static Duration timeoutOf(JsonObject asked) {
    return Duration.ofMillis(asked.get("timeout_ms").getAsLong());
  }

  private JsonObject settled(boolean isComplete) {
    WriterStats stats = writer.stats();
    JsonObject answer = new JsonObject();
    answer.addProperty("complete", isComplete);
    answer.addProperty("state", stats.state().name().toLowerCase());
    answer.addProperty("epoch", Long.toString(stats.epoch()));
    answer.addProperty("committed", stats.events().committed());
    answer.addProperty("refused", stats.events().refused());
    answer.addProperty("dropped", stats.events().dropped());
    answer.addProperty("pending", stats.events().pending());
    JsonArray told = new JsonArray();
    reasons.forEach(told::add);
    answer.add("reasons", told);
    return answer;
  }
}
