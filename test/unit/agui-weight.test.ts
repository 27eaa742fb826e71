/** What values are estimated to take, held against what they take. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { Canonical } from "../../src/conversation/canonical/canonical.ts";
import type { JsonObject } from "../../src/agui/json.ts";
import { Transcript } from "../../src/conversation/transcript/transcript.ts";
import { weightOf } from "../../src/conversation/transcript/weight.ts";

setFlagsFromString("--expose-gc");
const collect: unknown = runInNewContext("gc");

function heapUsed(): number {
  if (typeof collect === "function") Reflect.apply(collect, undefined, []);
  return process.memoryUsage().heapUsed;
}

describe("an item of a long list weighs about what it takes", () => {
  test.each([
    ["an empty object", () => "{}"],
    ["an empty list", () => "[]"],
    ["a list of one", () => "[1]"],
    ["a whole number", () => "1"],
    ["a number", () => "1.5"],
    ["null", () => "null"],
    ["a field", () => '{"a":1}'],
    ["a field of its own", (n: number) => `{"k${n.toString(36)}":1}`],
    ["objects in objects", () => '{"a":{"b":{}}}'],
    ["a short text", (n: number) => `"${n.toString(36)}"`],
    ["a text beyond Latin-1", (n: number) => `"\u4e16${n}"`],
    ["a message", (n: number) => `{"id":"m${n}","role":"user","content":"hello ${n}"}`],
    // What others leave behind may be collected in between, and the list seems to take nothing.
  ])("%s", { retry: 3 }, (_, itemOf) => {
    const text = `[${Array.from({ length: 50_000 }, (__, n) => itemOf(n)).join(",")}]`;
    const before = heapUsed();
    const value: unknown = JSON.parse(text);
    const taken = heapUsed() - before;
    const { bytes } = weightOf(value);
    expect(bytes / taken).toBeGreaterThan(0.55);
    expect(bytes / taken).toBeLessThan(4);
  });
});

test("a transcript in which much was said in little pieces weighs what the pieces take", () => {
  const transcript = new Transcript();
  transcript.apply({ type: "TEXT_MESSAGE_START", messageId: "m" });
  const before = heapUsed();
  for (let n = 0; n < 50_000; n += 1)
    transcript.apply({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `${n}` });
  const taken = heapUsed() - before;
  expect(transcript.bytes / taken).toBeGreaterThan(0.8);
  transcript.messages();
  expect(transcript.bytes).toBeLessThan(600_000);
});

describe("what is open, and whose it is, does not grow with long texts", () => {
  const LONG = "x".repeat(100_000);
  const long = (n: number): string => `${n} ${LONG}`;

  test.each<[string, (n: number) => JsonObject]>([
    ["subagents", (n) => ({ type: "SUBAGENT_STARTED", subagentRunId: long(n), name: "n" })],
    ["chunks", (n) => ({ type: "TEXT_MESSAGE_CHUNK", messageId: `${n}`, subagentRunId: long(n) })],
    ["tools", (n) => ({ type: "TOOL_CALL_START", toolCallId: `${n}`, toolCallName: long(n) })],
    [
      "tools by other names",
      (n) => ({
        type: "TOOL_CALL_START",
        toolCallId: `${n % 150}`,
        toolCallName: n < 150 ? "f" : long(n),
      }),
    ],
    ["a tool", (n) => ({ type: "TOOL_CALL_START", toolCallId: "c", toolCallName: long(n) })],
    ["messages", (n) => ({ type: "TEXT_MESSAGE_START", messageId: long(n) })],
    [
      "owners",
      (n) => ({
        type: "ACTIVITY_SNAPSHOT",
        messageId: `${n}`,
        content: {},
        subagentRunId: long(n),
      }),
    ],
  ])("%s", (_, eventOf) => {
    const canonical = new Canonical("s");
    const events = [{ type: "RUN_STARTED", threadId: "t", runId: "r" }];
    const before = heapUsed();
    for (let n = 0; n < 300; n += 1) {
      const value = n === 0 ? (events[0] ?? {}) : eventOf(n);
      const eventType = String(value["type"]);
      const payload = JSON.stringify(value);
      canonical.next({ seq: BigInt(n) + 1n, eventType, payload, conformant: true });
    }
    const taken = heapUsed() - before;
    expect(taken).toBeLessThan(10_000_000);
    expect(canonical.bytes).toBeLessThan(10_000_000);
    expect(canonical.bytes).toBeGreaterThan(taken * 0.8 - 200_000);
  });
});
