/**
 * Answers: rows as JSON text, readable transcripts, and the log record and metrics of a request.
 */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionMessageSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { timestampOf } from "../../src/contract/times.ts";
import { ServedRequest } from "../../src/http/plumbing/call-context.ts";
import { eventItem, messageItem, rfc3339Of } from "../../src/http/answers.ts";
import { OpenRequests } from "../../src/http/plumbing/open-requests.ts";
import { type RequestEnd, RequestRecords } from "../../src/http/plumbing/request-records.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const HUGE = 9_007_199_254_740_993n; // 2^53 + 1: a double has no such number.

describe("an item of an answer", () => {
  const createdAt = { seconds: 1_700_000_000n, nanos: 1_999 };

  test("is a message", () => {
    const message = create(SessionMessageSchema, {
      id: "i",
      sessionId: "s",
      seq: 7n,
      eventType: "user",
      payload: 'a "quote"\n\u2028é',
      createdAt,
      deduplicated: true,
      sentAt: createdAt,
      sender: { id: "x", displayName: "Ann", isBot: true },
    });
    expect(JSON.parse(messageItem(message))).toEqual({
      id: "i",
      session_id: "s",
      seq: 7,
      event_type: "user",
      payload: 'a "quote"\n\u2028é',
      created_at: "2023-11-14T22:13:20.000001Z",
      sent_at: "2023-11-14T22:13:20.000001Z",
      sender: { id: "x", display_name: "Ann", is_bot: true },
    });
  });

  test("is an event, with its optional fields", () => {
    const event = create(SessionEventSchema, {
      id: "i",
      sessionId: "s",
      seq: 7n,
      eventType: "RAW",
      payload: "{}",
      createdAt,
      eventCount: 3,
    });
    const plain = {
      id: "i",
      session_id: "s",
      seq: 7,
      event_type: "RAW",
      payload: "{}",
      created_at: "2023-11-14T22:13:20.000001Z",
      event_count: 3,
    };
    expect(JSON.parse(eventItem(event))).toEqual(plain);
    event.runId = "r";
    event.completedAt = timestampOf(1_700_000_000_999_999n);
    expect(JSON.parse(eventItem(event))).toEqual({
      ...plain,
      completed_at: "2023-11-14T22:13:20.999999Z",
      run_id: "r",
    });
  });

  test("has a number above 2^53 with all its digits", () => {
    expect(messageItem(create(SessionMessageSchema, { seq: HUGE, createdAt }))).toContain(
      '"seq":9007199254740993,',
    );
    expect(eventItem(create(SessionEventSchema, { seq: HUGE, createdAt }))).toContain(
      '"seq":9007199254740993,',
    );
  });

  test.each([
    [0n, 0, "1970-01-01T00:00:00.000000Z"],
    [-1n, 999_999_999, "1969-12-31T23:59:59.999999Z"],
    [-62_135_596_800n, 0, "0001-01-01T00:00:00.000000Z"],
    [253_402_300_799n, 999_999_999, "9999-12-31T23:59:59.999999Z"],
  ])("has the time of %i s and %i ns", (seconds, nanos, text) => {
    expect(rfc3339Of({ $typeName: "google.protobuf.Timestamp", seconds, nanos })).toBe(text);
  });
});

describe("open requests", () => {
  test("do not become streams during a stop", async () => {
    const open = new OpenRequests();
    const request = new ServedRequest(() => open.stopping);
    await open.close();
    expect(() => request.becomeStream()).toThrow("shutting down");
  });

  test("have an aborted signal after the caller left, also when it is asked for later", () => {
    const [early, late] = [0, 1].map(() => new ServedRequest(() => undefined));
    const signal = early?.signal;
    for (const request of [early, late]) request?.onClose(true);
    expect(signal?.reason).toMatchObject({ reason: "CANCELLED" });
    expect(late?.signal.reason).toMatchObject({ reason: "CANCELLED" });
    expect(late?.hasEnded).toBe(true);
  });

  test("are not aborted once they have their answer", () => {
    const request = new ServedRequest(() => undefined);
    request.onClose(false);
    expect({ hasEnded: request.hasEnded, aborted: request.signal.aborted }).toEqual({
      hasEnded: true,
      aborted: false,
    });
  });
});

