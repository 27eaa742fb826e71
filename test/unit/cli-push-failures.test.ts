/** What a push does after a failure: send the line again, go on with the next, or end. */
import { expect, test } from "vitest";
import { isFaultOfLine, mayRepeat } from "../../src/cli/push.ts";
import { RpcFailure } from "../../src/runner/failure.ts";

const wrongField = [{ field: "payload.delta", description: "expected a string" }];
const wrongSession = [{ field: "session_id", description: "session_id is required" }];

test.each([
  // The service is full, and did nothing.
  [new RpcFailure("RESOURCE_EXHAUSTED", "full", { retryAfterMs: 250 }), "again", "again"],
  // Nobody knows whether the line is stored: only a key makes it safe to ask.
  [new RpcFailure("UNAVAILABLE", "gone"), "again", "end"],
  [new RpcFailure("UNAVAILABLE", "outcome unknown", { retryAfterMs: 100 }), "again", "end"],
  [new RpcFailure("DEADLINE_EXCEEDED", "late"), "again", "end"],
  // This line will never be stored.
  [new RpcFailure("INVALID_ARGUMENT", "wrong", { violations: wrongField }), "next", "next"],
  [new RpcFailure("RESOURCE_EXHAUSTED", "too large"), "next", "next"],
  [new RpcFailure("ALREADY_EXISTS", "the key has other content"), "next", "next"],
  // No line will.
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
