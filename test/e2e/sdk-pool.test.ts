/** Pools of runners: sessions that wait, a limit, several pools, lost runs, files that were left. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { RunnerOptions, RunnerProblem } from "@session-ledger/runner/internal/sdk/core";
import { createRunner, type Runner } from "@session-ledger/runner/internal/sdk/loop";
import type { PoolOptions } from "@session-ledger/runner/internal/sdk/pool";
import { type AgentOfTest, echo, TestBridge } from "../support/echo-bridge.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { claim, emit, say, standing } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const PROGRAM = fileURLToPath(new URL("../support/sdk-runner-process.ts", import.meta.url));
const { getSession } = SessionService.method;

const { service, client } = useService({});
const runners = new Set<Runner>();
const children = new Set<ChildProcess>();
afterEach(async () => {
  await Promise.all([...runners].map((runner) => runner.stop()));
  runners.clear();
});
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
});

function pool(
  agent: AgentOfTest = echo,
  { pool: poolOptions, ...options }: Partial<RunnerOptions> & { pool?: PoolOptions } = {},
) {
  const bridge = new TestBridge(agent);
  const problems: RunnerProblem[] = [];
  const runner = createRunner(bridge, {
    address: service.grpcAddress,
    onProblem: (problem) => problems.push(problem),
    ...options,
  });
  runners.add(runner);
  return { runner, bridge, problems, ended: runner.pool(poolOptions) };
}

async function marksOf(sessionId: string): Promise<readonly string[]> {
  const rows = await rowsOf(client, "events", sessionId);
  return rows.map(({ eventType }) => eventType).filter((type) => type.startsWith("RUN_"));
}

async function codesOf(sessionId: string): Promise<readonly unknown[]> {
  const rows = await rowsOf(client, "events", sessionId);
  return rows
    .filter(({ eventType }) => eventType === "RUN_ERROR")
    .map(({ payload }): unknown => JSON.parse(payload).code);
}

/** The messages that wait, and the open run. */
async function left(sessionId: string): Promise<readonly unknown[]> {
  return (await standing(client, sessionId)).slice(1);
}

const DONE = ["RUN_STARTED", "RUN_FINISHED"];

test("two pools give each message of many sessions one turn, those that waited before too", async () => {
  const sessions = Array.from({ length: 30 }, newSession);
  const early = sessions.slice(0, 15);
  await Promise.all(early.map((id) => say(client, id, "one")));
  const pools = [pool(), pool()];
  await Promise.all(sessions.slice(15).map((id) => say(client, id, "one")));
  for (const id of sessions) await expect.poll(() => marksOf(id)).toEqual(DONE);
  await Promise.all(early.map((id) => say(client, id, "two")));
  for (const id of early) await expect.poll(() => marksOf(id)).toEqual([...DONE, ...DONE]);
  const phase = async () => (await client.unary(getSession, { id: early[0] ?? "" })).phase;
  await expect.poll(phase).toBe("Stopped");
  await Promise.all([...runners].map((runner) => runner.stop()));
  await Promise.all(pools.map(({ ended }) => ended));
  const turns = pools.map(({ runner }) => runner.stats.turns);
  expect(turns.reduce((sum, count) => sum + count, 0)).toBe(45);
  // A report of a phase may be late on a loaded machine.
  const problems = pools.flatMap((one) => one.problems).filter(({ kind }) => kind !== "status");
  expect(problems).toEqual([]);
});

test("a pool serves a limited number of sessions at once, and the others next", async () => {
  let running = 0;
  let most = 0;
  const open: (() => void)[] = [];
  const agent: AgentOfTest = async function* (input) {
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => open.push(resolve));
    running -= 1;
    yield* echo(input);
  };
  const sessions = Array.from({ length: 5 }, newSession);
  await Promise.all(sessions.map((id) => say(client, id, "one")));
  const { runner } = pool(agent, { pool: { atOnce: 2 } });
  await expect.poll(() => running).toBe(2);
  for (let ended = 0; ended < 5; ended += 1) {
    await expect.poll(() => open.length).toBeGreaterThan(0);
    open.shift()?.();
  }
  await expect.poll(() => runner.stats.turns).toBe(5);
  expect(most).toBe(2);
});

test("a message that comes during a turn is the next turn, with the same adapter", async () => {
  const sessionId = newSession();
  const agent: AgentOfTest = async function* (input) {
    if (runs.bridge.inputs.length === 1) await say(client, sessionId, "two");
    yield* echo(input);
  };
  const runs = pool(agent);
  await say(client, sessionId, "one");
  await expect.poll(() => runs.runner.stats.turns).toBe(2);
  await say(client, sessionId, "three");
  await expect.poll(() => runs.runner.stats.turns).toBe(3);
  expect(runs.bridge.contexts).toHaveLength(1);
});

test("a pool leaves the runs of others alone, and takes over a lost one after its time", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  await claim(client, { sessionId, runId: "theirs" });
  await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
  await say(client, sessionId, "two");
  const other = newSession();
  const patient = pool();
  await say(client, other, "one");
  await expect.poll(() => marksOf(other)).toEqual(DONE);
  expect(await standing(client, sessionId)).toEqual([1n, 1n, "theirs"]);
  await patient.runner.stop();
  const { runner } = pool(echo, { pool: { lostAfterMs: 1_000 } });
  await expect.poll(() => runner.stats.turns).toBe(1);
  expect(await codesOf(sessionId)).toEqual(["RUNNER_LOST"]);
  expect(await left(sessionId)).toEqual([0n, undefined]);
});

test("a killed runner of a pool takes over its own runs at its start, and sends its files", async () => {
  const directory = await makeDirectory();
  await mkdir(join(directory, "spool"));
  const file = join(directory, "spool", "left");
  const sessions = [newSession(), newSession()];
  await Promise.all(sessions.map((id) => say(client, id, "one")));
  const child = spawn(process.execPath, [PROGRAM, service.grpcAddress, "", file], {
    env: { ...process.env, RUNNER_NAME: "pod-1", TOOL_MS: "600000" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.add(child);
  for (const id of sessions) {
    await expect.poll(() => left(id)).toEqual([0n, expect.any(String)]);
  }
  child.kill("SIGKILL");
  await once(child, "exit");
  // Bug: a kill while the lock was taken left a part of it, which the pool took for a session's file.
  await writeFile(`${file}.${sessions[0]}.lock.${child.pid}`, "{}");
  // Another name, and the run is not old.
  const other = pool(echo, { name: "pod-2" });
  await Promise.all(sessions.map((id) => say(client, id, "two")));
  const unrelated = newSession();
  await say(client, unrelated, "one");
  await expect.poll(() => marksOf(unrelated)).toEqual(DONE);
  await expect.poll(() => other.runner.stats.turns).toBe(1);
  const same = pool(echo, { name: "pod-1", spool: { file } });
  for (const id of sessions) {
    await expect.poll(() => left(id)).toEqual([0n, undefined]);
    expect((await marksOf(id)).slice(0, 3)).toEqual(["RUN_STARTED", "RUN_ERROR", "RUN_STARTED"]);
  }
  await same.runner.stop();
  expect(await readdir(join(directory, "spool"))).toEqual([]);
});

test("a pool continues through a restart of the service", async () => {
  const { runner, ended } = pool();
  const [before, after] = [newSession(), newSession()];
  await say(client, before, "one");
  await expect.poll(() => runner.stats.turns).toBe(1);
  await service.kill("SIGKILL");
  await service.restart();
  await say(client, after, "one");
  await expect.poll(() => runner.stats.turns).toBe(2);
  await runner.stop();
  await ended;
});
