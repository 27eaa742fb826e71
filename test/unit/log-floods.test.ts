/**
 * A caller can cause any number of refusals. The log is written synchronously, so the lines of such
 * a flood are limited, and the omitted ones are counted.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import {
  type RequestEnd,
  RequestRecords,
  UNKNOWN_ROUTE,
} from "../../src/http/plumbing/request-records.ts";
import { CallRecords } from "../../src/observability/call-records.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { MethodRecords } from "../../src/rpc/records.ts";
import { handClock } from "../support/auth.ts";
import type { LogRecord } from "../support/rpc-fixture.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const FLOOD = 2_000;
const NOT_FOUND = new ServiceError("not_found", "SESSION_NOT_FOUND", "secret");
const INVALID = new ServiceError("invalid_argument", "INVALID_REQUEST", "secret");
const RATE_LIMITED = new ServiceError("overloaded", "RATE_LIMITED", "secret");
const DEFECT = ServiceError.from(new Error("why"));

function recording() {
  const lines: LogRecord[] = [];
  const log = createLogTo({ write: (line) => lines.push(JSON.parse(line)) }, "info");
  return { lines, log, metrics: createMetrics(), clock: handClock() };
}

type Fail = (error: ServiceError, where?: string) => void;

/** The same test for both protocols; `where` is a method or a route. */
const PROTOCOLS = {
  gRPC(logged: "all" | "failures") {
    const parts = recording();
    const records = new CallRecords(parts, "call", logged);
    const fail: Fail = (error, name = "GetSession") => {
      const method = { ...SessionService.method.getSession, name };
      const end = { startedMs: 0, request: { id: "s1" }, error };
      new MethodRecords({ ...parts, records }, method).recordEnd(end);
    };
    return { ...parts, fail, msg: "call", where: "GetSession" };
  },
  HTTP(logged: "all" | "failures") {
    const parts = recording();
    const records = new RequestRecords(parts, { logRequests: logged });
    const fail: Fail = (error, route = "/sessions/:id") => {
      records.recordEnd({ ...END, route, error });
    };
    return { ...parts, fail, msg: "request", where: "/sessions/:id" };
  },
};

const END: RequestEnd = {
  method: "GET",
  route: "/sessions/:id",
  status: 400,
  startedMs: 0,
  isStream: false,
  wasLeft: false,
  sessionId: "s1",
  error: NOT_FOUND,
};

describe.each(Object.entries(PROTOCOLS))(
  "regression: %s limits the lines for refusals",
  (_, of) => {
    test("to twenty a second of a kind, and one line with the number left out", async () => {
      const { lines, fail, msg, where, clock, metrics } = of("failures");
      for (let n = 0; n < FLOOD; n += 1) fail(NOT_FOUND);
      expect(lines).toHaveLength(20);
      expect(lines.at(-1)).toMatchObject({ level: "info", msg, reason: "SESSION_NOT_FOUND" });
      vi.advanceTimersByTime(1_000);
      expect(lines.slice(20)).toMatchObject([
        {
          level: "info",
          msg: `${msg} lines left out`,
          lines: FLOOD - 20,
          of: { [`${where} SESSION_NOT_FOUND`]: FLOOD - 20 },
        },
      ]);
      clock.advance(1_000);
      fail(NOT_FOUND);
      expect(lines).toHaveLength(22);
      expect(await metrics.text()).toContain(`refused_total{reason="SESSION_NOT_FOUND"} 2001`);
    });

    test("for each kind apart, and for callers apart from the service", () => {
      const { lines, fail } = of("failures");
      const reasons = (reason: string): number =>
        lines.filter((line) => line["reason"] === reason).length;
      for (let n = 0; n < FLOOD; n += 1) fail(NOT_FOUND);
      fail(INVALID);
      expect(reasons("INVALID_REQUEST")).toBe(1);
      for (let n = 0; n < FLOOD; n += 1) fail(INVALID, `w${n % 50}`);
      for (let n = 0; n < FLOOD; n += 1) fail(RATE_LIMITED);
      expect(lines.filter(({ level }) => level === "info")).toHaveLength(100);
      expect(reasons("RATE_LIMITED")).toBe(20);
      const before = lines.length;
      vi.advanceTimersByTime(1_000);
      const told = lines.slice(before);
      expect(told.map(({ level }) => level).toSorted()).toEqual(["info", "warn"]);
      expect(told.map((line) => line["lines"])).toContain(FLOOD - 20);
    });

    test("but writes every defect", () => {
      const { lines, fail } = of("failures");
      for (let n = 0; n < FLOOD; n += 1) fail(NOT_FOUND);
      for (let n = 0; n < 200; n += 1) fail(DEFECT);
      expect(lines.filter(({ level }) => level === "error")).toHaveLength(200);
    });

    test("but writes every one with CALL_LOG=all", () => {
      const { lines, fail } = of("all");
      for (let n = 0; n < 100; n += 1) fail(NOT_FOUND);
      expect(lines).toHaveLength(100);
    });
  },
);

// Bug: such streams wrote 1,400 lines a second.
describe("regression: streams that end well have limited log lines", () => {
  test("of twenty a second for a method of gRPC", () => {
    const parts = recording();
    const all = new CallRecords(parts, "call", "failures");
    const { watchSessionEvents } = SessionService.method;
    const records = new MethodRecords({ ...parts, records: all }, watchSessionEvents);
    const end = { startedMs: 0, request: { sessionId: "s1" }, error: undefined };
    for (let n = 0; n < FLOOD; n += 1) records.recordEnd(end);
    expect(parts.lines).toHaveLength(20);
    vi.advanceTimersByTime(1_000);
    expect(parts.lines.at(-1)).toMatchObject({ of: { "WatchSessionEvents OK": FLOOD - 20 } });
  });

  test("of twenty a second for a route of HTTP", () => {
    const parts = recording();
    const records = new RequestRecords(parts, { logRequests: "failures" });
    const end = { ...END, status: 200, isStream: true, error: undefined };
    for (let n = 0; n < FLOOD; n += 1) records.recordEnd(end);
    expect(parts.lines).toHaveLength(20);
    vi.advanceTimersByTime(1_000);
    expect(parts.lines.at(-1)).toMatchObject({ of: { "/sessions/:id OK": FLOOD - 20 } });
  });
});

describe("regression: requests without a route, and bytes that are not a request, have no log line", () => {
  test("at the level info, and are counted", async () => {
    const parts = recording();
    const records = new RequestRecords(parts, { logRequests: "failures" });
    for (let n = 0; n < 100; n += 1) {
      records.recordEnd({ ...END, route: UNKNOWN_ROUTE, status: 404 });
      records.recordEarly(INVALID);
    }
    expect(parts.lines).toEqual([]);
    const text = await parts.metrics.text();
    expect(text).toContain('refused_total{reason="INVALID_REQUEST"} 100');
    expect(text).toContain('refused_total{reason="SESSION_NOT_FOUND"} 100');
    // Failures of the service itself are logged for every route.
    records.recordEnd({ ...END, route: UNKNOWN_ROUTE, error: DEFECT });
    records.recordEnd({ ...END, route: UNKNOWN_ROUTE, error: RATE_LIMITED });
    expect(parts.lines.map(({ level }) => level)).toEqual(["error", "warn"]);
  });
});
