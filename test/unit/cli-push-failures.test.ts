/** A push sends a line again after a failure, continues with the next one, or ends. */
import { expect, test } from "vitest";
import { isFaultOfLine, mayRepeat } from "../../src/cli/push-rows.ts";
import { RpcFailure } from "@session-ledger/runner/internal/failure";

const wrongField = [{ field: "payload.delta", description: "expected a string" }];
const wrongSession = [{ field: "session_id", description: "session_id is required" }];

test.each([
  // The service was full, and stored nothing.
  [new RpcFailure("RESOURCE_EXHAUSTED", "full", { retryAfterMs: 250 }), "again", "again"],
  // The outcome is unknown: only with a key is it safe to send the line again.
  [new RpcFailure("UNAVAILABLE", "gone"), "again", "end"],
  [new RpcFailure("UNAVAILABLE", "outcome unknown", { retryAfterMs: 100 }), "again", "end"],
  [new RpcFailure("DEADLINE_EXCEEDED", "late"), "again", "end"],
  // This line will never be stored.
  [new RpcFailure("INVALID_ARGUMENT", "wrong", { violations: wrongField }), "next", "next"],
  [new RpcFailure("RESOURCE_EXHAUSTED", "too large"), "next", "next"],
  [new RpcFailure("ALREADY_EXISTS", "the key has other content"), "next", "next"],
  // No line of this input will ever be stored.
  [new RpcFailure("INVALID_ARGUMENT", "wrong", { violations: wrongSession }), "end", "end"],
  [new RpcFailure("NOT_FOUND", "deleted"), "end", "end"],
  [new RpcFailure("FAILED_PRECONDITION", "another writer took over"), "end", "end"],
  [new RpcFailure("PERMISSION_DENIED", "no"), "end", "end"],
  [new RpcFailure("INTERNAL", "internal error"), "end", "end"],
])("after %s the push with keys does: %s, without: %s", (failure, withKeys, withoutKeys) => {
  const next = (keys: boolean): string =>
    mayRepeat(failure, { keys }) ? "again" : isFaultOfLine(failure) ? "next" : "end";
  expect([next(true), next(false)]).toEqual([withKeys, withoutKeys]);
});
