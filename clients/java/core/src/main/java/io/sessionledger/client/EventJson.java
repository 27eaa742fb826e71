package io.sessionledger.client;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.Map;
import java.util.function.Consumer;

/** An event as JSON that the service takes: one value in it that is no JSON costs only itself. */
final class EventJson {
  private static final int LEVELS_MAX = 64;

  private EventJson() {}

  /** Calls {@code replaced} for each value that became null or a short text, with its kind. */
  static String of(JsonObject event, Consumer<String> replaced) {
    String json;
    try {
      json = event.toString();
    } catch (StackOverflowError circle) {
      return plain(event, 1, replaced).toString();
    }
    boolean mayBeNoNumber = json.contains("NaN") || json.contains("Infinity");
    if (!mayBeNoNumber && levelsOf(json) <= LEVELS_MAX) return json;
    return plain(event, 1, replaced).toString();
  }

  private static JsonElement plain(JsonElement value, int level, Consumer<String> replaced) {
    if (value instanceof JsonPrimitive one) {
      boolean isNumber = one.isNumber() && !Double.isNaN(one.getAsDouble());
      // A long decimal number is infinite as a double, and still JSON.
      boolean isJson = !one.isNumber() || isNumber && !one.getAsString().contains("Infinity");
      if (isJson) return one;
      replaced.accept("NaN");
      return JsonNull.INSTANCE;
    }
    boolean isList = value.isJsonArray();
    if (!isList && !value.isJsonObject()) return value;
    if (level > LEVELS_MAX) {
      replaced.accept("depth");
      return new JsonPrimitive(isList ? "[…]" : "{…}");
    }
    if (isList) {
      JsonArray list = new JsonArray();
      for (JsonElement one : value.getAsJsonArray()) list.add(plain(one, level + 1, replaced));
      return list;
    }
    JsonObject object = new JsonObject();
    for (Map.Entry<String, JsonElement> member : value.getAsJsonObject().entrySet())
      object.add(member.getKey(), plain(member.getValue(), level + 1, replaced));
    return object;
  }

  private static int levelsOf(String json) {
    int level = 0;
    int most = 0;
    boolean isText = false;
    for (int at = 0; at < json.length(); at++) {
      char unit = json.charAt(at);
      if (unit == '"') isText = !isText;
      else if (isText && unit == '\\') at++;
      else if (!isText && (unit == '{' || unit == '[')) most = Math.max(most, ++level);
      else if (!isText && (unit == '}' || unit == ']')) level--;
    }
    return most;
  }
}
