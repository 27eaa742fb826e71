import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { type StatusObject, status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "@session-ledger/proto/google/rpc/error_details_pb";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { statusOf } from "../../src/rpc/status.ts";

function detailsOf(answer: StatusObject) {
  const [bytes] = answer.metadata.get("grpc-status-details-bin");
  if (!Buffer.isBuffer(bytes)) throw new Error("no details");
  const { code, message, details } = fromBinary(StatusSchema, bytes);
  return {
    code,
    message,
    bytes: bytes.length,
    info: details.map((any) => anyUnpack(any, ErrorInfoSchema)).find(Boolean),
    badRequest: details.map((any) => anyUnpack(any, BadRequestSchema)).find(Boolean),
    retry: details.map((any) => anyUnpack(any, RetryInfoSchema)).find(Boolean),
  };
}

describe("an error as a gRPC status", () => {
  test("always has a reason and a domain, and nothing else without cause", () => {
    const answer = statusOf(new ServiceError("aborted", "STREAM_REPLACED", "replaced"));
    expect(answer).toMatchObject({ code: status.ABORTED, details: "replaced" });
    const details = detailsOf(answer);
    expect(details).toMatchObject({ code: status.ABORTED, message: "replaced" });
    expect(details.info).toMatchObject({ reason: "STREAM_REPLACED", domain: "session-ledger" });
    expect(details.badRequest).toBeUndefined();
    expect(details.retry).toBeUndefined();
  });

  test("fits into 8 KiB of trailers for the largest error", () => {
    const violations = Array.from({ length: 1_000 }, (_, index) => ({
      field: `payload.${"é".repeat(10_000)}${index}`,
      description: "ü".repeat(100_000),
    }));
    const answer = statusOf(invalidArgument(violations));
    const details = detailsOf(answer);
    expect(details.badRequest?.fieldViolations.length).toBeGreaterThan(0);
    expect(details.message.endsWith("…")).toBe(true);
    const trailers = encodeURI(answer.details).length + Math.ceil((details.bytes * 4) / 3);
    expect(trailers).toBeLessThan(8 * 1024 - 256); // The rest: grpc-status, names, content-type.
  });

  test("has the first of many small violations", () => {
    const violations = Array.from({ length: 100 }, (_, index) => ({
      field: `f${index}`,
      description: "wrong",
    }));
    const listed = detailsOf(statusOf(invalidArgument(violations))).badRequest?.fieldViolations;
    expect(listed?.map(({ field }) => field)).toEqual(
      violations.slice(0, 16).map(({ field }) => field),
    );
  });

  test("replaces half a surrogate pair", () => {
    const answer = statusOf(
      new ServiceError("invalid_argument", "INVALID_REQUEST", `got \ud83d in ${"x".repeat(600)}`),
    );
    expect(() => encodeURI(answer.details)).not.toThrow();
    expect(answer.details.startsWith("got \ufffd in x")).toBe(true);
  });

  test.each([509, 510, 511, 512, 513])(
    "cuts a message of %d characters between characters",
    (length) => {
      const text = `${"x".repeat(length - 2)}😀`; // Two code units, four bytes.
      const { details } = statusOf(new ServiceError("not_found", "SESSION_NOT_FOUND", text));
      expect(Buffer.byteLength(details)).toBeLessThanOrEqual(512);
      expect(details.isWellFormed()).toBe(true);
      expect(details === text || details.endsWith("x…")).toBe(true);
    },
  );
});
