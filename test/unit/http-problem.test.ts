/** Our errors as HTTP callers read them. */
import { describe, expect, test } from "vitest";
import { type ErrorCode, invalidArgument, ServiceError } from "@session-ledger/base/errors";
import {
  HTTP_STATUS,
  HttpRefusal,
  problemHeaders,
  problemOf,
  statusOf,
} from "../../src/http/plumbing/problem.ts";

test("a problem has the status, detail and reason of its error", () => {
  const error = new ServiceError("not_found", "SESSION_NOT_FOUND", "session s does not exist");
  expect(problemOf(error)).toEqual({
    type: "about:blank",
    title: "Not Found",
    status: 404,
    detail: "session s does not exist",
    reason: "SESSION_NOT_FOUND",
    violations: undefined,
  });
});

test("the problem of a defect has no detail", () => {
  const error = ServiceError.from(new Error("secret"));
  const problem = problemOf(error);
  expect(problem).toMatchObject({ status: 500, reason: "INTERNAL", detail: undefined });
  expect(JSON.stringify(problem)).not.toContain("secret");
  expect(JSON.stringify(problem)).not.toContain("internal error");
});

test.each<[ErrorCode, number]>([
  ["cancelled", 499],
  ["invalid_argument", 400],
  ["out_of_range", 400],
  ["unauthenticated", 401],
  ["permission_denied", 403],
  ["not_found", 404],
  ["already_exists", 409],
  ["failed_precondition", 409],
  ["aborted", 409],
  ["overloaded", 429],
  ["internal", 500],
  ["unimplemented", 501],
  ["unavailable", 503],
  ["deadline_exceeded", 504],
])("%s has the status %i", (code, status) => {
  expect(HTTP_STATUS[code]).toBe(status);
  expect(statusOf(new ServiceError(code, "INTERNAL", "m"))).toBe(status);
});

describe("a separate status", () => {
  test.each(["PAYLOAD_TOO_LARGE", "REQUEST_TOO_LARGE"] as const)("belongs to %s: 413", (reason) => {
    expect(statusOf(new ServiceError("overloaded", reason, "m"))).toBe(413);
  });

  test("belongs to a refusal that only HTTP has", () => {
    const error = new HttpRefusal(405, "m", { headers: { allow: "GET" } });
    expect(problemOf(error)).toMatchObject({ status: 405, title: "Method Not Allowed" });
    expect(problemHeaders(error)).toEqual({ allow: "GET" });
  });
});

test("violations use the parameter names of HTTP, and keep the rest of the path", () => {
  const error = invalidArgument([
    { field: "session_id", description: "session_id is required" },
    { field: "event_types[3]", description: "event_types[3] must be an event type" },
    { field: "payload.session_id", description: "expected a session_id" },
  ]);
  expect(problemOf(error)).toMatchObject({
    detail: "id is required",
    violations: [
      { field: "id", description: "id is required" },
      { field: "event_type[3]", description: "event_type[3] must be an event type" },
      { field: "payload.session_id", description: "expected a session_id" },
    ],
  });
  expect(problemOf(error, { session_id: "threadId" }).detail).toBe("threadId is required");
});

test("a field named like a property of every object is not renamed", () => {
  const error = invalidArgument([{ field: "constructor", description: "constructor is odd" }]);
  expect(problemOf(error).detail).toBe("constructor is odd");
});

test("a problem has a limited number of violations", () => {
  const many = Array.from({ length: 100 }, (_, n) => ({ field: `f${n}`, description: "d" }));
  expect(problemOf(invalidArgument(many)).violations).toHaveLength(16);
});

test("Retry-After is in whole seconds, rounded up", () => {
  const after = (retryAfterMs: number) =>
    problemHeaders(new ServiceError("unavailable", "QUEUE_FULL", "m", { retryAfterMs }));
  expect(after(1)).toEqual({ "retry-after": "1" });
  expect(after(1_000)).toEqual({ "retry-after": "1" });
  expect(after(1_001)).toEqual({ "retry-after": "2" });
});

test("a transcript that is too large has the status 422, and no Retry-After", () => {
  const error = new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", "m");
  expect(statusOf(error)).toBe(422);
  expect(problemHeaders(error)).toEqual({});
});
