package io.sessionledger.client.mapping;

import com.google.gson.JsonObject;
import java.util.List;

/** Takes what a framework tells of a stream, one value after the other, and gives AG-UI events. */
public interface RunMapper {
  List<JsonObject> take(JsonObject value);

  /** The values have ended. */
  List<JsonObject> end();
}
