/**
 * The gRPC server alone: real connections on the loopback, handlers of a few lines. What the handlers
 * of the service do is tested elsewhere; here is what every call meets before and after them.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { deflateSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import {
  PushSessionEventRequestSchema,
  SessionEventSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionSchema, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type ErrorCode, invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { GRPC_STATUS } from "../../src/rpc/status.ts";
import type { SessionHandlers } from "../../src/rpc/answers.ts";
import { REQUEST_BYTES_MAX } from "../../src/rpc/server.ts";
import { frame, rawCall } from "../support/http2-frames.ts";
import { startRpc } from "../support/rpc-fixture.ts";

const { getSession, issueSessionToken, pushSessionEvent } = SessionService.method;
const PUSH = "/ambient.v1.SessionService/PushSessionEvent";

const ERROR_CODES = [
  "cancelled",
  "invalid_argument",
  "not_found",
  "already_exists",
  "failed_precondition",
  "aborted",
  "out_of_range",
  "deadline_exceeded",
  "unimplemented",
  "unauthenticated",
  "permission_denied",
  "overloaded",
  "unavailable",
  "internal",
] as const satisfies readonly ErrorCode[];

const echo: SessionHandlers = {
  pushSessionEvent: async ({ sessionId, eventType, payload, eventCount }) =>
    create(SessionEventSchema, { id: "e1", sessionId, seq: 1n, eventType, payload, eventCount }),
};

function pushBytes(payload: string): Uint8Array {
  const request = { sessionId: "s1", eventType: "RAW", payload };
  return toBinary(PushSessionEventRequestSchema, create(PushSessionEventRequestSchema, request));
}

describe("a unary call", () => {
  test("has a log record with method and session, and without payload", async () => {
    await using rpc = await startRpc(echo);
    await rpc.client.unary(pushSessionEvent, { sessionId: "s1", payload: "not for the log" });
    const record = await rpc.recorded("call");
    expect(record).toMatchObject({
      level: "info",
      method: "PushSessionEvent",
      code: "OK",
      sessionId: "s1",
    });
    expect(record["durationMs"]).toBeTypeOf("number");
    expect(JSON.stringify(rpc.records)).not.toContain("not for the log");
    const text = await rpc.metrics.text();
    expect(text).toContain('session_ledger_calls_total{method="PushSessionEvent",code="OK"} 1');
    expect(text).toContain(
      'session_ledger_call_duration_seconds_count{method="PushSessionEvent"} 1',
    );
  });

  test("is logged at debug if it succeeded and logCalls is failures, and a refusal at info", async () => {
    await using rpc = await startRpc(echo, { logCalls: "failures" });
    await rpc.client.unary(pushSessionEvent, {});
    await expect(rpc.client.unary(getSession, { id: "s1" })).rejects.toMatchObject({
      code: "UNIMPLEMENTED",
    });
    const calls = rpc.records.filter((record) => record.msg === "call");
    expect(calls.map(({ level, method }) => [level, method])).toEqual([
      ["debug", "PushSessionEvent"],
      ["info", "GetSession"],
    ]);
  });
});

describe("a refusal", () => {
  test.each(ERROR_CODES)("%s reaches the caller as its status", async (code) => {
    const reason = "STREAM_REPLACED";
    expect(ERROR_CODES).toHaveLength(Object.keys(GRPC_STATUS).length);
    await using rpc = await startRpc({
      getSession: async () => {
        throw new ServiceError(code, reason, "über 100 %");
      },
    });
    await expect(rpc.client.unary(getSession, { id: "s1" })).rejects.toMatchObject({
      code: status[GRPC_STATUS[code]],
      message: "über 100 %",
      reason,
      domain: "session-ledger",
      violations: [],
      retryAfterMs: undefined,
    });
    // A caller who left was refused nothing.
    const refusals = code === "cancelled" ? "" : `_refused_total{reason="${reason}"} 1`;
    const line = /_refused_total\{reason=.*/;
    expect(line.exec(await rpc.metrics.text())?.[0] ?? "").toBe(refusals);
  });

  test("names the wrong fields, or the time to retry", async () => {
    const violations = [{ field: "id", description: "id is required" }];
    await using rpc = await startRpc({
      getSession: async () => {
        throw invalidArgument(violations);
      },
      listSessions: async () => {
        throw new ServiceError("overloaded", "QUEUE_FULL", "full", { retryAfterMs: 250 });
      },
    });
    await expect(rpc.client.unary(getSession, {})).rejects.toMatchObject({ violations });
    const list = rpc.client.unary(SessionService.method.listSessions, {});
    await expect(list).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED", retryAfterMs: 250 });
    expect(await rpc.recorded("call")).toMatchObject({ reason: "INVALID_REQUEST" });
  });

  test("a defect is INTERNAL without detail outside, and the log has all of it", async () => {
    await using rpc = await startRpc({
      getSession: async () => {
        throw new TypeError("secret detail", { cause: new Error("deeper secret") });
      },
    });
    const failure = await rpc.client.unary(getSession, { id: "s1" }).catch((error) => error);
    expect(failure).toMatchObject({ code: "INTERNAL", message: "internal error" });
    expect(failure).toMatchObject({ reason: "INTERNAL" });
    expect(JSON.stringify(failure)).not.toContain("secret");
    const record = await rpc.recorded("call");
    expect(record).toMatchObject({ level: "error", code: "INTERNAL", sessionId: "s1" });
    expect(record["err"]).toMatchObject({
      type: "TypeError",
      message: "secret detail",
      stack: expect.stringContaining("rpc-server.test.ts"),
      cause: { message: "deeper secret" },
    });
  });

  test("a handler that throws synchronously or answers nonsense is a defect", async () => {
    await using rpc = await startRpc({
      getSession: () => {
        throw new Error("not even a promise");
      },
      createSession: async () => ({ ...create(SessionSchema), name: "" }),
      pushSessionEvent: async () => ({ ...create(SessionEventSchema), eventCount: 0.5 }),
    });
    await expect(rpc.client.unary(getSession, {})).rejects.toMatchObject({ code: "INTERNAL" });
    const push = rpc.client.unary(pushSessionEvent, {});
    await expect(push).rejects.toMatchObject({ code: "INTERNAL", message: "internal error" });
  });

  test("a method without a handler and an unknown method are UNIMPLEMENTED", async () => {
    await using rpc = await startRpc({});
    await expect(rpc.client.unary(issueSessionToken, {})).rejects.toMatchObject({
      code: "UNIMPLEMENTED",
      reason: "NOT_IMPLEMENTED",
    });
    const stream = rpc.client.serverStream(SessionService.method.watchSessions, {});
    await expect(stream.next()).rejects.toMatchObject({ reason: "NOT_IMPLEMENTED" });
    const bidi = rpc.client.bidiStream(SessionService.method.pushSessionEvents);
    await expect(bidi.next()).rejects.toMatchObject({ reason: "NOT_IMPLEMENTED" });
    const unknown = rpc.client.unaryBytes("/ambient.v1.SessionService/Nothing", Buffer.alloc(0));
    await expect(unknown).rejects.toMatchObject({ code: "UNIMPLEMENTED" });
  });
});

