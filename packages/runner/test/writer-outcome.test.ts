/** The consequences of a failure for a writer. */
import { describe, expect, test } from "vitest";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { systemClock } from "@session-ledger/base/clock";
import { SharedState } from "@session-ledger/runner/internal/writer/writer-state";
import {
  Attempts,
  WriterConnection,
  outcomeOfRecord,
  outcomeOfStream,
} from "@session-ledger/runner/internal/writer/connection";
import { checkedOptions } from "@session-ledger/runner/internal/writer/options";

const ONCE = { replaced: 1, epochGiven: false };

function failure(
  code: RpcFailure["code"],
  details: { reason?: string; retryAfterMs?: number } = {},
) {
  return new RpcFailure(code, "of the test", details);
}

describe("a stream that ended", () => {
  test.each([
    [failure("UNAVAILABLE"), "again"],
    [failure("DEADLINE_EXCEEDED"), "again"],
    [failure("CANCELLED"), "again"],
    [failure("INTERNAL"), "again"],
    [failure("UNKNOWN"), "again"],
    [failure("RESOURCE_EXHAUSTED", { reason: "QUEUE_FULL", retryAfterMs: 5 }), "again"],
    [failure("RESOURCE_EXHAUSTED", { reason: "RATE_LIMITED", retryAfterMs: 5 }), "again"],
    [failure("FAILED_PRECONDITION", { reason: "SESSION_FULL" }), "ended"],
    [failure("RESOURCE_EXHAUSTED", { reason: "SESSION_FULL" }), "ended"],
    [failure("UNIMPLEMENTED"), "ended"],
    [failure("FAILED_PRECONDITION", { reason: "STALE_EPOCH" }), "fenced"],
    [failure("NOT_FOUND", { reason: "SESSION_DELETED" }), "ended"],
    [failure("PERMISSION_DENIED"), "ended"],
    [failure("INVALID_ARGUMENT"), "ended"],
    [failure("ABORTED"), "again"],
    [failure("UNAUTHENTICATED"), "again"],
  ])("with %s has the fate: %s", (ended, fate) => {
    expect(outcomeOfStream(ended, ONCE)).toBe(fate);
  });

  test("tries again after a replacement, unless it happens too often or the epoch was given", () => {
    const replaced = failure("ABORTED", { reason: "STREAM_REPLACED" });
    expect(outcomeOfStream(replaced, ONCE)).toBe("again");
    expect(outcomeOfStream(replaced, { ...ONCE, replaced: 3 })).toBe("fenced");
    expect(outcomeOfStream(replaced, { ...ONCE, epochGiven: true })).toBe("fenced");
  });
});

describe("a failed record", () => {
  test.each([
    [failure("UNAVAILABLE"), "again"],
    [failure("DEADLINE_EXCEEDED"), "again"],
    [failure("RESOURCE_EXHAUSTED", { reason: "QUEUE_FULL", retryAfterMs: 5 }), "again"],
    [failure("RESOURCE_EXHAUSTED", { reason: "RATE_LIMITED", retryAfterMs: 5 }), "again"],
    [failure("FAILED_PRECONDITION", { reason: "SESSION_FULL" }), "ended"],
    [failure("RESOURCE_EXHAUSTED"), "again"],
    [failure("RESOURCE_EXHAUSTED", { reason: "PAYLOAD_TOO_LARGE" }), "refused"],
    [failure("INVALID_ARGUMENT"), "refused"],
    [failure("ALREADY_EXISTS", { reason: "KEY_REUSED" }), "refused"],
    [failure("FAILED_PRECONDITION", { reason: "STALE_EPOCH" }), "fenced"],
    [failure("NOT_FOUND"), "ended"],
    [failure("UNIMPLEMENTED"), "ended"],
    // A runner's token may not push messages of every type.
    [failure("PERMISSION_DENIED"), "refused"],
    [failure("UNAUTHENTICATED"), "again"],
  ])("with %s has the fate: %s", (refused, fate) => {
    expect(outcomeOfRecord(refused)).toBe(fate);
  });

  test("is refused when it is above the limit of the transport, which gives no reason", () => {
    const large = new RpcFailure(
      "RESOURCE_EXHAUSTED",
      "Received message larger than max (5000000 vs. 4194304)",
    );
    expect(outcomeOfRecord(large)).toBe("refused");
  });

  test("ends the writer when the session id is invalid", () => {
    const violations = [{ field: "session_id", description: "session_id is wrong" }];
    const wrong = new RpcFailure("INVALID_ARGUMENT", "session_id is wrong", { violations });
    expect(outcomeOfRecord(wrong)).toBe("ended");
  });
});

test("a refused token is renewed at once the first time, and after a pause later", async () => {
  const pausesMs: number[] = [];
  const wait = (pauseMs: number): Promise<void> => {
    pausesMs.push(pauseMs);
    return Promise.resolve();
  };
  const options = checkedOptions({ address: "127.0.0.1:1", sessionId: "s1", wait });
  const parts = {
    shared: new SharedState(systemClock, options),
    connection: new WriterConnection(options),
    options,
  };
  const attempts = new Attempts(parts, "events");
  const pauses = async (): Promise<number> => {
    await attempts.pauseAfter(failure("UNAUTHENTICATED"));
    return pausesMs.length;
  };
  expect([await pauses(), await pauses(), await pauses()]).toEqual([0, 1, 2]);
  attempts.succeeded();
  expect(await pauses()).toBe(2);
});
