package io.sessionledger.client.mapping;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** Values of JSON whose shape is not known. Null is also for what is missing. */
final class Json {
  private Json() {}

  static JsonObject event(String type) {
    JsonObject event = new JsonObject();
    event.addProperty("type", type);
    return event;
  }

  static JsonObject event(String type, String member, String value) {
    JsonObject event = event(type);
    event.addProperty(member, value);
    return event;
  }

  /** The first of these members that has a value. */
  static JsonElement member(JsonObject object, String... names) {
    for (String name : names) {
      JsonElement value = object == null ? null : object.get(name);
      if (value != null && !value.isJsonNull()) return value;
    }
    return null;
  }

  static JsonObject object(JsonElement value) {
    return value != null && value.isJsonObject() ? value.getAsJsonObject() : null;
  }

  static List<JsonObject> objects(JsonElement value) {
    List<JsonObject> found = new ArrayList<>();
    if (value == null || !value.isJsonArray()) return found;
    JsonArray list = value.getAsJsonArray();
    for (JsonElement one : list) if (one.isJsonObject()) found.add(one.getAsJsonObject());
    return found;
  }

  static String text(JsonElement value) {
    boolean isText =
        value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
    return isText ? value.getAsString() : null;
  }

  /** The text of a member; the empty one is none. */
  static String id(JsonObject object, String name) {
    String text = text(object.get(name));
    return text == null || text.isEmpty() ? null : text;
  }

  /** Text as it is, anything else as its JSON; empty: there is no value. */
  static String content(JsonElement value) {
    if (value == null || value.isJsonNull()) return "";
    String text = text(value);
    return text != null ? text : value.toString();
  }

  /** A count; null: the value is none. */
  static Long count(JsonElement value) {
    boolean isNumber =
        value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isNumber();
    if (!isNumber) return null;
    double number = value.getAsDouble();
    boolean isCount = number == Math.rint(number) && Math.abs(number) < 1L << 53;
    return isCount ? Long.valueOf((long) number) : null;
  }
}
