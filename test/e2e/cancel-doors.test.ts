/** Cancels by HTTP, by the command line, and by the stop button of CopilotKit's own core. */
import { randomUUID } from "node:crypto";
import { CopilotKitCore } from "@copilotkit/core";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { PushStreamClient } from "../support/push-stream.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { runCommand } from "../support/service-process.ts";
import { eventually } from "../support/eventually.ts";
import { cancel, claim, emit, finish, say, standing } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

async function running(): Promise<string> {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  await claim(client, { sessionId, runId: "r/1" });
  return sessionId;
}

function post(path: string, body?: unknown): Promise<Response> {
  const init = { method: "POST", headers: { "content-type": "application/json" } };
  return fetch(`http://${service.httpAddress}${path}`, {
    ...init,
    body: body === undefined ? null : JSON.stringify(body),
  });
}

const pathOf = (sessionId: string, runId = "r%2F1"): string =>
  `/api/ambient/v1/sessions/${sessionId}/runs/${runId}/cancel`;

describe("over HTTP", () => {
  test("a cancel is answered with its message, and a repeated one is marked as deduplicated", async () => {
    const sessionId = await running();
    const first = await post(pathOf(sessionId), { reason: "enough" });
    expect([first.status, first.headers.get("idempotent-replayed")]).toEqual([200, null]);
    const message: unknown = await first.json();
    expect(message).toMatchObject({
      event_type: "lifecycle",
      payload: '{"event":"cancel_requested","run_id":"r/1","reason":"enough"}',
    });
    const again = await post(pathOf(sessionId));
    expect([again.status, again.headers.get("idempotent-replayed")]).toEqual([200, "true"]);
    expect(await again.json()).toEqual(message);
  });

  test.each([
    ["another run", "r2", {}, 404, "RUN_NOT_FOUND"],
    ["a reason that is no text", "r%2F1", { reason: 1 }, 400, "INVALID_REQUEST"],
    ["a reason that is too long", "r%2F1", { reason: "x".repeat(1_025) }, 400, "INVALID_REQUEST"],
    ["another member", "r%2F1", { because: "x" }, 400, "INVALID_REQUEST"],
    ["a list", "r%2F1", [], 400, "INVALID_REQUEST"],
  ])("%s is refused", async (_, runId, body, status, reason) => {
    const sessionId = await running();
    const answer = await post(pathOf(sessionId, runId), body);
    expect({ status: answer.status, body: await answer.json() }).toMatchObject({
      status,
      body: { reason },
    });
    expect(await rowsOf(client, "messages", sessionId)).toHaveLength(1);
  });
});

describe("the command line", () => {
  const command = (...argv: readonly string[]) =>
    runCommand([...argv, "--address", service.grpcAddress]);

  test("cancels the open run, or the named one, and prints it", async () => {
    const sessionId = await running();
    const done = { exitCode: 0, stdout: "r/1\n", stderr: "" };
    expect(await command("cancel", sessionId, "--reason", "enough")).toEqual(done);
    const again = await command("cancel", sessionId, "r/1", "--json");
    expect(JSON.parse(again.stdout)).toMatchObject({ eventType: "lifecycle", deduplicated: true });
    await finish(client, sessionId, "r/1");
    const nothing = await command("cancel", sessionId);
    expect(nothing).toMatchObject({ exitCode: 4, stdout: "" });
    expect(nothing.stderr).toContain(`no run is open in session ${sessionId}`);
    const other = await command("cancel", sessionId, "r2");
    expect(other.exitCode).toBe(4);
    expect(other.stderr).toContain("no run is open");
  });
});

