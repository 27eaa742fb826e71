/** The endpoints of a runner with a ledger behind them: a run over HTTP is in the ledger too. */
import { expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { RunnerOptions } from "@session-ledger/runner/internal/sdk/core";
import { listen } from "@session-ledger/runner/internal/sdk/http/server";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { echo, saying, TestBridge } from "../support/echo-bridge.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { getTranscript } = SessionService.method;

const { service, client } = useService();

async function serve(bridge: TestBridge, options: Partial<RunnerOptions> = {}): Promise<string> {
  const runner = createRunner(bridge, { address: service.grpcAddress, ...options });
  onTestFinished(() => runner.stop());
  const server = await listen(runner.fetch, { port: 0 });
  onTestFinished(() => server.stop());
  return `http://${server.address}`;
}

function post(url: string, body: unknown): Promise<Response> {
  return fetch(url, { method: "POST", body: JSON.stringify(body) });
}

function typesIn(sse: string): readonly string[] {
  return [...sse.matchAll(/^data: \{"type":"([A-Z_]+)"/gm)].map(([, type = ""]) => type);
}

test("a run over HTTP with a long input is stored without it", async () => {
  // Bug: the service refused RUN_STARTED, and stored the rest of the run outside of any run.
  const sessionId = newSession();
  const url = await serve(new TestBridge((input) => saying(input, "Short")), { sessionId });
  const messages = [{ id: "m-1", role: "user", content: "x".repeat(4_170_000) }];
  const run = await post(url, { runId: "r-1", messages });
  expect(typesIn(await run.text()).at(-1)).toBe("RUN_FINISHED");
  const first = async () => (await rowsOf(client, "events", sessionId))[0]?.payload ?? "{}";
  await expect.poll(first).toContain("RUN_STARTED");
  expect(JSON.parse(await first())).toEqual({
    type: "RUN_STARTED",
    threadId: sessionId,
    runId: "r-1",
  });
});

test("a run over HTTP is streamed and stored, and its answer can be given a thumb", async () => {
  const sessionId = newSession();
  const url = await serve(new TestBridge(), { sessionId });
  const messages = [{ id: "m-1", role: "user", content: "hello" }];
  const run = await post(url, { run_id: "r-1", messages });
  const types = typesIn(await run.text());
  expect(types).toEqual([
    "RUN_STARTED",
    "TEXT_MESSAGE_START",
    ...Array.from({ length: 3 }, () => "TEXT_MESSAGE_CONTENT"),
    "TEXT_MESSAGE_END",
    "MESSAGES_SNAPSHOT",
    "RUN_FINISHED",
  ]);
  const stored = async () =>
    (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
  await expect.poll(stored).toEqual([...new Set(types)]);
  const feedback = (messageId: string) =>
    post(`${url}/feedback`, { type: "META", metaType: "thumbs_up", payload: { messageId } });
  expect((await feedback("answer-r-1")).status).toBe(200);
  expect((await feedback("unknown")).status).toBe(404);
  const transcript = await client.unary(getTranscript, { sessionId });
  expect(JSON.parse(transcript.messages)).toEqual([
    expect.objectContaining({ id: "m-1", role: "user", content: "hello" }),
    expect.objectContaining({
      id: "answer-r-1",
      content: "You said: hello",
      metadata: { session: { feedback: [expect.objectContaining({ kind: "thumbs_up" })] } },
    }),
  ]);
});

test("a reader that leaves cancels its run, and the ledger has the end", async () => {
  const sessionId = newSession();
  const bridge = new TestBridge(async function* (_, signal) {
    yield { type: "STEP_STARTED", stepName: "work" };
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  });
  const url = await serve(bridge);
  const run = await post(url, { threadId: sessionId, messages: [] });
  const reader = run.body?.getReader();
  for (let read = ""; !read.includes("STEP_STARTED"); ) {
    read += new TextDecoder().decode((await reader?.read())?.value);
  }
  await reader?.cancel();
  const stored = async () => {
    const rows = await rowsOf(client, "events", sessionId);
    return rows.map(({ eventType, payload }) =>
      eventType === "RUN_FINISHED" ? JSON.parse(payload).outcome : eventType,
    );
  };
  await expect
    .poll(stored)
    .toEqual([
      "RUN_STARTED",
      "STEP_STARTED",
      "STEP_FINISHED",
      "MESSAGES_SNAPSHOT",
      { type: "cancelled" },
    ]);
});

test.each(["ends", "says that it has finished", "hangs"])(
  "an interrupted run of an agent that %s is stored as cancelled, as after CancelRun",
  async (how) => {
    // Bug: it was stored as finished, and an agent that hung was never left.
    const bridge = new TestBridge(async function* (_input, signal) {
      yield { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
      await new Promise<void>((resolve) => {
        if (how !== "hangs") signal.addEventListener("abort", () => resolve(), { once: true });
      });
      if (how !== "ends") yield { type: "RUN_FINISHED" };
    });
    const sessionId = newSession();
    const url = await serve(bridge, { sessionId, cancelGraceMs: 1 });
    const run = await post(url, { runId: "r-1", messages: [{ role: "user", content: "x" }] });
    const stored = async () => {
      const rows = await rowsOf(client, "events", sessionId);
      return rows.map(({ payload }) => JSON.parse(payload));
    };
    await expect.poll(async () => (await stored()).length).toBe(2);
    expect(await (await post(`${url}/interrupt`, { runId: "r-0" })).json()).toEqual({
      interrupted: 0,
    });
    const other = await post(`${url}/interrupt`, { thread_id: "other" });
    expect([other.status, await other.json()]).toMatchObject([400, { field: "threadId" }]);
    expect(await (await post(`${url}/interrupt`, { run_id: "r-1" })).json()).toEqual({
      interrupted: 1,
    });
    await run.text();
    expect(bridge.interrupts).toBe(1);
    await expect
      .poll(stored)
      .toMatchObject([
        { type: "RUN_STARTED" },
        { type: "TEXT_MESSAGE_START" },
        { type: "TEXT_MESSAGE_END" },
        { type: "MESSAGES_SNAPSHOT" },
        { type: "RUN_FINISHED", outcome: { type: "cancelled" } },
      ]);
  },
);

test("a switch of the model counts from the next run, and is refused during one", async () => {
  const bridge = new TestBridge(async function* (input, signal) {
    yield* echo(input);
    if (input.messages.length > 1) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    }
  });
  const sessionId = newSession();
  const url = await serve(bridge, { sessionId, context: { model: "old" } });
  const one = { messages: [{ role: "user", content: "x" }] };
  await (await post(url, one)).text();
  expect(await (await post(`${url}/model`, { model: "new" })).json()).toMatchObject({
    previousModel: "old",
    model: "new",
  });
  const run = await post(url, { messages: [one.messages[0], one.messages[0]] });
  await expect.poll(() => bridge.contexts.map(({ model }) => model)).toEqual(["old", "new"]);
  expect((await post(`${url}/model`, { model: "newer" })).status).toBe(422);
  expect((await post(url, one)).status).toBe(409);
  expect(await (await post(`${url}/interrupt`, {})).json()).toEqual({ interrupted: 1 });
  expect(typesIn(await run.text()).at(-1)).toBe("RUN_FINISHED");
});
