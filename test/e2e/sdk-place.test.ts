/**
 * Runs over HTTP and claimed turns of one session: one at a time. The calls of the runner can be held
 * here, so that a run over HTTP comes at a chosen moment of a claim.
 */
import { expect, onTestFinished, test } from "vitest";
import { deferred } from "@session-ledger/base/deferred";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";
import type { AgentEvent, RunInput } from "@session-ledger/runner/internal/sdk/bridge";
import { RunInProgress } from "@session-ledger/runner/internal/sdk/bridge";
import { RunnerCore } from "@session-ledger/runner/internal/sdk/core";
import { listen } from "@session-ledger/runner/internal/sdk/http/server";
import { createRunner, type Runner } from "@session-ledger/runner/internal/sdk/loop";
import { RunnerSession } from "@session-ledger/runner/internal/sdk/session";
import { TestBridge } from "../support/echo-bridge.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { say, standing } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

// A ledger of its own: a pool serves all sessions.
const { service, client } = useService({});

const DONE = ["RUN_STARTED", "RUN_FINISHED"];

async function marksOf(sessionId: string): Promise<readonly string[]> {
  const rows = await rowsOf(client, "events", sessionId);
  return rows.map(({ eventType }) => eventType).filter((type) => type.startsWith("RUN_"));
}

function inputOf(threadId: string, runId: string): RunInput {
  const messages = [{ id: `m-${runId}`, role: "user", content: "by HTTP" }];
  return { threadId, runId, messages, tools: [], context: [] };
}

async function read(events: AsyncIterable<AgentEvent>): Promise<void> {
  for await (const event of events) void event;
}

/** A session that serves turns, and the calls that it has made; `hold` delays the answers of one. */
function serving(bridge = new TestBridge()) {
  const id = newSession();
  const core = new RunnerCore(bridge, { address: service.grpcAddress, sessionId: id });
  const asked: string[] = [];
  const held = new Map<string, Promise<void>>();
  const call: LedgerClient["call"] = core.client.call.bind(core.client);
  Object.assign(core.client, {
    call: async (...[method, ...rest]: Parameters<typeof call>) => {
      asked.push(method.name);
      const answer = await call(method, ...rest);
      await held.get(method.name);
      // What a call that is cut does: its answer is lost.
      rest[1]?.signal?.throwIfAborted();
      return answer;
    },
  });
  const hold = (name: string): (() => void) => {
    const { promise, resolve } = deferred<void>();
    held.set(name, promise);
    const go = (): void => {
      held.delete(name);
      resolve();
    };
    onTestFinished(go);
    return go;
  };
  const session = new RunnerSession(core, id);
  let served: Promise<void> | undefined;
  const serve = (): void => {
    served = session.serve({ waits: true });
  };
  onTestFinished(async () => {
    core.stop();
    await served;
    await session.close();
    core.client.close();
  });
  const begin = (runId: string, signal = new AbortController().signal) =>
    session.begin(inputOf(id, runId), signal, {});
  return { id, bridge, asked, hold, serve, begin };
}

test("a run over HTTP is refused from the answer of the claim on", async () => {
  // Bug: the session was busy only when the input of the turn had been read, so two runs nested.
  const { id, asked, hold, serve, begin, bridge } = serving();
  const go = hold(ledger.getTranscript.name);
  await say(client, id, "one");
  serve();
  await expect.poll(() => asked).toContain(ledger.getTranscript.name);
  await expect(begin("by-http")).rejects.toThrow(RunInProgress);
  go();
  await expect.poll(() => marksOf(id)).toEqual(DONE);
  expect(bridge.inputs).toHaveLength(1);
});

