package io.sessionledger.springai;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import io.sessionledger.client.LedgerWriter;
import io.sessionledger.client.mapping.RunRecorder;
import io.sessionledger.client.mapping.SpringAiMapper;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.CallAdvisor;
import org.springframework.ai.chat.client.advisor.api.CallAdvisorChain;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisor;
import org.springframework.ai.chat.client.advisor.api.StreamAdvisorChain;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.metadata.ChatResponseMetadata;
import org.springframework.ai.chat.metadata.Usage;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;
import org.springframework.core.Ordered;
import reactor.core.publisher.Flux;

/**
 * Records what a ChatClient streams or answers: each call is one run. Nothing here waits, or throws into
 * the agent. Tools that the model's own class runs are not seen.
 */
public final class SessionLedgerAdvisor implements CallAdvisor, StreamAdvisor {
  /** A parameter of the call: the id of its run. The same id gives the events the same ids. */
  public static final String RUN_ID = "session-ledger.run-id";

  private final Function<ChatClientRequest, LedgerWriter> writers;

  /** All calls are of one session. */
  public SessionLedgerAdvisor(LedgerWriter writer) {
    this(request -> writer);
  }

  /** Finds the writer of a call, for example by a parameter of the call. It may not wait. */
  public SessionLedgerAdvisor(Function<ChatClientRequest, LedgerWriter> writers) {
    this.writers = writers;
  }

  @Override
  public String getName() {
    return "session-ledger";
  }

  /** Outside of the other advisors. */
  @Override
  public int getOrder() {
    return Ordered.HIGHEST_PRECEDENCE;
  }

  @Override
  public ChatClientResponse adviseCall(ChatClientRequest request, CallAdvisorChain chain) {
    RunRecorder run = runOf(request);
    try {
      ChatClientResponse response = chain.nextCall(request);
      run.take(() -> json(response));
      run.end();
      return response;
    } catch (RuntimeException error) {
      run.failed(error);
      throw error;
    }
  }

  @Override
  public Flux<ChatClientResponse> adviseStream(
      ChatClientRequest request, StreamAdvisorChain chain) {
    return Flux.defer(
        () -> {
          RunRecorder run = runOf(request);
          return chain
              .nextStream(request)
              .doOnNext(response -> run.take(() -> json(response)))
              .doOnError(run::failed)
              .doOnComplete(run::end)
              .doOnCancel(run::cancelled);
        });
  }

  private RunRecorder runOf(ChatClientRequest request) {
    Object given = request.context().get(RUN_ID);
    String runId = given == null ? UUID.randomUUID().toString() : given.toString();
    LedgerWriter writer = writers.apply(request);
    return new RunRecorder(writer, new SpringAiMapper(writer.sessionId(), runId));
  }

  private static JsonObject json(ChatClientResponse given) {
    JsonObject response = new JsonObject();
    JsonArray results = new JsonArray();
    ChatResponse told = given.chatResponse();
    if (told != null) {
      for (Generation generation : told.getResults()) results.add(json(generation));
      response.add("metadata", json(told.getMetadata()));
    }
    response.add("results", results);
    return response;
  }

  private static JsonObject json(Generation generation) {
    AssistantMessage message = generation.getOutput();
    JsonArray calls = new JsonArray();
    for (AssistantMessage.ToolCall call : message.getToolCalls()) {
      JsonObject one = new JsonObject();
      one.addProperty("id", call.id());
      one.addProperty("name", call.name());
      one.addProperty("arguments", call.arguments());
      calls.add(one);
    }
    JsonObject output = new JsonObject();
    output.addProperty("text", message.getText());
    output.add("toolCalls", calls);
    JsonObject properties = new JsonObject();
    message.getMetadata().forEach((name, value) -> add(properties, name, value));
    output.add("metadata", properties);
    JsonObject ending = new JsonObject();
    for (Map.Entry<String, Object> entry : generation.getMetadata().entrySet())
      add(ending, entry.getKey(), entry.getValue());
    ending.addProperty("finishReason", generation.getMetadata().getFinishReason());
    JsonObject json = new JsonObject();
    json.add("output", output);
    json.add("metadata", ending);
    return json;
  }

  private static JsonObject json(ChatResponseMetadata metadata) {
    JsonObject json = new JsonObject();
    json.addProperty("id", metadata.getId());
    json.addProperty("model", metadata.getModel());
    Usage usage = metadata.getUsage();
    if (usage != null) {
      JsonObject counts = new JsonObject();
      counts.addProperty("promptTokens", usage.getPromptTokens());
      counts.addProperty("completionTokens", usage.getCompletionTokens());
      counts.addProperty("totalTokens", usage.getTotalTokens());
      json.add("usage", counts);
    }
    return json;
  }

  /** Objects of a model's own classes have no part in the mapping. */
  private static void add(JsonObject to, String name, Object value) {
    if (value instanceof Boolean truth) to.addProperty(name, truth);
    else if (value instanceof Number number) to.addProperty(name, number);
    else if (value instanceof String text) to.addProperty(name, text);
  }
}
