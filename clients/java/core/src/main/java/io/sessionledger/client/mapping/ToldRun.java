package io.sessionledger.client.mapping;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * One run as AG-UI events, told by a framework that has other events. The ids are made of the run's id
 * and of counts, so the same events give the same ids: docs/history.md of the repository has them. A
 * START comes with the first part of a text or call, and an END comes once.
 */
final class ToldRun {
  /** A text in one event; a character may take 6 bytes of JSON, and a payload has at most 1 MiB. */
  private static final int DELTA_CHARS_MAX = 131_072;

  /** Calls of a run that are remembered. */
  private static final int CALLS_MAX = 10_000;

  private enum Told {
    ASKED,
    BEGUN,
    ANSWERED
  }

  /** What a framework tells of a call: a text of JSON or the value itself as arguments; all may be null. */
  record ToldCall(String id, String name, JsonElement args) {}

  /** Tokens; null: not told. */
  record Usage(String model, Long input, Long output, Long total) {}

  static final class Call {
    final String id;
    private final String name;
    private final boolean hasOwnId;
    private final int round;
    private boolean hasArgs;
    private final Set<Told> told = EnumSet.noneOf(Told.class);

    private Call(String id, String name, boolean hasOwnId, int round) {
      this.id = id;
      this.name = name;
      this.hasOwnId = hasOwnId;
      this.round = round;
    }
  }

  private final String threadId;
  private final String runId;
  private List<JsonObject> made = new ArrayList<>();
  private int round;
  private int textSegments;
  private int reasoningSegments;
  private boolean isRoundOver;

  /** The whole message that ended the last round, as JSON. */
  String lastAnswer = "";

  /** The open messages by their lane: models may give several answers at a time. */
  private final Map<Integer, String> texts = new LinkedHashMap<>();

