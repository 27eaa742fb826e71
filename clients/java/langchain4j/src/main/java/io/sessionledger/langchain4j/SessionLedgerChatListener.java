package io.sessionledger.langchain4j;

import static io.sessionledger.client.mapping.RunRecorder.event;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.CompleteToolCall;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.PartialThinking;
import dev.langchain4j.model.chat.response.PartialThinkingContext;
import dev.langchain4j.model.chat.response.PartialToolCall;
import dev.langchain4j.model.chat.response.PartialToolCallContext;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.chat.response.StreamingHandle;
import dev.langchain4j.model.output.TokenUsage;
import io.sessionledger.client.LedgerWriter;
import io.sessionledger.client.mapping.LangChain4jMapper;
import io.sessionledger.client.mapping.RunRecorder;
import java.util.List;

/**
 * Records one run of a streaming model of LangChain4j: each round of it has a {@link #handler}, and the
 * tools between two rounds are told by {@link #beforeTool} and {@link #toolExecuted}. A response without
 * tool calls ends the run. Nothing here waits, or throws into the agent.
 */
public final class SessionLedgerChatListener {
  private final RunRecorder run;

  /** The same run id gives the events the same ids. */
  public SessionLedgerChatListener(LedgerWriter writer, String runId) {
    run = new RunRecorder(writer, new LangChain4jMapper(writer.sessionId(), runId));
  }

  /** A handler that records, and then calls the other one. */
  public StreamingChatResponseHandler handler(StreamingChatResponseHandler next) {
    return new Recorded(next);
  }

  public void beforeTool(ToolExecutionRequest request) {
    run.take(() -> tool("BeforeToolExecution", request, "arguments", request.arguments()));
  }

  public void toolExecuted(ToolExecutionRequest request, String result) {
    run.take(() -> tool("ToolExecuted", request, "output", result));
  }

  /** The application has stopped the run. */
  public void cancelled() {
    run.cancelled();
  }

  private static JsonObject tool(
      String type, ToolExecutionRequest request, String member, String text) {
    return event(type, "id", request.id(), "toolName", request.name(), member, text);
  }

  private static JsonObject response(String type, ChatResponse response) {
    JsonObject message =
        event(type, "text", response.aiMessage().text(), "thinking", response.aiMessage().thinking());
    List<ToolExecutionRequest> requests = response.aiMessage().toolExecutionRequests();
    if (requests != null) {
      JsonArray calls = new JsonArray();
      requests.forEach(
          one -> calls.add(tool("ToolExecutionRequest", one, "arguments", one.arguments())));
      message.add("toolExecutionRequests", calls);
    }
    String reason = response.finishReason() == null ? null : response.finishReason().name();
    JsonObject metadata =
        event(
            "metadata", "id", response.id(), "modelName", response.modelName(), "finishReason", reason);
    TokenUsage usage = response.tokenUsage();
    if (usage != null) {
      JsonObject counts = new JsonObject();
      counts.addProperty("inputTokenCount", usage.inputTokenCount());
      counts.addProperty("outputTokenCount", usage.outputTokenCount());
      counts.addProperty("totalTokenCount", usage.totalTokenCount());
      metadata.add("tokenUsage", counts);
    }
    JsonObject event = event(type);
    event.add("aiMessage", message);
    event.add("metadata", metadata);
    return event;
  }

  private final class Recorded implements StreamingChatResponseHandler {
    private final StreamingChatResponseHandler next;

    Recorded(StreamingChatResponseHandler next) {
      this.next = next;
    }

    @Override
    public void onPartialResponse(String text) {
      run.take(() -> event("PartialResponse", "chunk", text));
      next.onPartialResponse(text);
    }

    @Override
    public void onPartialResponse(PartialResponse part, PartialResponseContext context) {
      run.take(() -> event("PartialResponse", "chunk", part.text()));
      next.onPartialResponse(
          part, new PartialResponseContext(new RecordedHandle(context.streamingHandle())));
    }

    @Override
    public void onPartialThinking(PartialThinking part) {
      run.take(() -> event("PartialThinking", "chunk", part.text()));
      next.onPartialThinking(part);
    }

    @Override
    public void onPartialThinking(PartialThinking part, PartialThinkingContext context) {
      run.take(() -> event("PartialThinking", "chunk", part.text()));
      next.onPartialThinking(
          part, new PartialThinkingContext(new RecordedHandle(context.streamingHandle())));
    }

    @Override
    public void onPartialToolCall(PartialToolCall part) {
      run.take(() -> partOf(part));
      next.onPartialToolCall(part);
    }

    @Override
    public void onPartialToolCall(PartialToolCall part, PartialToolCallContext context) {
      run.take(() -> partOf(part));
      next.onPartialToolCall(
          part, new PartialToolCallContext(new RecordedHandle(context.streamingHandle())));
    }

    private JsonObject partOf(PartialToolCall part) {
      JsonObject event =
          event(
              "PartialToolCall",
              "id", part.id(), "toolName", part.name(), "partialArguments", part.partialArguments());
      event.addProperty("index", part.index());
      return event;
    }

    @Override
    public void onCompleteToolCall(CompleteToolCall call) {
      ToolExecutionRequest request = call.toolExecutionRequest();
      run.take(
          () -> {
            JsonObject event = tool("CompleteToolCall", request, "arguments", request.arguments());
            event.addProperty("index", call.index());
            return event;
          });
      next.onCompleteToolCall(call);
    }

    @Override
    public void onCompleteResponse(ChatResponse response) {
      boolean isRound = response.aiMessage().hasToolExecutionRequests();
      run.take(() -> response(isRound ? "IntermediateResponse" : "ChatCompleted", response));
      if (!isRound) run.end();
      next.onCompleteResponse(response);
    }

    @Override
    public void onError(Throwable error) {
      run.failed(error);
      next.onError(error);
    }
  }

  /** After a cancel, the model says nothing more. */
  private final class RecordedHandle implements StreamingHandle {
    private final StreamingHandle handle;

    RecordedHandle(StreamingHandle handle) {
      this.handle = handle;
    }

    @Override
    public void cancel() {
      handle.cancel();
      cancelled();
    }

    @Override
    public boolean isCancelled() {
      return handle.isCancelled();
    }

    private void cancelled() {
      run.cancelled();
    }
  }
}