describe("a broken request", () => {
  const untouched: SessionHandlers = {
    pushSessionEvent: () => Promise.reject(new Error("the handler must not see it")),
  };

  test.each([
    ["truncated", "0a0a7331"],
    ["garbage", "ffffffffffff"],
    ["invalid UTF-8", "0a02c328"],
    ["of the wrong type", "0801"],
  ])("%s bytes are INVALID_ARGUMENT", async (_, hex) => {
    await using rpc = await startRpc(untouched);
    const call = rpc.client.unaryBytes(pushSessionEvent, Buffer.from(hex, "hex"));
    await expect(call).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      reason: "INVALID_REQUEST",
      violations: [{ field: "" }],
    });
    expect(await rpc.recorded("call")).toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  const whole = pushBytes("{}");
  const zipped = gzipSync(whole);
  const gzip = { "grpc-encoding": "gzip" };
  test.each([
    ["a gzip frame that is cut off", frame(zipped.subarray(0, -9), true), gzip, 3],
    ["a gzip frame that is no gzip", frame(whole, true), gzip, 3],
    [
      "broken bytes in a whole gzip frame",
      frame(gzipSync(Buffer.from("0a0a", "hex")), true),
      gzip,
      3,
    ],
    ["a frame that is shorter than its length field", frame(whole).subarray(0, -1), {}, 3],
    ["half a frame head", Buffer.from([0, 0, 0]), {}, 3],
    ["no frame", Buffer.alloc(0), {}, 3],
    ["two frames", Buffer.concat([frame(whole), frame(whole)]), {}, 12],
    ["an unknown encoding", frame(whole, true), { "grpc-encoding": "br" }, 12],
    ["an invalid timeout", frame(whole), { "grpc-timeout": "soon" }, 3],
  ])("%s", async (_, body, headers, code) => {
    await using rpc = await startRpc(untouched);
    const answer = await rawCall(rpc.server.address, { path: PUSH, body, headers });
    expect(answer).toMatchObject({
      status: code,
      reason: code === 3 ? "INVALID_REQUEST" : "NOT_IMPLEMENTED",
    });
    expect(rpc.records.filter((record) => record.msg === "call")).toHaveLength(1);
    expect(rpc.records.filter((record) => record.level === "error")).toEqual([]);
  });

  test("compressed frames of gzip and deflate are read whole", async () => {
    await using rpc = await startRpc(echo);
    for (const [encoding, bytes] of [
      ["gzip", zipped],
      ["deflate", deflateSync(whole)],
    ] as const) {
      const headers = { "grpc-encoding": encoding };
      const body = frame(bytes, true);
      const answer = await rawCall(rpc.server.address, { path: PUSH, body, headers });
      expect(answer.status).toBe(0);
    }
  });

  test("a request of 4 MiB is read, and one byte more is RESOURCE_EXHAUSTED", async () => {
    await using rpc = await startRpc(echo);
    const filler = REQUEST_BYTES_MAX - pushBytes("").length - 5;
    const largest = pushBytes("x".repeat(filler));
    expect(largest).toHaveLength(REQUEST_BYTES_MAX);
    const answer = await rawCall(rpc.server.address, { path: PUSH, body: frame(largest) });
    expect(answer.status).toBe(0);
    const above = rpc.client.unaryBytes(pushSessionEvent, pushBytes("x".repeat(filler + 1)));
    await expect(above).rejects.toMatchObject({
      code: "RESOURCE_EXHAUSTED",
      reason: "REQUEST_TOO_LARGE",
    });
  });

  test("a small frame that decompresses to more than 4 MiB is RESOURCE_EXHAUSTED", async () => {
    await using rpc = await startRpc(untouched);
    const body = frame(gzipSync(Buffer.alloc(REQUEST_BYTES_MAX * 8)), true);
    const answer = await rawCall(rpc.server.address, { path: PUSH, body, headers: gzip });
    expect(answer).toMatchObject({
      status: status.RESOURCE_EXHAUSTED,
      reason: "REQUEST_TOO_LARGE",
    });
  });
});

