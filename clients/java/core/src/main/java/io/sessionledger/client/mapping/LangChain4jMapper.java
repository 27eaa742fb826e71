package io.sessionledger.client.mapping;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.sessionledger.client.mapping.ToldRun.ToldCall;
import io.sessionledger.client.mapping.ToldRun.Usage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * The events of LangChain4j's streams ({@code eventType}) as AG-UI events. docs/history.md of the
 * repository has the table. An event that has no place in it becomes a CUSTOM, so nothing is lost.
 */
public final class LangChain4jMapper implements RunMapper {
  /** After the end of a run, these begin the next one; any other event still belongs to the ended run. */
  private static final Set<String> BEGINS_RUN =
      Set.of(
          "PartialResponse",
          "PartialThinking",
          "ContentFetched",
          "RetrievedContents",
          "IntermediateResponse",
          "BeforeToolExecution",
          "PartialToolCall");

  private final String sessionId;
  private final String runId;
  private ToldRun run;
  private int runs = 1;

  /** Held back until the next run, or the end of the stream: some tell of an end twice. */
  private End end;

  public LangChain4jMapper(String sessionId, String runId) {
    this.sessionId = sessionId;
    this.runId = runId;
    run = new ToldRun(sessionId, runId);
  }

  @Override
  public List<JsonObject> take(JsonObject event) {
    List<JsonObject> made = new ArrayList<>();
    String type = typeOf(event);
    if (end != null && BEGINS_RUN.contains(type)) {
      made.addAll(end());
      runs++;
      run = new ToldRun(sessionId, runId + "." + runs);
    }
    End told = taken(type, event);
    if (told != null) end = told;
    made.addAll(run.take());
    return made;
  }

  @Override
  public List<JsonObject> end() {
    (end == null ? End.TRUNCATED : end).endRun(run);
    end = null;
    return run.take();
  }

  private End taken(String type, JsonObject event) {
    switch (type) {
      case "PartialResponse", "PartialThinking" -> chunk(type, event);
      case "ContentFetched", "RetrievedContents" -> contents(event);
      case "IntermediateResponse" -> intermediate(event);
      case "BeforeToolExecution" -> run.begun(callOf(event));
      case "ToolExecuted", "AfterToolExecution" -> {
        if (!run.answered(callOf(event), Json.member(event, "output", "result"))) keep(event);
      }
      case "PartialToolCall" -> {
        ToldCall call = callOf(event);
        JsonElement args = Json.member(event, "partialArguments", "arguments", "chunk");
        run.part(new ToldCall(call.id(), call.name(), args), placeOf(event));
      }
      case "CompleteToolCall" -> {
        JsonObject request = Json.object(event.get("toolExecutionRequest"));
        run.whole(callOf(request != null ? request : event), placeOf(event));
      }
      case "AccumulatedResponse" -> accumulated(event);
      case "Completed", "ChatCompleted", "FinalResponse" -> {
        return completed(event);
      }
      default -> {
        End failure = End.failureOf(event);
        if (failure == null) keep(event);
        return failure;
      }
    }
    return null;
  }

  private void chunk(String type, JsonObject event) {
    JsonElement chunk = Json.member(event, "chunk", "text");
    if (chunk == null) return;
    String text = Json.text(chunk);
    if (text == null) keep(event);
    else if (type.equals("PartialResponse")) run.text(text, 0);
    else run.thinking(text, 0);
  }

  private void keep(JsonObject event) {
    run.custom("lc4j." + typeOf(event), event);
  }

  private void contents(JsonObject event) {
    JsonObject content = event.deepCopy();
    content.remove("eventType");
    run.activity("lc4j.content_fetched", content);
  }

  private void intermediate(JsonObject event) {
    run.enterRound();
    String chunk = Json.text(event.get("chunk"));
    JsonElement answer = answerOf(event);
    run.lastAnswer = printed(answer);
    wholeAnswer(answer);
    if (chunk != null) run.wholeText(chunk);
    run.endTexts();
    run.addUsage(usageOf(event));
    run.endRound();
  }

  /** The message of an event: what of it was not streamed. */
  private void wholeAnswer(JsonElement answer) {
    JsonObject message = Json.object(answer);
    if (message == null) {
      if (Json.text(answer) != null) run.wholeText(Json.text(answer));
      return;
    }
    String thinking = Json.text(message.get("thinking"));
    if (thinking != null) run.wholeThinking(thinking);
    run.endReasoning();
    String text = Json.text(message.get("text"));
    if (text != null) run.wholeText(text);
    for (JsonObject request : Json.objects(message.get("toolExecutionRequests")))
      run.asked(callOf(request));
  }

  private void accumulated(JsonObject event) {
    run.setUsage(usageOf(event));
    JsonElement answer = answerOf(event);
    JsonObject message = Json.object(answer);
    String text = Json.text(message != null ? message.get("text") : answer);
    if (text != null && !run.hasStreamed()) run.text(text, 0);
  }

  private End completed(JsonObject event) {
    JsonElement answer = answerOf(event);
    // A tool whose result is the answer ends the run with the message that called it.
    if (!printed(answer).equals(run.lastAnswer)) wholeAnswer(answer);
    run.setUsage(usageOf(event));
    JsonObject metadata = metadataOf(event);
    JsonObject result = new JsonObject();
    for (String name : new String[] {"finishReason", "id", "modelName"}) {
      String told = Json.text(metadata.get(name));
      if (told != null) result.addProperty(name, told);
    }
    return End.finished(result);
  }

  private static JsonElement answerOf(JsonObject event) {
    JsonElement message = Json.member(event, "aiMessage");
    if (message != null) return message;
    JsonObject response = Json.object(event.get("chatResponse"));
    return response != null ? response.get("aiMessage") : event.get("message");
  }

  private static String printed(JsonElement answer) {
    return answer == null ? "" : answer.toString();
  }

  private static int placeOf(JsonObject event) {
    Long index = Json.count(event.get("index"));
    return index == null ? 0 : index.intValue();
  }

  private static ToldCall callOf(JsonObject event) {
    String name = Json.text(event.get("toolName"));
    return new ToldCall(
        Json.id(event, "id"),
        name != null ? name : Json.text(event.get("name")),
        Json.member(event, "arguments", "input"));
  }

  private static JsonObject metadataOf(JsonObject event) {
    JsonElement own = Json.member(event, "metadata");
    JsonObject response = Json.object(event.get("chatResponse"));
    JsonElement metadata = own != null || response == null ? own : response.get("metadata");
    return Json.object(metadata) != null ? Json.object(metadata) : event;
  }

  private static Usage usageOf(JsonObject event) {
    JsonObject metadata = metadataOf(event);
    JsonElement usage = Json.member(metadata, "tokenUsage", "usage");
    return usageFrom(usage, metadata.get("modelName"));
  }

  /** The counts as LangChain4j and Spring AI name them; null: there is none. */
  static Usage usageFrom(JsonElement given, JsonElement model) {
    JsonObject usage = Json.object(given);
    Long input = Json.count(Json.member(usage, "inputTokenCount", "promptTokens", "inputTokens"));
    Long output =
        Json.count(Json.member(usage, "outputTokenCount", "completionTokens", "outputTokens"));
    Long total = Json.count(Json.member(usage, "totalTokenCount", "totalTokens"));
    boolean isTold = input != null || output != null || total != null;
    return isTold ? new Usage(Json.text(model), input, output, total) : null;
  }

  static String typeOf(JsonObject event) {
    String type = Json.text(event.get("eventType"));
    if (type == null) type = Json.text(event.get("type"));
    return type == null ? "unknown" : type;
  }
}