test("a run over HTTP does not wait for the claim that waits, and messages wait for its end", async () => {
  const end = deferred<void>();
  const bridge = new TestBridge(async function* ({ runId }) {
    yield { type: "STEP_STARTED", stepName: "work" };
    if (runId === "by-http") await end.promise;
  });
  const { id, asked, serve, begin } = serving(bridge);
  serve();
  await expect.poll(() => asked).toContain(ledger.claimTurn.name);
  const run = read(await begin("by-http"));
  await expect.poll(() => marksOf(id)).toEqual(["RUN_STARTED"]);
  await say(client, id, "one");
  await expect(begin("another")).rejects.toThrow(RunInProgress);
  end.resolve();
  await run;
  await expect.poll(() => marksOf(id)).toEqual([...DONE, ...DONE]);
  expect(bridge.inputs.map(({ runId }) => runId)).toEqual(["by-http", expect.any(String)]);
  expect(await standing(client, id)).toEqual([1n, 0n, undefined]);
});

test("a claim that is cut too late keeps its turn, and the run over HTTP is refused", async () => {
  const { id, hold, serve, begin, bridge } = serving();
  const go = hold(ledger.claimTurn.name);
  await say(client, id, "one");
  serve();
  await expect.poll(() => marksOf(id)).toEqual(["RUN_STARTED"]);
  const begun = begin("by-http").catch((error: unknown) => error);
  go();
  expect(await begun).toBeInstanceOf(RunInProgress);
  await expect.poll(() => marksOf(id)).toEqual(DONE);
  expect(bridge.inputs).toHaveLength(1);
  expect(await standing(client, id)).toEqual([1n, 0n, undefined]);
});

test("a run over HTTP whose caller leaves while it waits for its place does not begin", async () => {
  const { id, hold, serve, begin, bridge } = serving();
  const go = hold(ledger.claimTurn.name);
  await say(client, id, "one");
  serve();
  await expect.poll(() => marksOf(id)).toEqual(["RUN_STARTED"]);
  const left = new AbortController();
  const waiting = begin("by-http", left.signal);
  left.abort(new Error("the caller left"));
  await expect(waiting).rejects.toThrow("the caller left");
  go();
  await expect.poll(() => marksOf(id)).toEqual(DONE);
  expect(bridge.inputs).toHaveLength(1);
});

test("a run over HTTP whose end the service refuses has an end", async () => {
  // Bug: the run stayed open until the next one.
  const bridge = new TestBridge(async function* () {
    yield { type: "RUN_ERROR", message: "broken", code: 5 };
  });
  const { id, begin } = serving(bridge);
  await read(await begin("by-http"));
  await expect.poll(() => marksOf(id)).toEqual(["RUN_STARTED", "RUN_ERROR"]);
  expect(await standing(client, id)).toEqual([0n, 0n, undefined]);
});

test("runs over HTTP and turns of one session never nest, also in a pool", async () => {
  // Bug: without a label the pool could claim a turn of the other session, and its runner was fenced.
  const labels = { pool: newSession() };
  const made = await client.unary(SessionService.method.createSession, {
    name: "of the pool",
    labels: JSON.stringify(labels),
  });
  const [one, two] = [newSession(), made.metadata?.id ?? ""];
  const bridge = new TestBridge();
  const alone = createRunner(bridge, { address: service.grpcAddress, sessionId: one });
  const pool = createRunner(new TestBridge(), { address: service.grpcAddress });
  const ended = [alone.run(), pool.pool({ labels })];
  const posted = async (runner: Runner, id: string, count: number): Promise<void> => {
    const server = await listen(runner.fetch, { port: 0 });
    onTestFinished(() => server.stop());
    for (let done = 0; done < count; ) {
      const body = JSON.stringify(inputOf(id, crypto.randomUUID()));
      const answer = await fetch(`http://${server.address}`, { method: "POST", body });
      await answer.text();
      expect([200, 409]).toContain(answer.status);
      if (answer.ok) done += 1;
    }
  };
  const said = async (id: string): Promise<void> => {
    for (let at = 0; at < 10; at += 1) await say(client, id, `message ${at}`);
  };
  await Promise.all([posted(alone, one, 10), posted(pool, two, 10), said(one), said(two)]);
  for (const id of [one, two]) {
    const left = async () => (await standing(client, id)).slice(1);
    await expect.poll(left).toEqual([0n, undefined]);
    const marks = await marksOf(id);
    expect(marks).toEqual(marks.map((_, at) => DONE[at % 2]));
  }
  await Promise.all([alone.stop(), pool.stop()]);
  await Promise.all(ended);
});
