package io.sessionledger.springai;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.sessionledger.client.LedgerChannels;
import io.sessionledger.client.LedgerWriter;
import io.sessionledger.client.TestService;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.metadata.ChatGenerationMetadata;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;
import org.springframework.ai.chat.prompt.Prompt;
import reactor.core.publisher.Flux;

@Timeout(60)
class SessionLedgerAdvisorTest {
  private static final class FakeModel implements ChatModel {
    @Override
    public ChatResponse call(Prompt prompt) {
      if (prompt.getContents().contains("fail")) throw new IllegalStateException("the model is away");
      return part("Hello", "STOP");
    }

    @Override
    public Flux<ChatResponse> stream(Prompt prompt) {
      Flux<ChatResponse> parts = Flux.just(part("Hel", null), part("lo", "STOP"));
      return prompt.getContents().contains("wait") ? parts.take(1).concatWith(Flux.never()) : parts;
    }

    private static ChatResponse part(String text, String reason) {
      ChatGenerationMetadata ending = ChatGenerationMetadata.builder().finishReason(reason).build();
      return new ChatResponse(List.of(new Generation(new AssistantMessage(text), ending)));
    }
  }

  @Test
  void eachCallOfAClientBecomesARun() {
    String sessionId = TestService.newSession("spring-ai");
    ManagedChannel channel = LedgerChannels.plaintext(TestService.runningAddress()).build();
    try (LedgerWriter writer = LedgerWriter.builder(channel, sessionId).open()) {
      ChatClient client =
          ChatClient.builder(new FakeModel())
              .defaultAdvisors(new SessionLedgerAdvisor(writer))
              .build();
      assertEquals(
          List.of("Hel", "lo"), asking(client, "r1", "hi").stream().content().collectList().block());
      assertEquals("Hello", asking(client, "r2", "hi").call().content());
      assertThrows(
          IllegalStateException.class, () -> asking(client, "r3", "fail").call().content());
      assertEquals("Hel", asking(client, "r4", "wait").stream().content().blockFirst());
      assertTrue(writer.close(Duration.ofSeconds(30)));
      assertEquals(
          List.of(
              "RUN_STARTED r1",
              "STEP_STARTED round-0",
              "TEXT_MESSAGE_START r1:m0.0",
              "TEXT_MESSAGE_CONTENT r1:m0.0",
              "TEXT_MESSAGE_CONTENT r1:m0.0",
              "TEXT_MESSAGE_END r1:m0.0",
              "STEP_FINISHED round-0",
              "RUN_FINISHED r1",
              "RUN_STARTED r2",
              "STEP_STARTED round-0",
              "TEXT_MESSAGE_START r2:m0.0",
              "TEXT_MESSAGE_CONTENT r2:m0.0",
              "TEXT_MESSAGE_END r2:m0.0",
              "STEP_FINISHED round-0",
              "RUN_FINISHED r2",
              "RUN_STARTED r3",
              "STEP_STARTED round-0",
              "RUN_ERROR the model is away",
              "RUN_STARTED r4",
              "STEP_STARTED round-0",
              "TEXT_MESSAGE_START r4:m0.0",
              "TEXT_MESSAGE_CONTENT r4:m0.0",
              "TEXT_MESSAGE_END r4:m0.0",
              "RUN_ERROR the stream was cancelled"),
          TestService.eventsOf(channel, sessionId).stream().map(TestService::named).toList());
    } finally {
      channel.shutdownNow();
    }
  }

  private static ChatClient.ChatClientRequestSpec asking(
      ChatClient client, String runId, String text) {
    return client
        .prompt(text)
        .advisors(advisors -> advisors.param(SessionLedgerAdvisor.RUN_ID, runId));
  }
}
