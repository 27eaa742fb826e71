package io.sessionledger.client;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.grpc.ManagedChannel;
import io.sessionledger.ambient.v1.ListSessionEventsRequest;
import io.sessionledger.ambient.v1.ListSessionEventsResponse;
import io.sessionledger.ambient.v1.SessionServiceGrpc;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Assumptions;

/**
 * The service of a test. LEDGER_ADDRESS names a running one, without TLS and tokens; LEDGER_MAIN and
 * DATABASE_URL are those of processes that a test starts and kills. test/ci/java-client.test.ts sets
 * them; without them, the tests are skipped.
 */
public final class TestService implements AutoCloseable {
  private final String main;
  private String address = "127.0.0.1:0";
  private Process process;

  /** A process of its own. */
  public TestService() {
    main = variable("LEDGER_MAIN");
    start();
  }

  /** The running service. */
  public static String runningAddress() {
    return variable("LEDGER_ADDRESS");
  }

  /** An id that no earlier test run has used. */
  public static String newSession(String name) {
    return "java-%s-%s".formatted(name, UUID.randomUUID());
  }

  public String address() {
    return address;
  }

  /** SIGKILL. */
  public void kill() {
    process.destroyForcibly();
    process.onExit().join();
  }

  /** With the address of before. */
  public void start() {
    ProcessBuilder builder = new ProcessBuilder("node", main).redirectErrorStream(true);
    Map<String, String> environment = builder.environment();
    environment.put("GRPC_ADDRESS", address);
    environment.put("HTTP_ADDRESS", "127.0.0.1:0");
    environment.put("OPS_ADDRESS", "127.0.0.1:0");
    try {
      process = builder.start();
      address = serving(process);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void close() {
    kill();
  }

  /** The payloads of a session's events as they were pushed. */
  public static List<JsonObject> eventsOf(ManagedChannel channel, String sessionId) {
    List<JsonObject> events = new ArrayList<>();
    ListSessionEventsResponse page;
    long after = 0;
    do {
      page =
          SessionServiceGrpc.newBlockingStub(channel)
              .withWaitForReady()
              .listSessionEvents(
                  ListSessionEventsRequest.newBuilder()
                      .setSessionId(sessionId)
                      .setExpand(true)
                      .setPageSize(1_000)
                      .setAfterSeq(after)
                      .build());
      page.getItemsList()
          .forEach(row -> events.add(JsonParser.parseString(row.getPayload()).getAsJsonObject()));
      after = page.getNextAfterSeq();
    } while (page.getHasMore());
    return events;
  }

  /** The type of an event, and what it is of. */
  public static String named(JsonObject event) {
    for (String member : List.of("messageId", "toolCallId", "stepName", "runId", "message"))
      if (event.has(member))
        return event.get("type").getAsString() + " " + event.get(member).getAsString();
    return event.get("type").getAsString();
  }

  /** Its output is read to the end, so that it never waits for the test. */
  private static String serving(Process process) throws IOException {
    BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    List<String> log = new ArrayList<>();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      log.add(line);
      if (!line.contains("\"serving\"")) continue;
      Thread rest = new Thread(() -> lines.lines().forEach(more -> {}));
      rest.setDaemon(true);
      rest.start();
      return JsonParser.parseString(line).getAsJsonObject().get("grpc").getAsString();
    }
    throw new IOException("the service ended:\n" + String.join("\n", log));
  }

  private static String variable(String name) {
    String value = System.getenv(name);
    Assumptions.assumeTrue(value != null && !value.isEmpty(), name + " is not set");
    return value;
  }
}
