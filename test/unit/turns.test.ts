/** The start of a claimed run in every generation of the protocol, and the waits of claims. */
import { EventSchema } from "@ag-ui/core/schemas";
import { EventSchemas } from "agui-core-0";
import { describe, expect, test } from "vitest";
import { ArrivalWaits } from "../../src/handlers/turns/arrival-waits.ts";
import { runStarted, sessionMetadataOf } from "../../src/handlers/turns/run-started.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { systemClock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { settled } from "../support/slow-table.ts";
import { describeUnitContract } from "../support/unit-contract.ts";
import { watching } from "../support/watching.ts";

const SESSION = {
  consumed: { first: 3n, last: 2n ** 53n - 1n },
  producerEpoch: 2n ** 63n - 1n,
  lostRunId: 'lost "run"\u0000',
};

function composed(text: string, mode: "strict" | "exact" | "lenient" = "exact") {
  const start = runStarted(text, { sessionId: "s1", mode });
  return { start, row: start.row(SESSION, 5n) };
}

describe("the start of a claimed run", () => {
  test.each([
    '{"runId":"r1"}',
    ' { "type":"RUN_STARTED","threadId":"t","runId":"r1","parentRunId":"p" } ',
    '{"run_id":"r1","thread_id":"t","metadata":{}}',
    '{"runId":"r1","metadata":null,"timestamp":1700000000000}',
    '{"runId":"r1","metadata":{"a":{"b":"}"}},"other":"\\"}"}',
    '{"metadata":{"a":1 },"runId":"r1","input":{"threadId":"t","runId":"r1","state":{},"messages":[{"id":"m","role":"user","content":"hi"}],"tools":[],"context":[],"forwardedProps":{}}}',
  ])("is an event that all generations accept: %s", (text) => {
    const { start, row } = composed(text);
    expect([start.runId, row.conformant, row.mark]).toEqual([
      "r1",
      true,
      { kind: "open", runId: "r1" },
    ]);
    const event: unknown = JSON.parse(row.payload);
    expect(EventSchema.safeParse(event).success).toBe(true);
    expect(EventSchemas.safeParse(event).success).toBe(true);
    expect(sessionMetadataOf(row.payload)).toEqual(SESSION);
  });

  test("is refused in every mode when it would begin no run", () => {
    for (const mode of ["strict", "exact", "lenient"] as const) {
      expect(() => composed('{"runId":1}', mode)).toThrow(ServiceError);
      expect(() => composed('{"type":"CUSTOM","runId":"r1"}', mode)).toThrow(ServiceError);
    }
  });

  test("is not read from an event that no claim has stored", () => {
    for (const payload of ["{}", '{"metadata":1}', '{"metadata":{"session":{"consumed":{}}}}'])
      expect(sessionMetadataOf(payload)).toBe(undefined);
  });
});

function waits() {
  const { live, timers, metrics, table } = watching();
  const unit = new ArrivalWaits({ live, clock: systemClock, timers, metrics });
  const context = { principal: ANONYMOUS, hasEnded: false };
  const next = (sessionId: string): Promise<unknown> => {
    const call = { ...context, signal: new AbortController().signal };
    const untilMs = systemClock.monotonicMs() + 60_000;
    const waited = unit.next({ sessionId, afterSeq: 0n, untilMs, context: call });
    return waited.catch((error: unknown) => ServiceError.from(error).reason);
  };
  const waiting = async () => (await metrics.text()).match(/claims_waiting (\d+)/)?.[1];
  return { unit, next, waiting, timers, table };
}

describe("claims that wait", () => {
  const made = new WeakMap<ArrivalWaits, ReturnType<typeof waits>>();
  describeUnitContract("the waits of claims", {
    create: () => {
      const one = waits();
      made.set(one.unit, one);
      void one.next("s1");
      return one.unit;
    },
    isOfUse: async (unit) => (await made.get(unit)?.waiting()) === "1",
    remains: async (unit) => ((await made.get(unit)?.waiting()) === "0" ? [] : ["a wait"]),
  });

  test("read nothing while no message comes but the heads of all of them at once", async () => {
    const { unit, next, timers, table } = waits();
    const claims = Array.from({ length: 1_000 }, (_, at) => next(`s${at}`));
    await settled();
    const isPoll = ({ delayMs }: { readonly delayMs: number }): boolean =>
      delayMs === LIVE_LIMITS.headPollIntervalMs;
    expect(timers.pending.filter(isPoll)).toHaveLength(1);
    expect(timers.pending).toHaveLength(1 + claims.length);
    const [heads, pages] = [table.headsRead, table.pagesRead];
    expect(heads).toBeLessThan(5);
    for (let polls = 1; polls <= 3; polls += 1) {
      timers.pending.find(isPoll)?.fire();
      await settled();
      expect([table.headsRead, table.pagesRead]).toEqual([heads + polls, pages]);
    }
    await unit.stop();
    expect(new Set(await Promise.all(claims))).toEqual(new Set(["SHUTTING_DOWN"]));
    expect(timers.pending.filter((timer) => !isPoll(timer))).toEqual([]);
  });

  test("are refused after a stop", async () => {
    const { unit, next } = waits();
    await unit.stop();
    expect(await next("s1")).toBe("SHUTTING_DOWN");
  });
});
