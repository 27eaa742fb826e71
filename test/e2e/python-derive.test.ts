/**
 * The Python package derives the same messages, under the same keys, as the TypeScript writer: for
 * recorded streams, and for random events that share few ids.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, test, type TestContext } from "vitest";
import { MessageDeriver } from "@session-ledger/runner/internal/derive/derive";
import { fromJsonLines } from "@session-ledger/runner";
import { properties } from "../support/random.ts";
import { ownStreams, recordedStreams } from "../support/streams.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PYTHON = join(ROOT, "clients/python/.venv/bin/python");

let child: ChildProcessByStdio<Writable, Readable, null> | undefined;
let answers: AsyncIterator<{ readonly value: unknown }> | undefined;

beforeAll(() => {
  if (!existsSync(PYTHON)) return;
  const env = { ...process.env, PYTHONPATH: join(ROOT, "clients/python") };
  child = spawn(PYTHON, [join(ROOT, "test/python/derive.py")], {
    env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  answers = fromJsonLines(child.stdout)[Symbol.asyncIterator]();
});

afterAll(() => {
  child?.kill();
});

test("recorded streams", async ({ skip }) => {
  skipWithoutPython({ skip });
  for (const { agent, scenario, events } of [...ownStreams(), ...(recordedStreams() ?? [])]) {
    const payloads = events.map(({ payload }) => payload);
    const [ours, theirs] = [derived(payloads), await derivedInPython(payloads)];
    expect([agent, scenario, theirs]).toEqual([agent, scenario, ours]);
  }
});

test("random events", async ({ skip }) => {
  skipWithoutPython({ skip });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 40 }), async (events) => {
      const payloads = events.map((one) => JSON.stringify(one));
      expect(await derivedInPython(payloads)).toEqual(derived(payloads));
    }),
    properties({ runs: 2_000 }),
  );
});

const id = fc.constantFrom("a", "b", undefined);
const place = { messageId: id, toolCallId: id, subagentRunId: fc.constantFrom(undefined, "s1") };
const odd = ["x", " ", "", "{", "}", '{"n":1.50}', "[1]", '"', "\ud83d", "\ude00", "\ufeff", "\0"];
const delta = fc.constantFrom(...odd);
const value = fc.oneof(delta, fc.integer(), fc.constant(null), fc.constant({ a: [1, "b", true] }));

const event = fc.oneof(
  fc.record({
    type: fc.constantFrom(
      ..."START CONTENT END CHUNK".split(" ").map((part) => `TEXT_MESSAGE_${part}`),
    ),
    ...place,
    delta,
    role: fc.constantFrom(undefined, "assistant", "user"),
  }),
  fc.record({
    type: fc.constantFrom(...["START", "ARGS", "END", "CHUNK"].map((part) => `TOOL_CALL_${part}`)),
    ...place,
    delta,
    toolCallName: fc.constantFrom(undefined, "add"),
  }),
  fc.record({ type: fc.constant("TOOL_CALL_RESULT"), ...place, content: value, result: value }),
  fc.record({ type: fc.constant("CUSTOM"), name: fc.constantFrom("n", "an Error"), value }),
  fc.record({
    type: fc.constantFrom("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT", "RAW"),
    runId: fc.constantFrom("r1", "r2", undefined),
    message: fc.constantFrom("bad", undefined),
    error: value,
    code: fc.constantFrom("C", 500, null, undefined),
  }),
  fc.record({
    type: fc.constantFrom("REASONING_MESSAGE_CHUNK", "STEP_STARTED", "ACTIVITY_DELTA"),
    ...place,
    delta,
  }),
  fc.record({
    type: fc.constantFrom("TEXT_MESSAGE_START", "TOOL_CALL_START"),
    message_id: id,
    tool_call_id: id,
    fragment_count: fc.constant(2),
    accumulated_content: delta,
    end_event: fc.constantFrom(undefined, {}, { message_id: "a" }),
  }),
);

function derived(payloads: readonly string[]): unknown {
  const deriver = new MessageDeriver();
  const messages = payloads.flatMap((payload) => deriver.next(payload));
  return messages.map(({ eventType, payload, key }) => [eventType, payload, key]);
}

async function derivedInPython(payloads: readonly string[]): Promise<unknown> {
  child?.stdin.write(`${JSON.stringify(payloads)}\n`);
  return (await answers?.next())?.value.value;
}

function skipWithoutPython({ skip }: Pick<TestContext, "skip">): void {
  if (child !== undefined) return;
  const advice = "there is no clients/python/.venv: run clients/python/generate.sh";
  if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
  skip(advice);
}
