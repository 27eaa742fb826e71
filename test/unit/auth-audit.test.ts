import { afterEach, expect, test, vi } from "vitest";
import { createAudit } from "../../src/auth/authorizer.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { handClock } from "../support/auth.ts";
import type { LogRecord } from "../support/rpc-fixture.ts";

type LogLevel = Parameters<typeof createLogTo>[1];

afterEach(() => {
  vi.useRealTimers();
});

function fixture(level?: LogLevel) {
  const records: LogRecord[] = [];
  const log = createLogTo({ write: (line) => records.push(JSON.parse(line)) }, level);
  const [metrics, clock] = [createMetrics(), handClock()];
  return { audit: createAudit({ log, metrics, clock }), records, metrics, clock };
}

const act = {
  principal: { ...ANONYMOUS, id: "ada", kind: "oidc" },
  action: "session.read",
  sessionId: "s1",
} as const;

test("a denial is counted, and its record has the actor, the action, the session and the reason", async () => {
  const { audit, records, metrics } = fixture();
  audit.denied(act, "scope");
  expect(records).toMatchObject([
    {
      level: "warn",
      msg: "denied",
      audit: true,
      actor: "ada",
      actorKind: "oidc",
      action: "session.read",
      sessionId: "s1",
      reason: "scope",
    },
  ]);
  expect(await metrics.text()).toContain(
    'session_ledger_denied_total{action="session.read",reason="scope"} 1',
  );
});

test("a completed act is recorded even during a flood of denials", () => {
  const { audit, records } = fixture();
  for (let n = 0; n < 1_000; n += 1) audit.denied(act, "role");
  audit.done({ ...act, action: "session.erase" }, { rows: 3 });
  expect(records.at(-1)).toMatchObject({
    level: "info",
    msg: "done",
    audit: true,
    actor: "ada",
    action: "session.erase",
    rows: 3,
  });
});

// Bug: erasures, deletions and issued tokens left no record at LOG_LEVEL=warn, denials none at
// error.
test.each(["warn", "error"] as const)("LOG_LEVEL=%s keeps every audit record", (level) => {
  const { audit, records } = fixture(level);
  audit.denied(act, "role");
  audit.unauthenticated("expired");
  audit.done({ ...act, action: "session.erase" });
  expect(records.map(({ msg }) => msg)).toEqual(["denied", "denied", "done"]);
});

test("LOG_LEVEL=silent keeps no audit record", () => {
  const { audit, records } = fixture("silent");
  audit.done({ ...act, action: "session.erase" });
  expect(records).toEqual([]);
});

test("a flood of denials leaves twenty lines a second and one line with the number left out; all are counted", async () => {
  vi.useFakeTimers();
  const { audit, records, metrics, clock } = fixture();
  for (let n = 0; n < 500; n += 1) audit.unauthenticated("signature");
  expect(records).toHaveLength(20);
  vi.advanceTimersByTime(1_000);
  expect(records.at(-1)).toMatchObject({
    msg: "audit records left out",
    kind: "authenticate",
    records: 480,
  });
  clock.advance(1_000);
  audit.unauthenticated("signature");
  expect(records).toHaveLength(22);
  expect(await metrics.text()).toContain(
    'session_ledger_denied_total{action="authenticate",reason="signature"} 501',
  );
});

test("a flood of bad tokens hides no denial of an authenticated caller", () => {
  const { audit, records } = fixture();
  for (let n = 0; n < 500; n += 1) audit.unauthenticated("form");
  audit.denied(act, "role");
  expect(records.at(-1)).toMatchObject({ actor: "ada", reason: "role" });
});

test("a session id of any length makes a line of bounded length", () => {
  const { audit, records } = fixture();
  audit.denied({ ...act, sessionId: "s".repeat(100_000) }, "role");
  expect(JSON.stringify(records[0]).length).toBeLessThan(500);
});
