package io.sessionledger.client.mapping;

import com.google.gson.JsonObject;
import io.sessionledger.client.LedgerWriter;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.function.Supplier;

/** Gives a writer the events of one run. For any thread; nothing here throws into the agent. */
public final class RunRecorder {
  private static final Logger LOG = System.getLogger(RunRecorder.class.getName());

  private final LedgerWriter writer;
  private final RunMapper mapper;
  private boolean isOver;

  public RunRecorder(LedgerWriter writer, RunMapper mapper) {
    this.writer = writer;
    this.mapper = mapper;
  }

  /** Ignored after the end. */
  public synchronized void take(Supplier<JsonObject> value) {
    if (isOver) return;
    try {
      mapper.take(value.get()).forEach(writer::event);
    } catch (RuntimeException error) {
      LOG.log(Level.WARNING, "a part of a run is not recorded", error);
    }
  }

  public void failed(Throwable error) {
    String message = error.getMessage();
    take(() -> event("StreamError", "error", message == null ? error.toString() : message));
    end();
  }

  public void cancelled() {
    take(() -> event("StreamAborted"));
    end();
  }

  /** Without a terminal value before, the run was truncated. */
  public synchronized void end() {
    if (isOver) return;
    isOver = true;
    try {
      mapper.end().forEach(writer::event);
    } catch (RuntimeException error) {
      LOG.log(Level.WARNING, "the end of a run is not recorded", error);
    }
  }

  /** An event as LangChain4j names it; `members` are names and texts, and a null text is left out. */
  public static JsonObject event(String type, String... members) {
    JsonObject event = new JsonObject();
    event.addProperty("eventType", type);
    for (int at = 0; at < members.length; at += 2)
      if (members[at + 1] != null) event.addProperty(members[at], members[at + 1]);
    return event;
  }
}