describe("CopilotKit's stop button", () => {
  test.each(["rest", "single"] as const)(
    "ends the run that its chat shows (%s)",
    async (transport) => {
      const sessionId = await running();
      const open = { sessionId, producerEpoch: 1n };
      const { stream } = await PushStreamClient.open(client, open);
      const core = new CopilotKitCore({
        runtimeUrl: `http://${service.httpAddress}/copilotkit`,
        runtimeTransport: transport,
      });
      const { agent } = core.registerProxiedAgent({ agentId: "viewer", runtimeAgentId: "default" });
      agent.threadId = sessionId;
      const { promise: shown, resolve: show } = Promise.withResolvers<void>();
      agent.subscribe({ onRunStartedEvent: () => show() });
      const connected = core.connectAgent({ agent });
      await shown;
      core.stopAgent({ agent });
      expect(await stream.next()).toMatchObject({ case: "cancel", value: { runId: "r/1" } });
      await finish(client, sessionId, "r/1");
      await connected;
      expect(agent.isRunning).toBe(false);
    },
  );

  test("reports whether a run was open, also for a session that does not exist", async () => {
    const sessionId = await running();
    const stop = (threadId: string) => post(`/copilotkit/agent/default/stop/${threadId}`);
    const envelope = (threadId: string) =>
      post("/copilotkit", { method: "agent/stop", params: { agentId: "default", threadId } });
    expect(await (await stop(sessionId)).json()).toEqual({ stopped: true });
    expect(await (await envelope(sessionId)).json()).toEqual({ stopped: true });
    expect((await cancel(client, { sessionId, runId: "r/1" })).deduplicated).toBe(true);
    await finish(client, sessionId, "r/1");
    for (const threadId of [sessionId, newSession()]) {
      for (const answer of [await stop(threadId), await envelope(threadId)]) {
        expect(answer.status).toBe(200);
        expect(await answer.json()).toMatchObject({ stopped: false });
      }
    }
  });

  /** A chat that has typed `text`: its core waits for the answer. */
  async function typedBy(sessionId: string, text: string) {
    const runtimeUrl = `http://${service.httpAddress}/copilotkit`;
    const core = new CopilotKitCore({ runtimeUrl, runtimeTransport: "rest" });
    const { agent } = core.registerProxiedAgent({ agentId: "viewer", runtimeAgentId: "default" });
    agent.threadId = sessionId;
    agent.addMessage({ id: randomUUID(), role: "user", content: text });
    const requested = Promise.withResolvers<string>();
    const shown = Promise.withResolvers<void>();
    agent.subscribe({
      onRunInitialized: ({ input }) => requested.resolve(input.runId),
      onRunStartedEvent: () => shown.resolve(),
    });
    const before = (await rowsOf(client, "messages", sessionId).catch(() => [])).length;
    const ended = core.runAgent({ agent });
    const runId = await requested.promise;
    await eventually(async () => {
      expect(await rowsOf(client, "messages", sessionId)).toHaveLength(before + 1);
    });
    const stop = async (): Promise<unknown> => stopOf(sessionId, runId);
    return { core, agent, runId, ended, shown: shown.promise, stop };
  }

  const answerOf = (body: unknown) =>
    z.looseObject({ stopped: z.unknown(), message: z.unknown() }).partial().parse(body);

  /** By both transports, which have one answer. */
  async function stopOf(sessionId: string, runId: unknown): Promise<unknown> {
    const rest = await post(`/copilotkit/agent/default/stop/${sessionId}`, { runId });
    const single = await post("/copilotkit", {
      method: "agent/stop",
      params: { agentId: "default", threadId: sessionId },
      body: { runId },
    });
    const [answer, other] = [answerOf(await rest.json()), answerOf(await single.json())];
    const { stopped, message } = answer;
    expect([single.status, other.stopped, other.message]).toEqual([rest.status, stopped, message]);
    return answer;
  }

  const isOpen = async (sessionId: string) => (await standing(client, sessionId))[2];

  const WAYS = {
    claimed: (sessionId: string, runId: string) => claim(client, { sessionId, runId }),
    "pushed without a claim": (sessionId: string, runId: string) =>
      emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId }),
  };
  test.each(["claimed", "pushed without a claim"] as const)(
    "a stop of a run that has ended does not end the run of another page (%s)",
    async (way) => {
      const sessionId = newSession();
      const first = await typedBy(sessionId, "one");
      await WAYS[way](sessionId, "r1");
      await first.shown;
      await finish(client, sessionId, "r1");
      await first.ended;
      const second = await typedBy(sessionId, "two");
      await WAYS[way](sessionId, "r2");
      await second.shown;
      expect(await first.stop()).toMatchObject({ stopped: false });
      expect(await rowsOf(client, "messages", sessionId)).toHaveLength(2);
      second.core.stopAgent({ agent: second.agent });
      const payload = '{"event":"cancel_requested","run_id":"r2"}';
      await eventually(async () => {
        expect((await rowsOf(client, "messages", sessionId)).at(-1)).toMatchObject({ payload });
      });
      expect(await second.stop()).toEqual({ stopped: true });
      await finish(client, sessionId, "r2");
      await second.ended;
    },
  );

  test("each of the pages whose messages a run has taken stops it, and a page that waits does not", async () => {
    const sessionId = newSession();
    const pages = [await typedBy(sessionId, "one"), await typedBy(sessionId, "two")];
    for (const page of pages) {
      expect(await page.stop()).toEqual({
        stopped: false,
        message: `run ${page.runId} has not begun: its message waits for a runner`,
      });
    }
    const { producerEpoch } = await claim(client, { sessionId, runId: "r1" });
    const late = await typedBy(sessionId, "three");
    expect(await late.stop()).toMatchObject({ stopped: false });
    for (const page of pages) expect(await page.stop()).toEqual({ stopped: true });
    await finish(client, sessionId, "r1");
    for (const page of pages) await page.ended;
    await claim(client, { sessionId, runId: "r2", producerEpoch });
    for (const page of pages) {
      expect(await page.stop()).toEqual({
        stopped: false,
        message: `run ${page.runId} is not open in session ${sessionId}: the open run is r2`,
      });
    }
    expect(await late.stop()).toEqual({ stopped: true });
    await finish(client, sessionId, "r2");
    await late.ended;
  });

  test("the messages of a lost run that are given again stop the next run", async () => {
    const sessionId = newSession();
    const page = await typedBy(sessionId, "one");
    await claim(client, { sessionId, runId: "r1", producerEpoch: 1n });
    await claim(client, { sessionId, runId: "r2", producerEpoch: 2n, redeliver: true });
    expect(await page.stop()).toEqual({ stopped: true });
    await finish(client, sessionId, "r2");
    await page.ended;
  });

  test("a stop may name the runner's own run, and anything else that is no run is refused", async () => {
    const sessionId = await running();
    expect(await stopOf(sessionId, "r/2")).toEqual({
      stopped: false,
      message: `run r/2 is not open in session ${sessionId}: the open run is r/1`,
    });
    for (const wrong of [1, "", null, {}]) {
      expect(await stopOf(sessionId, wrong)).toMatchObject({ reason: "INVALID_REQUEST" });
    }
    const other = await post(`/copilotkit/agent/default/stop/${sessionId}`, { threadId: "other" });
    expect(await other.json()).toMatchObject({ violations: [{ field: "threadId" }] });
    expect(await isOpen(sessionId)).toBe("r/1");
    expect(await rowsOf(client, "messages", sessionId)).toHaveLength(1);
    expect(await stopOf(sessionId, "r/1")).toEqual({ stopped: true });
  });
});
