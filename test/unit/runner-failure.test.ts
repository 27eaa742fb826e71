import { Metadata, status } from "@grpc/grpc-js";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import { GRPC_STATUS, statusOf } from "../../src/rpc/status.ts";
import { failureFrom, RpcFailure } from "@session-ledger/runner/internal/failure";

/** The error that grpc-js throws for a call with this status. */
function thrown(fields: ReturnType<typeof statusOf>): Error {
  return Object.assign(new Error(fields.details), fields);
}

function failure(fields: ReturnType<typeof statusOf>): RpcFailure {
  const decoded = failureFrom(thrown(fields));
  if (decoded instanceof RpcFailure) return decoded;
  throw new Error("not a failure of a call");
}

test("a failure has all details of the service's error", () => {
  const violations = [
    { field: "payload.delta", description: "expected a string" },
    { field: "event_count", description: "expected 1" },
  ];
  const said = new ServiceError("invalid_argument", "INVALID_REQUEST", "expected a string", {
    violations,
    retryAfterMs: 1_250,
  });
  expect(failure(statusOf(said))).toMatchObject({
    code: "INVALID_ARGUMENT",
    message: "expected a string",
    reason: "INVALID_REQUEST",
    violations,
    retryAfterMs: 1_250,
  });
});

// A runner that was fenced died with forty lines of the bytes of its details.
test("a printed failure has no bytes of its details", () => {
  const said = new ServiceError("failed_precondition", "STALE_EPOCH", "another writer took over");
  const printed = inspect(failure(statusOf(said)));
  expect(printed).toContain("another writer took over");
  expect(printed).toContain("STALE_EPOCH");
  expect(printed).not.toMatch(/Uint8Array|Metadata|grpc-status-details-bin/);
});

test.each(Object.entries(GRPC_STATUS))(
  "a failure with %s keeps the name of its code",
  (_, code) => {
    const { code: name } = failure({ code, details: "", metadata: new Metadata() });
    expect(status[name]).toBe(code);
  },
);

test("unreadable details leave only the code", () => {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from([0xff, 0xff, 0xff]));
  const found = failure({ code: status.NOT_FOUND, details: "", metadata });
  expect(found).toMatchObject({ code: "NOT_FOUND", message: "NOT_FOUND", violations: [] });
  expect(found.reason).toBeUndefined();
});

test("an empty resolution note is removed from the message", () => {
  const said = "No connection established. Last error: EHOSTUNREACH. Resolution note: ";
  const { message } = failure({
    code: status.UNAVAILABLE,
    details: said,
    metadata: new Metadata(),
  });
  expect(message).toBe("No connection established. Last error: EHOSTUNREACH");
  const details = `${said}of a name`;
  const noted = failure({ code: status.UNAVAILABLE, details, metadata: new Metadata() });
  expect(noted.message).toBe(details);
});

test("an error that is not a status is returned as a defect", () => {
  const defect = new TypeError("a defect");
  expect(failureFrom(defect)).toBe(defect);
});

describe("a temporary failure", () => {
  const full = new ServiceError("overloaded", "QUEUE_FULL", "full", { retryAfterMs: 250 });
  const large = new ServiceError("overloaded", "PAYLOAD_TOO_LARGE", "large");
  const stopping = new ServiceError("unavailable", "SHUTTING_DOWN", "stopping");
  const late = new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", "late");
  const wrong = new ServiceError("invalid_argument", "INVALID_REQUEST", "wrong");

  test.each([
    [full, { wasRefusedForNow: true, wasLost: false }],
    [large, { wasRefusedForNow: false, wasLost: false }],
    [stopping, { wasRefusedForNow: false, wasLost: true }],
    [late, { wasRefusedForNow: false, wasLost: true }],
    [wrong, { wasRefusedForNow: false, wasLost: false }],
  ])("is distinguished from a final one: %s", (error, expected) => {
    expect(failure(statusOf(error))).toMatchObject(expected);
  });
});
