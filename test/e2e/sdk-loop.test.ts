/** A runner of the SDK with a service: turns, history, cancels, stops, errors, restarts. */
import { once } from "node:events";
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { HttpAgent as HttpAgent0 } from "agui-client-0";
import { expect, test } from "vitest";
import type { RunnerOptions, RunnerProblem } from "@session-ledger/runner/internal/sdk/core";
import { promptsOf } from "@session-ledger/runner/internal/sdk/input";
import { createRunner, type Runner } from "@session-ledger/runner/internal/sdk/loop";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { echo, saying, TestBridge } from "../support/echo-bridge.ts";
import { createdSession, newSession, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { cancel, say, standing } from "../support/turns.ts";

const { getSession, getTranscript } = SessionService.method;

const { service, client } = useService();
const { service: impatient, client: own } = useService("strict");

/** A runner that runs; `stop` resolves when it has ended. */
function running(bridge: TestBridge, options: Partial<RunnerOptions> & { sessionId: string }) {
  const runner = createRunner(bridge, { address: service.grpcAddress, ...options });
  const ended = runner.run();
  const stop = async (): Promise<void> => {
    await runner.stop();
    await ended;
  };
  return { runner, stop };
}

async function typesOf(sessionId: string): Promise<readonly string[]> {
  return (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
}

async function endsOf(sessionId: string): Promise<readonly unknown[]> {
  const rows = await rowsOf(client, "events", sessionId);
  return rows
    .filter(({ eventType }) => eventType === "RUN_FINISHED" || eventType === "RUN_ERROR")
    .map(({ payload }): unknown => JSON.parse(payload));
}

async function turns(runner: Runner, count: number): Promise<void> {
  await expect.poll(() => runner.stats.turns).toBe(count);
}

test("a function is an agent: texts join into messages, which events part", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const options = { address: service.grpcAddress, sessionId };
  const runner = createRunner(async function* (input) {
    yield "You ";
    yield `said: ${promptsOf(input).join()}`;
    yield { type: "CUSTOM", name: "between", value: 1 };
    yield "Bye";
  }, options);
  const ended = runner.run();
  await turns(runner, 1);
  await runner.stop();
  await ended;
  const { messages } = await client.unary(getTranscript, { sessionId });
  expect(JSON.parse(messages)).toMatchObject([
    { role: "user", content: "one" },
    { role: "assistant", content: "You said: one" },
    { role: "assistant", content: "Bye" },
  ]);
});

test("a run whose end the service refuses has an end, and is not given again", async () => {
  // Bug: the run stayed open and had no event, so each claim gave its message to the agent again.
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const bridge = new TestBridge(async function* () {
    yield { type: "RUN_ERROR", message: "broken", code: 5 };
  });
  const { runner, stop } = running(bridge, { sessionId });
  await turns(runner, 1);
  await say(client, sessionId, "two");
  await turns(runner, 2);
  await stop();
  expect(bridge.inputs).toHaveLength(2);
  const message = "the end of the run was refused or dropped";
  expect(await endsOf(sessionId)).toMatchObject([{ message }, { message }]);
  expect(runner.stats.failures).toBe(2);
});

test("an event that cannot be stored is replaced, and a run without it is ended", async () => {
  // Bug: only onProblem knew of it, and readers saw a run that lacked something.
  const sessionId = newSession();
  const circle: Record<string, unknown> = {};
  circle["own"] = circle;
  let hasLeft = false;
  const bridge = new TestBridge(async function* (_, signal) {
    yield { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "read" };
    yield { type: "TOOL_CALL_END", toolCallId: "t" };
    const content = "x".repeat(4_170_000);
    yield { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "t", content };
    yield { type: "CUSTOM", name: "kept", value: circle };
    signal.addEventListener("abort", () => (hasLeft = true));
    yield { type: "STATE_SNAPSHOT", snapshot: content };
    yield { type: "CUSTOM", name: "too late", value: 1 };
  });
  const problems: RunnerProblem[] = [];
  await say(client, sessionId, "one");
  const onProblem = (problem: RunnerProblem): void => void problems.push(problem);
  const { runner, stop } = running(bridge, { sessionId, onProblem });
  await turns(runner, 1);
  await stop();
  const rows = await rowsOf(client, "events", sessionId);
  const stored: Record<string, unknown>[] = rows.map(({ payload }) => JSON.parse(payload));
  expect(stored.slice(3)).toMatchObject([
    {
      type: "TOOL_CALL_RESULT",
      messageId: "r",
      toolCallId: "t",
      content: expect.stringContaining("cannot be shown: its size"),
    },
    { type: "CUSTOM", name: "kept", value: { own: "[circular]" } },
    {
      type: "RUN_ERROR",
      message: expect.stringMatching(/STATE_SNAPSHOT cannot be sent: its size/),
    },
  ]);
  expect(stored).toHaveLength(6);
  expect(problems.map(({ kind }) => kind)).toEqual(["agent", "replaced", "agent"]);
  expect(hasLeft).toBe(true);
});

test.each([
  ["0.0.59", HttpAgent0],
  ["1.0.0", HttpAgent1],
] as const)("files that a client %s types reach the agent as they were typed", async (_, Agent) => {
  // Bug: PDFs and videos as data and parts of older clients were dropped, and texts were joined.
  const sessionId = newSession();
  const data = (value: string, mimeType: string) => ({ type: "data", value, mimeType }) as const;
  const content = [
    { type: "text", text: "text A" },
    { type: "image", source: data("AAAA", "image/png") },
    { type: "text", text: "text B" },
    { type: "document", source: data("UERG", "application/pdf"), metadata: { filename: "b.pdf" } },
    { type: "video", source: data("VklE", "video/mp4") },
    { type: "audio", source: { type: "url", value: "https://a.example/s.wav" } },
    Agent === HttpAgent0
      ? { type: "binary", mimeType: "image/png", data: "QklO" }
      : { type: "document", source: { type: "file", value: "file-1", provider: "openai" } },
  ] as const;
  const bridge = new TestBridge();
  const { stop } = running(bridge, { sessionId });
  const agent = new Agent({
    url: `http://${service.httpAddress}/agui/sessions/${sessionId}`,
    threadId: sessionId,
    initialMessages: JSON.parse(JSON.stringify([{ id: "m1", role: "user", content }])),
  });
  await agent.runAgent();
  await stop();
  expect(bridge.inputs[0]?.messages[0]?.["content"]).toEqual([expect.anything(), ...content]);
});

test("a runner answers each message, and gives the agent the history", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const bridge = new TestBridge();
  const { runner, stop } = running(bridge, { sessionId });
  await turns(runner, 1);
  await say(client, sessionId, "two");
  await turns(runner, 2);
  await stop();
  const types = await typesOf(sessionId);
  const turn = [
    "RUN_STARTED",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "MESSAGES_SNAPSHOT",
    "RUN_FINISHED",
  ];
  expect(types).toEqual([...turn, ...turn]);
  const { messages } = await client.unary(getTranscript, { sessionId });
  const said: { role: string; content: string }[] = JSON.parse(messages);
  expect(said.map(({ role, content }) => `${role}: ${content}`)).toEqual([
    "user: one",
    "assistant: You said: one",
    "user: two",
    "assistant: You said: two",
  ]);
  expect(bridge.inputs[1]?.messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
  expect(bridge.contexts).toHaveLength(1);
  expect(runner.stats).toMatchObject({ turns: 2, failures: 0, messages: 2, p95BatchSize: 1 });
  const session = await client.unary(getSession, { id: sessionId });
  expect(session.phase).toBe("Stopped");
  expect(JSON.parse(session.capabilities ?? "")).toMatchObject({ identity: { type: "test" } });
  // The messages of the other stream.
  const rows = await rowsOf(client, "messages", sessionId);
  expect(rows.map(({ eventType, payload }) => [eventType, payload])).toEqual([
    ["user", "one"],
    ["assistant", "You said: one"],
    ["user", "two"],
    ["assistant", "You said: two"],
  ]);
});

test("an error of the agent is RUN_ERROR with the context of the bridge, and the runner continues", async () => {
  const sessionId = newSession();
  let runs = 0;
  const bridge = new (class extends TestBridge {
    override getErrorContext() {
      return "disk full";
    }
  })(async function* (input) {
    runs += 1;
    if (runs > 1) return yield* echo(input);
    yield { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
    throw new Error("boom");
  });
  await say(client, sessionId, "one");
  const { runner, stop } = running(bridge, { sessionId });
  await turns(runner, 1);
  await say(client, sessionId, "two");
  await turns(runner, 2);
  await stop();
  expect(await endsOf(sessionId)).toMatchObject([
    { type: "RUN_ERROR", message: "boom\n\ndisk full" },
    { type: "RUN_FINISHED" },
  ]);
  expect(runner.stats.failures).toBe(1);
});

test("a cancel interrupts the agent, and the run ends as cancelled with all of it closed", async () => {
  const sessionId = newSession();
  const bridge = new TestBridge(async function* (_input, signal) {
    yield { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "I begin" };
    if (!signal.aborted) await once(signal, "abort");
    signal.throwIfAborted();
  });
  await say(client, sessionId, "one");
  const { runner, stop } = running(bridge, { sessionId });
  await expect.poll(() => typesOf(sessionId)).toContain("TEXT_MESSAGE_CONTENT");
  const runId = bridge.inputs[0]?.runId ?? "";
  await cancel(client, { sessionId, runId, reason: "enough" });
  await turns(runner, 1);
  expect(bridge.interrupts).toBe(1);
  expect((await typesOf(sessionId)).slice(-4)).toEqual([
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "MESSAGES_SNAPSHOT",
    "RUN_FINISHED",
  ]);
  expect(await endsOf(sessionId)).toMatchObject([{ outcome: { type: "cancelled" } }]);
  await stop();
});

test("an agent that ignores a cancel is left after the grace, and the next turn has a new adapter", async () => {
  const sessionId = newSession();
  let runs = 0;
  const bridge = new TestBridge(async function* (input) {
    runs += 1;
    if (runs === 1) await new Promise(() => undefined);
    yield* saying(input, "hello");
  });
  await say(client, sessionId, "one");
  const { runner, stop } = running(bridge, { sessionId, cancelGraceMs: 50 });
  await expect.poll(() => bridge.inputs.length).toBe(1);
  await cancel(client, { sessionId, runId: bridge.inputs[0]?.runId ?? "" });
  await turns(runner, 1);
  await say(client, sessionId, "two");
  await turns(runner, 2);
  expect(await endsOf(sessionId)).toMatchObject([
    { outcome: { type: "cancelled" } },
    { type: "RUN_FINISHED" },
  ]);
  expect(bridge.contexts).toHaveLength(2);
  expect(await standing(client, sessionId)).toEqual([3n, 0n, undefined]); // The cancel is message 2.
  await stop();
});

test("a run that does not end after a stop ends with RUN_ERROR, and the phase is Stopped", async () => {
  const sessionId = newSession();
  const bridge = new TestBridge(async function* () {
    yield { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
    await new Promise(() => undefined);
  });
  await say(client, sessionId, "one");
  const { stop } = running(bridge, { sessionId, cancelGraceMs: 100 });
  await expect.poll(() => typesOf(sessionId)).toContain("TEXT_MESSAGE_START");
  await stop();
  expect(await endsOf(sessionId)).toMatchObject([{ type: "RUN_ERROR", code: "RUNNER_STOPPED" }]);
  const { phase } = await client.unary(getSession, { id: sessionId });
  expect(phase).toBe("Stopped");
});

test("turns keep to the limits of messages and of tokens, and to the order", async () => {
  for (const [limit, sizes] of [
    [{ messagesMax: 2 }, [2, 2, 1]],
    // A delimiter and a short prompt are about 80 tokens; the fourth message is above it alone.
    [{ tokensMax: 260 }, [3, 1, 1]],
  ] as const) {
    const sessionId = newSession();
    const texts = ["one", "two", "three", "long ".repeat(400), "five"];
    for (const text of texts) await say(client, sessionId, text);
    const bridge = new TestBridge();
    const { runner, stop } = running(bridge, { sessionId, ...limit });
    await turns(runner, sizes.length);
    await stop();
    expect(bridge.inputs.map((input) => promptsOf(input).length)).toEqual(sizes);
    expect(bridge.inputs.flatMap(promptsOf)).toEqual(texts);
  }
});

test("a cancel that the service carries out does not end the runner", async () => {
  // The runner's grace is longer than that of the service, as if the cancel had come late.
  const sessionId = await createdSession(own);
  let runs = 0;
  const bridge = new TestBridge(async function* (input) {
    runs += 1;
    if (runs === 1) await new Promise(() => undefined);
    yield* echo(input);
  });
  await say(own, sessionId, "one");
  const address = impatient.grpcAddress;
  const { runner, stop } = running(bridge, { address, sessionId, cancelGraceMs: 5_000 });
  await expect.poll(() => bridge.inputs.length).toBe(1);
  await cancel(own, { sessionId, runId: bridge.inputs[0]?.runId ?? "" });
  await say(own, sessionId, "two");
  await turns(runner, 2);
  const rows = await rowsOf(own, "events", sessionId);
  const marks = rows.map(({ eventType }) => eventType).filter((type) => type.startsWith("RUN_"));
  expect(marks).toEqual(["RUN_STARTED", "RUN_FINISHED", "RUN_STARTED", "RUN_FINISHED"]);
  await stop();
});

test("an error of a middleware is RUN_ERROR, and one without an end too", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const bridge = new TestBridge();
  const { runner, stop } = running(bridge, {
    sessionId,
    middleware: [
      async function* (events) {
        for await (const event of events) {
          if (event.type === "TEXT_MESSAGE_START" && bridge.inputs.length === 1)
            throw new Error("broken middleware");
          if (event.type !== "RUN_FINISHED") yield event;
        }
      },
    ],
  });
  await turns(runner, 1);
  await say(client, sessionId, "two");
  await turns(runner, 2);
  await stop();
  expect(await endsOf(sessionId)).toMatchObject([
    { type: "RUN_ERROR", message: "broken middleware" },
    { type: "RUN_ERROR", message: "a middleware has dropped the end of the run" },
  ]);
  expect(runner.stats).toMatchObject({ turns: 2, failures: 2 });
});
