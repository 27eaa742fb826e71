package io.sessionledger.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.sessionledger.client.mapping.LangChain4jMapper;
import io.sessionledger.client.mapping.RunMapper;
import io.sessionledger.client.mapping.SpringAiMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The vectors of test/vectors/history, which hold the mappings of Java and TypeScript equal. */
class GoldenVectorsTest {
  @TestFactory
  Stream<DynamicTest> langChain4j() throws IOException {
    return cases("langchain4j", LangChain4jMapper::new);
  }

  @TestFactory
  Stream<DynamicTest> springAi() throws IOException {
    return cases("spring-ai", SpringAiMapper::new);
  }

  private static Stream<DynamicTest> cases(
      String file, BiFunction<String, String, RunMapper> mapping) throws IOException {
    Path path = Path.of("../../../test/vectors/history", file + ".json");
    JsonObject vectors = JsonParser.parseString(Files.readString(path)).getAsJsonObject();
    String sessionId = vectors.get("sessionId").getAsString();
    String runId = vectors.get("runId").getAsString();
    return StreamSupport.stream(vectors.getAsJsonArray("cases").spliterator(), false)
        .map(JsonElement::getAsJsonObject)
        .map(
            one ->
                DynamicTest.dynamicTest(
                    one.get("name").getAsString(),
                    () -> check(one, mapping.apply(sessionId, runId))));
  }

  private static void check(JsonObject one, RunMapper mapper) {
    List<JsonElement> made = new ArrayList<>();
    one.getAsJsonArray("input").forEach(value -> made.addAll(mapper.take(value.getAsJsonObject())));
    made.addAll(mapper.end());
    assertEquals(one.getAsJsonArray("events").asList(), made);
  }
}