describe("a call that ends before its handler", () => {
  test("at its deadline is DEADLINE_EXCEEDED, and aborts the signal of the handler", async () => {
    const aborted = Promise.withResolvers<unknown>();
    await using rpc = await startRpc(
      {
        pushSessionEvent: (_, { signal }) => {
          signal.addEventListener("abort", () => aborted.resolve(signal.reason));
          return new Promise(() => undefined);
        },
      },
      { stopLimitMs: 0 },
    );
    const headers = { "grpc-timeout": "20m" };
    const body = frame(pushBytes("{}"));
    const answer = await rawCall(rpc.server.address, { path: PUSH, body, headers });
    expect(answer).toMatchObject({
      status: status.DEADLINE_EXCEEDED,
      reason: "DEADLINE_EXCEEDED",
    });
    expect(await aborted.promise).toMatchObject({ code: "deadline_exceeded" });
    expect(await rpc.recorded("call")).toMatchObject({
      code: "DEADLINE_EXCEEDED",
      sessionId: "s1",
    });
  });

  test("by its caller aborts the signal, and the answer of the handler is dropped", async () => {
    const entered = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      getSession: async (_, { signal }) => {
        entered.resolve();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        return create(SessionSchema);
      },
    });
    const leaving = new AbortController();
    const call = rpc.client.unary(getSession, { id: "s1" }, { signal: leaving.signal });
    await entered.promise;
    leaving.abort();
    await expect(call).rejects.toMatchObject({ code: "CANCELLED" });
    expect(await rpc.recorded("call")).toMatchObject({ level: "info", code: "CANCELLED" });
    expect(rpc.records.filter((record) => record.msg === "call")).toHaveLength(1);
  });

  test("gives an aborted signal to a handler that asks for it later", async () => {
    const entered = Promise.withResolvers<void>();
    const left = Promise.withResolvers<void>();
    const seen = Promise.withResolvers<AbortSignal>();
    await using rpc = await startRpc({
      getSession: async (_, context) => {
        entered.resolve();
        await left.promise;
        seen.resolve(context.signal);
        return create(SessionSchema);
      },
    });
    const leaving = new AbortController();
    const call = rpc.client.unary(getSession, { id: "s1" }, { signal: leaving.signal });
    await entered.promise;
    leaving.abort();
    await expect(call).rejects.toMatchObject({ code: "CANCELLED" });
    await rpc.recorded("call");
    left.resolve();
    expect(await seen.promise).toMatchObject({ aborted: true, reason: { code: "cancelled" } });
  });

  test("still logs a defect of the handler", async () => {
    const entered = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      getSession: async (_, { signal }) => {
        entered.resolve();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        throw new Error("too late");
      },
    });
    const leaving = new AbortController();
    const call = rpc.client.unary(getSession, {}, { signal: leaving.signal });
    await entered.promise;
    leaving.abort();
    await expect(call).rejects.toMatchObject({ code: "CANCELLED" });
    const record = await rpc.recorded("call failed after its end");
    expect(record).toMatchObject({ level: "error", err: { message: "too late" } });
  });
});
