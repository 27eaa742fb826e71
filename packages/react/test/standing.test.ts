import { expect, test } from "vitest";
import { answeredIn, lastEndMs, openRunOf, wasAskedToEnd } from "../src/model/standing.ts";

function events(...types: readonly string[]) {
  return types.map((type, at) => ({ type, runId: `r${at}`, storedMs: at }));
}

test("a run is open from its start to its end", () => {
  expect(openRunOf([])).toBeUndefined();
  expect(openRunOf(events("RUN_STARTED", "TEXT_MESSAGE_CONTENT"))).toBe("r0");
  expect(openRunOf(events("RUN_STARTED", "RUN_FINISHED", "META"))).toBeUndefined();
  expect(openRunOf(events("RUN_STARTED", "RUN_ERROR"))).toBeUndefined();
  expect(openRunOf(events("RUN_STARTED", "RUN_FINISHED", "RUN_STARTED"))).toBe("r2");
});

test("a cancel is of the run that it names", () => {
  const payload = '{"event":"cancel_requested","run_id":"r1","reason":"late"}';
  const messages = [{ type: "lifecycle", payload, storedMs: 1 }];

  expect(wasAskedToEnd(messages, "r1")).toBe(true);
  expect(wasAskedToEnd(messages, "r2")).toBe(false);
  expect(wasAskedToEnd([{ type: "user", payload, storedMs: 1 }], "r1")).toBe(false);
});

test("the answers of users name their interrupts, and no payload breaks the page", () => {
  const payloads = [
    '{"messages":[],"resume":[{"interruptId":"i1","status":"resolved"},{"interruptId":7},null]}',
    '{"resume":"none"}',
    "{not JSON",
    "Hello",
    '[{"interruptId":"i2"}]',
  ];

  const messages = payloads.map((payload) => ({ type: "user", payload, storedMs: 1 }));
  expect([...answeredIn(messages, 0)]).toEqual(["i1"]);
});

test("an answer to a graph names its question", () => {
  const payload = '{"messages":[],"forwardedProps":{"command":{"resume":null}}}';

  expect([...answeredIn([{ type: "user", payload, storedMs: 1 }], 0)]).toEqual(["on_interrupt"]);
});

test("an answer to an earlier question with the same id is no answer to the last one", () => {
  const payload = '{"messages":[],"resume":[{"interruptId":"i1","status":"resolved"}]}';
  const messages = [{ type: "user", payload, storedMs: 5 }];

  expect(lastEndMs(events("RUN_STARTED", "RUN_FINISHED", "META"))).toBe(1);
  expect([...answeredIn(messages, 5)]).toEqual(["i1"]);
  expect([...answeredIn(messages, 6)]).toEqual([]);
});
