/** The events of one run: a start, what the agent does, and one end, however the agent ends. */
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { RunCancelled } from "@session-ledger/runner";
import { eventsOfAgent } from "@session-ledger/runner/internal/sdk/run";
import { type AgentOfTest, runContext, TestBridge } from "../../../test/support/echo-bridge.ts";

const INPUT = runContext().input;
const START = { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
const USAGE = [{ inputTokens: 1 }];

async function runOf(
  agent: AgentOfTest,
  { abort, graceMs = 60_000 }: { readonly abort?: Error; readonly graceMs?: number } = {},
): Promise<readonly AgentEvent[]> {
  const bridge = new TestBridge(agent);
  const ending = new AbortController();
  const platform = { sessionId: "s", isContinuation: false };
  const run = { bridge, input: INPUT, platform, signal: ending.signal, ending, graceMs };
  const events: AgentEvent[] = [];
  for await (const event of eventsOfAgent(run)) {
    events.push(event);
    if (event.type === START.type && abort !== undefined) ending.abort(abort);
  }
  return events;
}

describe("a bridge", () => {
  // Bug: the error was one of the language, such as "Cannot use 'in' operator".
  const ADAPTER = "createAdapter must return an adapter, which is an object with a method run";
  const EVENTS = "run of an adapter must return an async iterable or an Observable of events";
  test.each([
    [() => undefined, `${ADAPTER}; it returned undefined`],
    [() => [], `${ADAPTER}; it returned an array`],
    [async () => ({ run: 1 }), `${ADAPTER}; it returned a value of type object`],
    [() => ({ run: () => undefined }), `${EVENTS}; it returned undefined`],
    [() => ({ run: async () => [START] }), `${EVENTS}; it returned a Promise`],
    [() => ({ run: () => Promise.reject(new Error("x")) }), `${EVENTS}; it returned a Promise`],
    [() => ({ run: () => [START] }), `${EVENTS}; it returned an array`],
    [() => ({ run: () => 5 }), `${EVENTS}; it returned a value of type number`],
  ])(
    "that returns a wrong value gets an error with the expected one",
    async (createAdapter, message) => {
      const bridge = Object.assign(new TestBridge(), { createAdapter });
      const platform = { sessionId: "s", isContinuation: false };
      const mistakes: string[] = [];
      const onMistake = (text: string): void => void mistakes.push(text);
      const ending = new AbortController();
      const events: AgentEvent[] = [];
      const about = { bridge, input: INPUT, platform, graceMs: 1_000, onMistake };
      const run = { ...about, ending, signal: ending.signal };
      for await (const event of eventsOfAgent(run)) events.push(event);
      expect(events.slice(1)).toEqual([{ type: "RUN_ERROR", message }]);
      expect(mistakes).toEqual([message]);
    },
  );
});

const FINISHED = { type: "RUN_FINISHED", threadId: "s", runId: "r" };
const STARTED = { type: "RUN_STARTED", threadId: "s", runId: "r" };

describe("a run of an agent that", () => {
  test("sends neither start nor end has both", async () => {
    expect(await runOf(async function* () {})).toEqual([STARTED, FINISHED]);
  });

  test("sends start and end under its own ids has those of the turn, once", async () => {
    const events = await runOf(async function* () {
      yield { type: "RUN_STARTED", threadId: "x", runId: "y" };
      yield { type: "RUN_FINISHED", threadId: "x", runId: "y", usage: USAGE };
      yield START;
    });
    expect(events).toEqual([STARTED, { ...FINISHED, usage: USAGE }]);
  });

  test("leaves constructs open has their ends, the last one first", async () => {
    const events = await runOf(async function* () {
      yield { type: "STEP_STARTED", stepName: "one" };
      yield START;
      yield { type: "TEXT_MESSAGE_END", messageId: "m" };
      yield { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "t", subagentRunId: "sub" };
      yield { type: "TEXT_MESSAGE_CHUNK", messageId: "n", delta: "d" };
    });
    expect(events.slice(-3)).toEqual([
      { type: "TOOL_CALL_END", toolCallId: "c", subagentRunId: "sub" },
      { type: "STEP_FINISHED", stepName: "one" },
      FINISHED,
    ]);
  });

  test.each([null, undefined, "text", {}, { type: "" }])(
    "gives %j as an event ends with RUN_ERROR",
    async (given) => {
      // Bug: null ended the run as finished, and what came behind it was lost.
      const agent = async function* (): AsyncGenerator<AgentEvent, void, undefined> {
        const events: AgentEvent[] = [START, JSON.parse(JSON.stringify({ given }))["given"], START];
        yield* events;
      };
      const message = "the agent gave an event without a type";
      expect(await runOf(agent)).toEqual([STARTED, START, { type: "RUN_ERROR", message }]);
    },
  );

  test("gives RUN_ERROR without a message, or with a long one, has one that can be stored", async () => {
    // Bug: the service refused the event, the run had no end, and its messages were given again.
    const endOf = async (message?: unknown) =>
      (
        await runOf(async function* () {
          yield { type: "RUN_ERROR", message };
        })
      ).at(-1)?.["message"];
    expect(await endOf()).toBe("the agent gave no reason");
    expect(await endOf(5)).toBe("5");
    expect(await endOf("e".repeat(2_000_000))).toHaveLength(65_536);
  });

  test("is cancelled and ends in its own way is cancelled, with its usage", async () => {
    const abort = new RunCancelled({ runId: "r", reason: "" });
    const events = await runOf(
      async function* (_input, signal) {
        yield START;
        if (!signal.aborted) await once(signal, "abort");
        yield { type: "TEXT_MESSAGE_END", messageId: "m" };
        yield { ...FINISHED, usage: USAGE };
      },
      { abort },
    );
    expect(events.at(-1)).toEqual({ ...FINISHED, usage: USAGE, outcome: { type: "cancelled" } });
  });

  test("is cancelled and fails for it is cancelled", async () => {
    const abort = new RunCancelled({ runId: "r", reason: "" });
    for (const end of ["throws", "says"]) {
      const events = await runOf(
        async function* () {
          yield START;
          if (end === "throws") throw new Error("socket closed");
          yield { type: "RUN_ERROR", message: "aborted" };
        },
        { abort },
      );
      expect(events.slice(-2)).toEqual([
        { type: "TEXT_MESSAGE_END", messageId: "m" },
        { ...FINISHED, outcome: { type: "cancelled" } },
      ]);
    }
  });

  test("was interrupted by its bridge is cancelled", async () => {
    const events = await runOf(async function* () {
      yield START;
      throw new DOMException("the run was interrupted", "AbortError");
    });
    expect(events.at(-1)).toMatchObject({ outcome: { type: "cancelled" } });
  });
});
