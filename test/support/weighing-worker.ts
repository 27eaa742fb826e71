/**
 * Measures the heap size of values for packages/agui/test/weight.test.ts, in a thread whose heap has nothing
 * else in it, so that a collection takes milliseconds and no value of other tests is counted.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { parentPort } from "node:worker_threads";
import type { JsonObject } from "@session-ledger/agui/json";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { weightOf } from "@session-ledger/agui/transcript/weight";

/** Bytes: as estimated, and as the heap grew. */
export interface Weighed {
  readonly estimated: number;
  readonly taken: number;
}

export interface Weights {
  /** Lists of 50,000 items, by kind of item. */
  readonly items: Readonly<Record<string, Weighed>>;
  /** A transcript of 50,000 deltas, and its estimate after it was read. */
  readonly pieces: Weighed & { readonly afterRead: number };
  /** 300 openings with long texts, by kind of opened block. */
  readonly openings: Readonly<Record<string, Weighed>>;
}

const ITEMS: Readonly<Record<string, (n: number) => string>> = {
  "an empty object": () => "{}",
  "an empty list": () => "[]",
  "a list of one": () => "[1]",
  "a whole number": () => "1",
  "a number": () => "1.5",
  null: () => "null",
  "a field": () => '{"a":1}',
  "a field of its own": (n) => `{"k${n.toString(36)}":1}`,
  "objects in objects": () => '{"a":{"b":{}}}',
  "a short text": (n) => `"${n.toString(36)}"`,
  "a text beyond Latin-1": (n) => `"\u4e16${n}"`,
  "a message": (n) => `{"id":"m${n}","role":"user","content":"hello ${n}"}`,
};

const LONG = "x".repeat(100_000);
const long = (n: number): string => `${n} ${LONG}`;

const OPENINGS: Readonly<Record<string, (n: number) => JsonObject>> = {
  subagents: (n) => ({ type: "SUBAGENT_STARTED", subagentRunId: long(n), name: "n" }),
  chunks: (n) => ({ type: "TEXT_MESSAGE_CHUNK", messageId: `${n}`, subagentRunId: long(n) }),
  tools: (n) => ({ type: "TOOL_CALL_START", toolCallId: `${n}`, toolCallName: long(n) }),
  "tools by other names": (n) => ({
    type: "TOOL_CALL_START",
    toolCallId: `${n % 150}`,
    toolCallName: n < 150 ? "f" : long(n),
  }),
  "a tool": (n) => ({ type: "TOOL_CALL_START", toolCallId: "c", toolCallName: long(n) }),
  messages: (n) => ({ type: "TEXT_MESSAGE_START", messageId: long(n) }),
  owners: (n) => ({
    type: "ACTIVITY_SNAPSHOT",
    messageId: `${n}`,
    content: {},
    subagentRunId: long(n),
  }),
};

setFlagsFromString("--expose-gc");
const collect: unknown = runInNewContext("gc");

function heapUsed(): number {
  if (typeof collect === "function") Reflect.apply(collect, undefined, []);
  return process.memoryUsage().heapUsed;
}

function weighedItems(itemOf: (n: number) => string): Weighed {
  const text = `[${Array.from({ length: 50_000 }, (_, n) => itemOf(n)).join(",")}]`;
  const before = heapUsed();
  const value: unknown = JSON.parse(text);
  const taken = heapUsed() - before;
  return { estimated: weightOf(value).bytes, taken };
}

function weighedPieces(): Weights["pieces"] {
  const transcript = new Transcript();
  transcript.apply({ type: "TEXT_MESSAGE_START", messageId: "m" });
  const before = heapUsed();
  for (let n = 0; n < 50_000; n += 1)
    transcript.apply({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: `${n}` });
  const taken = heapUsed() - before;
  const estimated = transcript.bytes;
  transcript.messages();
  return { estimated, taken, afterRead: transcript.bytes };
}

function weighedOpenings(eventOf: (n: number) => JsonObject): Weighed {
  const canonical = new Canonical("s");
  const before = heapUsed();
  for (let n = 0; n < 300; n += 1) {
    const value = n === 0 ? { type: "RUN_STARTED", threadId: "t", runId: "r" } : eventOf(n);
    const eventType = String(value["type"]);
    const payload = JSON.stringify(value);
    canonical.next({ seq: BigInt(n) + 1n, eventType, payload, conformant: true });
  }
  const taken = heapUsed() - before;
  return { estimated: canonical.bytes, taken };
}

/** The median of three: V8 may free or load code between two looks at the heap. */
function each<T>(of: Readonly<Record<string, T>>, weigh: (one: T) => Weighed) {
  const medianOf = (one: T): Weighed | undefined =>
    [weigh(one), weigh(one), weigh(one)].toSorted((a, b) => a.taken - b.taken)[1];
  return Object.fromEntries(
    Object.entries(of).flatMap(([name, one]) => {
      const median = medianOf(one);
      return median === undefined ? [] : [[name, median] as const];
    }),
  );
}

const weights: Weights = {
  items: each(ITEMS, weighedItems),
  pieces: weighedPieces(),
  openings: each(OPENINGS, weighedOpenings),
};
parentPort?.postMessage(weights);
