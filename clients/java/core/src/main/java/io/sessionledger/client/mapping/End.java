package io.sessionledger.client.mapping;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

/**
 * How a stream ends.
 *
 * @param result of a finished run; null: it failed
 * @param thrown the error, if it was an object
 */
record End(JsonObject result, String message, String code, JsonObject thrown) {
  static final End TRUNCATED =
      new End(null, "the stream ended without a terminal event", "TRUNCATED", null);
  private static final End CANCELLED =
      new End(null, "the stream was cancelled", "CANCELLED", null);

  static End finished(JsonObject result) {
    return new End(result, null, null, null);
  }

  /** Also in streams of Spring AI, which has no events for them. Null: the event is no failure. */
  static End failureOf(JsonObject event) {
    return switch (LangChain4jMapper.typeOf(event)) {
      case "cancel", "StreamAborted" -> CANCELLED;
      case "failure", "StreamError" -> failed(event);
      default -> null;
    };
  }

  private static End failed(JsonObject event) {
    JsonElement error = event.get("error");
    JsonObject thrown = Json.object(error);
    JsonElement told = thrown != null ? thrown.get("message") : Json.member(event, "error", "message");
    String message = Json.text(told);
    return new End(
        null,
        message != null ? message : "the stream failed",
        Json.text(event.get("code")),
        thrown);
  }

  void endRun(ToldRun run) {
    if (result != null) run.finish(result);
    else run.fail(message, code, thrown);
  }
}
