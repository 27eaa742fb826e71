package io.sessionledger.langchain4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.langchain4j.agent.tool.ToolExecutionRequest;
import dev.langchain4j.data.message.AiMessage;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.PartialThinking;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.output.FinishReason;
import io.grpc.ManagedChannel;
import io.sessionledger.client.LedgerChannels;
import io.sessionledger.client.LedgerWriter;
import io.sessionledger.client.TestService;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class SessionLedgerChatListenerTest {
  private static final ToolExecutionRequest CALL =
      ToolExecutionRequest.builder().id("c1").name("look").arguments("{\"x\":1}").build();

  /** Asks for a tool, then thinks and answers, then fails. */
  private static final class FakeModel implements StreamingChatModel {
    private int round;

    @Override
    public void doChat(ChatRequest request, StreamingChatResponseHandler handler) {
      switch (round++) {
        case 0 -> handler.onCompleteResponse(answer(AiMessage.from(CALL), FinishReason.TOOL_EXECUTION));
        case 1 -> {
          handler.onPartialThinking(new PartialThinking("hm"));
          handler.onPartialResponse("Do");
          handler.onPartialResponse("ne");
          handler.onCompleteResponse(answer(AiMessage.from("Done"), FinishReason.STOP));
        }
        default -> {
          handler.onPartialResponse("Be");
          handler.onError(new IllegalStateException("the model is away"));
        }
      }
    }

    private static ChatResponse answer(AiMessage message, FinishReason reason) {
      return ChatResponse.builder().aiMessage(message).finishReason(reason).build();
    }
  }

  @Test
  void roundsOfAModelBecomeARun() {
    String sessionId = TestService.newSession("langchain4j");
    ManagedChannel channel = LedgerChannels.plaintext(TestService.runningAddress()).build();
    try (LedgerWriter writer = LedgerWriter.builder(channel, sessionId).open()) {
      FakeModel model = new FakeModel();
      StringBuilder heard = new StringBuilder();
      StreamingChatResponseHandler own = new Heard(heard);
      SessionLedgerChatListener listener = new SessionLedgerChatListener(writer, "run-1");
      ask(model, listener.handler(own));
      listener.beforeTool(CALL);
      listener.toolExecuted(CALL, "found");
      ask(model, listener.handler(own));
      ask(model, new SessionLedgerChatListener(writer, "run-2").handler(own));
      assertTrue(writer.close(Duration.ofSeconds(30)));

      assertEquals("! hm Do ne ! Be the model is away", heard.toString().strip());
      List<JsonObject> events = TestService.eventsOf(channel, sessionId);
      assertEquals(
          List.of(
              "RUN_STARTED run-1",
              "STEP_STARTED round-0",
              "TOOL_CALL_START c1",
              "TOOL_CALL_ARGS c1",
              "TOOL_CALL_END c1",
              "TOOL_CALL_RESULT c1:result",
              "STEP_FINISHED round-0",
              "STEP_STARTED round-1",
              "REASONING_START run-1:r1.0",
              "REASONING_MESSAGE_START run-1:r1.0",
              "REASONING_MESSAGE_CONTENT run-1:r1.0",
              "REASONING_MESSAGE_END run-1:r1.0",
              "REASONING_END run-1:r1.0",
              "TEXT_MESSAGE_START run-1:m1.0",
              "TEXT_MESSAGE_CONTENT run-1:m1.0",
              "TEXT_MESSAGE_CONTENT run-1:m1.0",
              "TEXT_MESSAGE_END run-1:m1.0",
              "STEP_FINISHED round-1",
              "RUN_FINISHED run-1",
              "RUN_STARTED run-2",
              "STEP_STARTED round-0",
              "TEXT_MESSAGE_START run-2:m0.0",
              "TEXT_MESSAGE_CONTENT run-2:m0.0",
              "TEXT_MESSAGE_END run-2:m0.0",
              "RUN_ERROR the model is away"),
          events.stream().map(TestService::named).toList());
    } finally {
      channel.shutdownNow();
    }
  }

  private static void ask(StreamingChatModel model, StreamingChatResponseHandler handler) {
    model.chat(ChatRequest.builder().messages(UserMessage.from("Hello")).build(), handler);
  }

  private record Heard(StringBuilder texts) implements StreamingChatResponseHandler {
    @Override
    public void onPartialResponse(String text) {
      texts.append(text).append(' ');
    }

    @Override
    public void onPartialThinking(PartialThinking part) {
      texts.append(part.text()).append(' ');
    }

    @Override
    public void onCompleteResponse(ChatResponse response) {
      texts.append("! ");
    }

    @Override
    public void onError(Throwable error) {
      texts.append(error.getMessage());
    }
  }
}