describe("the record of a request", () => {
  const END: RequestEnd = {
    method: "GET",
    route: "/a/:id",
    status: 200,
    startedMs: 1_000,
    isStream: false,
    wasLeft: false,
    sessionId: "s",
    error: undefined,
  };

  function recording(logRequests: "all" | "failures" = "all") {
    const lines: Record<string, unknown>[] = [];
    const log = createLogTo({ write: (line) => lines.push(JSON.parse(line)) }, "debug");
    const metrics = createMetrics();
    const clock = { nowMicros: () => 0n, monotonicMs: () => 1_012.3456 };
    const records = new RequestRecords({ log, metrics, clock }, { logRequests });
    return { lines, metrics, records };
  }

  const refused = (error: ServiceError) => ({ ...END, status: 400, error });

  test("is written once", () => {
    const { lines, records } = recording();
    records.recordEnd(END);
    expect(lines).toEqual([
      {
        level: "info",
        time: expect.any(String),
        method: "GET",
        route: "/a/:id",
        status: 200,
        durationMs: 12.346,
        sessionId: "s",
        msg: "request",
      },
    ]);
  });

  test("is for debugging after a success with CALL_LOG=failures, except for streams", () => {
    const { lines, records } = recording("failures");
    records.recordEnd(END);
    records.recordEnd({ ...END, isStream: true, wasLeft: true });
    records.recordEnd(refused(new ServiceError("not_found", "SESSION_NOT_FOUND", "secret")));
    expect(lines).toMatchObject([
      { level: "debug" },
      { level: "info", left: true },
      { level: "info", reason: "SESSION_NOT_FOUND" },
    ]);
    expect(JSON.stringify(lines)).not.toContain("secret");
  });

  test("has a level that shows whether the caller or the service is at fault", () => {
    const { lines, records } = recording();
    records.recordEnd(refused(ServiceError.from(new Error("why"))));
    records.recordEnd(refused(new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "m")));
    records.recordEnd(refused(new ServiceError("overloaded", "QUEUE_FULL", "m")));
    records.recordEnd(refused(new ServiceError("unavailable", "SHUTTING_DOWN", "m")));
    expect(lines.map(({ level }) => level)).toEqual(["error", "warn", "warn", "info"]);
    expect(lines[0]).toMatchObject({ err: { message: "why" } });
  });

  test("cuts a long text in place of a session id", () => {
    const { lines, records } = recording();
    records.recordEnd({ ...END, sessionId: "x".repeat(10_000) });
    expect(lines[0]?.["sessionId"]).toHaveLength(128);
  });

  test("regression: names the field of a refusal, and no value", () => {
    const { lines, records } = recording();
    const violation = { field: "page_size", description: "secret" };
    records.recordEnd(refused(invalidArgument([{ field: "", description: "" }, violation])));
    records.recordEnd(
      refused(invalidArgument([{ field: "x".repeat(1_000), description: "secret" }])),
    );
    records.recordEnd(refused(invalidArgument([{ field: "", description: "secret" }])));
    expect(lines.map(({ field }) => field)).toEqual(["limit", "x".repeat(128), undefined]);
    expect(JSON.stringify(lines)).not.toContain("secret");
  });

  test("counts in metrics by route, method and status, also for bytes that are not a request", async () => {
    const { metrics, records } = recording();
    records.recordEnd(END);
    records.recordEnd(refused(new ServiceError("not_found", "SESSION_NOT_FOUND", "m")));
    records.recordEarly(new ServiceError("invalid_argument", "INVALID_REQUEST", "m"));
    const text = await metrics.text();
    const name = "session_ledger_http_requests_total";
    expect(text).toContain(`${name}{route="/a/:id",method="GET",status="200"} 1`);
    expect(text).toContain(`${name}{route="/a/:id",method="GET",status="400"} 1`);
    expect(text).toContain(`${name}{route="unknown",method="unknown",status="400"} 1`);
    expect(text).toContain('http_request_duration_seconds_count{route="/a/:id"} 2');
    expect(text).toContain('refused_total{reason="SESSION_NOT_FOUND"} 1');
  });
});
