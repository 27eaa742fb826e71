package io.sessionledger.client;

import io.sessionledger.ambient.v1.Sender;
import java.util.Objects;
import java.util.UUID;

/**
 * A message for people.
 *
 * @param type user, assistant, system and so on
 * @param key makes a repeated message the same one
 * @param sender who says it, or null
 */
public record LedgerMessage(String type, String payload, String key, Sender sender) {
  public LedgerMessage {
    Objects.requireNonNull(type, "type");
    Objects.requireNonNull(payload, "payload");
    Objects.requireNonNull(key, "key");
  }

  /** A message with a random key. */
  public static LedgerMessage of(String type, String payload) {
    return new LedgerMessage(type, payload, UUID.randomUUID().toString(), null);
  }
}