  private final Map<Integer, String> reasoning = new LinkedHashMap<>();
  private final Map<String, Call> calls =
      new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Call> eldest) {
          return size() > CALLS_MAX;
        }
      };
  private final Set<Call> openCalls = new LinkedHashSet<>();

  /** The ids of calls whose arguments are streamed, by their place in the answer. */
  private final Map<Integer, String> placed = new HashMap<>();

  private int callCount;
  private int retrievals;
  private Usage usage;
  private boolean hasRoundText;
  private boolean hasRoundThinking;
  private boolean hasStreamed;

  ToldRun(String threadId, String runId) {
    this.threadId = threadId;
    this.runId = runId;
    add(named(Json.event("RUN_STARTED")));
    step("STEP_STARTED");
  }

  /** The events since the last call. */
  List<JsonObject> take() {
    List<JsonObject> taken = made;
    made = new ArrayList<>();
    return taken;
  }

  boolean hasStreamed() {
    return hasStreamed;
  }

  /** White space is text; only the empty text is nothing. */
  void text(String delta, int lane) {
    if (delta.isEmpty()) return;
    enterRound();
    endReasoning();
    hasRoundText = true;
    hasStreamed = true;
    String id = texts.get(lane);
    if (id == null) {
      id = "%s:m%d.%d".formatted(runId, round, textSegments++);
      texts.put(lane, id);
      JsonObject start = Json.event("TEXT_MESSAGE_START", "messageId", id);
      start.addProperty("role", "assistant");
      add(start);
    }
    deltas("TEXT_MESSAGE_CONTENT", "messageId", id, delta);
  }

  /** An open text stays open. */
  void thinking(String delta, int lane) {
    if (delta.isEmpty()) return;
    enterRound();
    hasRoundThinking = true;
    String id = reasoning.get(lane);
    if (id == null) {
      id = "%s:r%d.%d".formatted(runId, round, reasoningSegments++);
      reasoning.put(lane, id);
      add(Json.event("REASONING_START", "messageId", id));
      JsonObject start = Json.event("REASONING_MESSAGE_START", "messageId", id);
      start.addProperty("role", "reasoning");
      add(start);
    }
    deltas("REASONING_MESSAGE_CONTENT", "messageId", id, delta);
  }

  /** A text as a whole: ignored if this round has streamed it. */
  void wholeText(String text) {
    if (!hasRoundText || isRoundOver) text(text, 0);
  }

  void wholeThinking(String text) {
    if (!hasRoundThinking || isRoundOver) thinking(text, 0);
  }

  void endReasoning() {
    for (String id : reasoning.values()) {
      add(Json.event("REASONING_MESSAGE_END", "messageId", id));
      add(Json.event("REASONING_END", "messageId", id));
    }
    reasoning.clear();
  }

  void endTexts() {
    for (String id : texts.values()) add(Json.event("TEXT_MESSAGE_END", "messageId", id));
    texts.clear();
  }

  /** The model asks for a call, in a whole message; ignored if the call is known. */
  void asked(ToldCall told) {
    begun(told, Told.ASKED);
  }

  /** The tool begins. */
  Call begun(ToldCall told) {
    endReasoning();
    endTexts();
    return begun(told, Told.BEGUN);
  }

  private Call begun(ToldCall told, Told step) {
    Call call = known(told.id);
    if (call == null) call = unnamed(told, step);
    if (call == null) call = open(told.id, told.name);
    call.told.add(step);
    endCall(call, told.args);
    return call;
  }

  /** A part of the arguments of a call; the parts of a call without an id have its place, or null. */
  Call part(ToldCall told, Integer place) {
    Call call = known(told.id != null ? told.id : placed.get(place));
    if (call == null) {
      enterRound();
      call = open(told.id, told.name);
    }
    if (place != null) placed.put(place, call.id);
    String args = Json.text(told.args);
    if (args == null || args.isEmpty()) return call;
    call.hasArgs = true;
    args(call, args);
    return call;
  }

  /** The call of `part` is whole. */
  void whole(ToldCall told, int place) {
    Call call = known(told.id != null ? told.id : placed.get(place));
    placed.remove(place);
    if (call == null) {
      enterRound();
      call = open(told.id, told.name);
    }
    endCall(call, told.args);
  }

  /** A call without arguments has the empty object. */
  private void endCall(Call call, JsonElement args) {
    if (!openCalls.contains(call)) return;
    if (!call.hasArgs) {
      call.hasArgs = true;
      String text = Json.content(args);
      args(call, text.isEmpty() ? "{}" : text);
    }
    openCalls.remove(call);
    add(Json.event("TOOL_CALL_END", "toolCallId", call.id));
  }

  private void args(Call call, String delta) {
    if (openCalls.contains(call)) deltas("TOOL_CALL_ARGS", "toolCallId", call.id, delta);
  }

  /** False: the call has a result already. */
  boolean answered(ToldCall told, JsonElement output) {
    Call call = known(told.id);
    if (call == null) call = unnamed(told, Told.ANSWERED);
    if (call == null) call = begun(told);
    if (!call.told.add(Told.ANSWERED)) return false;
    endCall(call, told.args);
    JsonObject result = Json.event("TOOL_CALL_RESULT", "messageId", call.id + ":result");
    result.addProperty("toolCallId", call.id);
    result.addProperty("content", Json.content(output));
    result.addProperty("role", "tool");
    boolean isValue = output != null && !output.isJsonNull() && Json.text(output) == null;
    if (isValue) result.add("rawEvent", kept("historyOutput", new JsonPrimitive("json")));
    add(result);
    return true;
  }

  void activity(String activityType, JsonObject content) {
    String id = runId + ":rag" + retrievals++;
    JsonObject snapshot = Json.event("ACTIVITY_SNAPSHOT", "messageId", id);
    snapshot.addProperty("activityType", activityType);
    snapshot.add("content", content);
    snapshot.addProperty("replace", true);
    add(snapshot);
  }

  void custom(String name, JsonElement value) {
    JsonObject custom = Json.event("CUSTOM", "name", name);
    custom.add("value", value);
    add(custom);
  }

  /** What comes next of the model is of the next round. */
  void endRound() {
    isRoundOver = true;
    placed.clear();
  }

  /** Tokens of one answer. */
  void addUsage(Usage more) {
    if (more == null) return;
    if (usage == null) usage = more;
    else
      usage =
          new Usage(
              more.model != null ? more.model : usage.model,
              sum(usage.input, more.input),
              sum(usage.output, more.output),
              sum(usage.total, more.total));
  }

  /** Tokens of the run so far. */
  void setUsage(Usage now) {
    if (now == null) return;
    Usage before = usage == null ? new Usage(null, null, null, null) : usage;
    usage =
        new Usage(
            now.model != null ? now.model : before.model,
            now.input != null ? now.input : before.input,
            now.output != null ? now.output : before.output,
            now.total != null ? now.total : before.total);
  }

  void finish(JsonObject result) {
    endAll();
    step("STEP_FINISHED");
    JsonObject finished = named(Json.event("RUN_FINISHED"));
    finished.add("result", result);
    if (usage != null) {
      JsonObject counts = new JsonObject();
      if (usage.model != null) counts.addProperty("model", usage.model);
      if (usage.input != null) counts.addProperty("inputTokens", usage.input);
      if (usage.output != null) counts.addProperty("outputTokens", usage.output);
      if (usage.total != null) counts.addProperty("totalTokens", usage.total);
      JsonArray all = new JsonArray();
      all.add(counts);
      finished.add("usage", all);
    }
    add(finished);
  }

  /** `code` may be null. */
  /** {@code thrown}: the error, if it was an object. */
  void fail(String message, String code, JsonObject thrown) {
    endAll();
    JsonObject error = Json.event("RUN_ERROR");
    error.addProperty(
        "message", message.substring(0, Math.min(message.length(), DELTA_CHARS_MAX)));
    if (code != null) error.addProperty("code", code);
    if (thrown != null) error.add("rawEvent", kept("historyError", thrown));
    add(error);
  }

  /** What AG-UI has as a text only: an export of a history gives it as it was. */
  private static JsonObject kept(String name, JsonElement value) {
    JsonObject kept = new JsonObject();
    kept.add(name, value);
    return kept;
  }

  private void endAll() {
    endReasoning();
    endTexts();
    for (Call call : List.copyOf(openCalls)) endCall(call, null);
  }

  /** Begins the next round, if this one is over. */
  void enterRound() {
    if (!isRoundOver) return;
    endAll();
    step("STEP_FINISHED");
    round++;
    textSegments = 0;
    reasoningSegments = 0;
    hasRoundText = false;
    hasRoundThinking = false;
    isRoundOver = false;
    step("STEP_STARTED");
  }

  private Call open(String id, String name) {
    String callId = id != null ? id : runId + ":t" + callCount;
    Call call = new Call(callId, name != null ? name : "unknown", id != null, round);
    callCount++;
    calls.put(call.id, call);
    openCalls.add(call);
    JsonObject start = Json.event("TOOL_CALL_START", "toolCallId", call.id);
    start.addProperty("toolCallName", call.name);
    add(start);
    return call;
  }

  private Call known(String id) {
    return id == null ? null : calls.get(id);
  }

  /** The oldest call of this round that has no id of its own, and of which this step was not told. */
  private Call unnamed(ToldCall told, Told step) {
    if (told.id != null) return null;
    for (Call call : calls.values()) {
      boolean isSame = told.name == null || call.name.equals(told.name);
      if (!call.hasOwnId && isSame && call.round == round && !call.told.contains(step)) return call;
    }
    return null;
  }

  private void step(String type) {
    add(Json.event(type, "stepName", "round-" + round));
  }

  private void deltas(String type, String member, String id, String text) {
    for (int start = 0; start < text.length(); start += DELTA_CHARS_MAX) {
      JsonObject event = Json.event(type, member, id);
      int end = Math.min(text.length(), start + DELTA_CHARS_MAX);
      event.add("delta", new JsonPrimitive(text.substring(start, end)));
      add(event);
    }
  }

  private JsonObject named(JsonObject event) {
    event.addProperty("threadId", threadId);
    event.addProperty("runId", runId);
    return event;
  }

  private void add(JsonObject event) {
    made.add(event);
  }

  private static Long sum(Long one, Long other) {
    if (one == null || other == null) return one == null ? other : one;
    return one + other;
  }
}
