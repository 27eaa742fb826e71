package io.sessionledger.client.mapping;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import io.sessionledger.client.mapping.ToldRun.Call;
import io.sessionledger.client.mapping.ToldRun.ToldCall;
import io.sessionledger.client.mapping.ToldRun.Usage;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Spring AI's ChatClientResponse objects, as JSON, as AG-UI events. A ChatResponse, a Generation and a
 * ToolResponseMessage may also stand alone. A stream is one run: Spring AI has no event for its end, so
 * the last finish reason is the end.
 */
public final class SpringAiMapper implements RunMapper {
  private static final Pattern TOOL = Pattern.compile("tool", Pattern.CASE_INSENSITIVE);

  private final ToldRun run;

  /** The arguments so far of calls that wait for their result. */
  private final Map<String, String> args = new HashMap<>();

  private End failure;
  private final JsonObject result = new JsonObject();
  private String finishReason;

  public SpringAiMapper(String sessionId, String runId) {
    run = new ToldRun(sessionId, runId);
  }

  @Override
  public List<JsonObject> take(JsonObject value) {
    End failed = End.failureOf(value);
    if (failed != null) failure = failed;
    else response(value);
    return run.take();
  }

  @Override
  public List<JsonObject> end() {
    if (failure != null) failure.endRun(run);
    else if (finishReason == null) End.TRUNCATED.endRun(run);
    else {
      result.addProperty("finishReason", finishReason);
      End.finished(result).endRun(run);
    }
    return run.take();
  }

  private void response(JsonObject value) {
    JsonObject inner = Json.object(value.get("chatResponse"));
    JsonObject response = inner != null ? inner : value;
    JsonObject metadata = Json.object(response.get("metadata"));
    if (metadata != null) metadata(metadata);
    List<JsonObject> generations = generationsOf(response);
    if (generations.isEmpty() && metadata == null) run.custom("spring.unknown", value);
    for (int lane = 0; lane < generations.size(); lane++) generation(generations.get(lane), lane);
  }

  /** The counts are those of the run so far; a part of a stream may have zeros. */
  private void metadata(JsonObject metadata) {
    Usage usage = LangChain4jMapper.usageFrom(metadata.get("usage"), metadata.get("model"));
    if (usage != null && (isSome(usage.input()) || isSome(usage.output()) || isSome(usage.total())))
      run.setUsage(usage);
    String id = Json.id(metadata, "id");
    String model = Json.id(metadata, "model");
    if (id != null) result.addProperty("id", id);
    if (model != null) result.addProperty("modelName", model);
  }

  private void generation(JsonObject generation, int lane) {
    JsonObject message = orEmpty(generation.get("output"));
    JsonObject metadata = orEmpty(message.get("metadata"));
    JsonObject ending = orEmpty(generation.get("metadata"));
    String reasoning = reasoningOf(message, metadata, ending);
    if (reasoning != null) run.thinking(reasoning, lane);
    String text = Json.text(message.get("text"));
    if (text == null) text = "";
    if (isThought(metadata)) run.thinking(text, lane);
    else run.text(text, lane);
    for (JsonObject call : Json.objects(message.get("toolCalls"))) call(call);
    for (JsonObject response : Json.objects(message.get("responses"))) answer(response);
    String reason = Json.id(ending, "finishReason");
    if (reason == null) return;
    finishReason = reason;
    if (TOOL.matcher(reason).find()) run.endRound();
  }

  /** Parts of a stream may repeat a call; a repeated call has the same arguments, or longer ones. */
  private void call(JsonObject given) {
    String own = Json.id(given, "id");
    String text = Json.content(given.get("arguments"));
    String before = own == null ? null : args.get(own);
    if (before != null && !text.startsWith(before)) return;
    run.endReasoning();
    run.endTexts();
    String more = text.substring(before == null ? 0 : before.length());
    ToldCall told = new ToldCall(own, Json.text(given.get("name")), new JsonPrimitive(more));
    Call call = run.part(told, null);
    args.put(call.id, text);
  }

  private void answer(JsonObject response) {
    String id = Json.id(response, "id");
    String name = Json.text(response.get("name"));
    JsonElement data = response.get("responseData");
    if (run.answered(new ToldCall(id, name, null), data)) return;
    JsonObject told = new JsonObject();
    if (id != null) told.addProperty("id", id);
    if (name != null) told.addProperty("name", name);
    if (data != null) told.add("responseData", data);
    run.custom("spring.ToolResponse", told);
  }

  private static List<JsonObject> generationsOf(JsonObject value) {
    JsonElement results = value.get("results");
    if (results != null && results.isJsonArray()) return Json.objects(results);
    JsonObject only = Json.object(value.get("result"));
    if (only != null) return List.of(only);
    if (Json.object(value.get("output")) != null) return List.of(value);
    if (Json.text(value.get("messageType")) == null) return List.of();
    JsonObject generation = new JsonObject();
    generation.add("output", value);
    return List.of(generation);
  }

  /** OpenAI, DeepSeek: the message or its metadata; Ollama: the metadata of the generation. */
  private static String reasoningOf(JsonObject message, JsonObject metadata, JsonObject ending) {
    JsonElement[] places = {
      metadata.get("reasoningContent"),
      message.get("reasoningContent"),
      metadata.get("thinking"),
      ending.get("thinking"),
    };
    for (JsonElement place : places) if (Json.text(place) != null) return Json.text(place);
    return null;
  }

  /** Anthropic, Gemini: the text itself is a thought. */
  private static boolean isThought(JsonObject metadata) {
    JsonPrimitive yes = new JsonPrimitive(true);
    return yes.equals(metadata.get("thinking"))
        || yes.equals(metadata.get("isThought"))
        || Json.text(metadata.get("signature")) != null;
  }

  private static JsonObject orEmpty(JsonElement value) {
    JsonObject object = Json.object(value);
    return object == null ? new JsonObject() : object;
  }

  private static boolean isSome(Long count) {
    return count != null && count > 0;
  }
}
