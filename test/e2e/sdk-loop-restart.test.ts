/**
 * Runners that are killed, replaced and restarted: no message is lost or answered twice, and a page
 * that watches goes on.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { echo, TestBridge } from "../support/echo-bridge.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession, rowsOf, watch } from "../support/pushing.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { say, standing } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { getTranscript } = SessionService.method;
const PROGRAM = fileURLToPath(new URL("../support/sdk-runner-process.ts", import.meta.url));

const children = new Set<ChildProcess>();
const { service, client } = useService({});
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
});

/** A runner in a process of its own, and the lines that it prints. */
function startRunner(sessionId: string, file: string) {
  const child = spawn(process.execPath, [PROGRAM, service.grpcAddress, sessionId, file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.add(child);
  const exited = once(child, "exit");
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  return {
    async printed(count: number): Promise<void> {
      const options = { interval: 1 };
      await expect.poll(() => lines.length, options).toBeGreaterThanOrEqual(count);
    },
    async kill(signal: NodeJS.Signals): Promise<number | null> {
      child.kill(signal);
      await exited;
      children.delete(child);
      return child.exitCode;
    },
  };
}

function failureOf(call: () => Promise<void>): Promise<unknown> {
  return call().then(
    () => "it ended",
    (error: unknown) => error,
  );
}

const eventSchema = z.looseObject({
  type: z.string(),
  runId: z.string().optional(),
  code: z.string().optional(),
  metadata: z
    .looseObject({
      session: z
        .looseObject({ consumed: z.object({ first: z.number(), last: z.number() }).optional() })
        .optional(),
    })
    .optional(),
});

interface SeenRun {
  readonly first: number;
  readonly last: number;
  hasOutput: boolean;
  end: string | undefined;
}

/** The runs of a session, as the stored events tell them. */
function runsIn(payloads: readonly string[]): readonly SeenRun[] {
  const runs: SeenRun[] = [];
  for (const event of payloads.map((payload) => eventSchema.parse(JSON.parse(payload)))) {
    const run = runs.at(-1);
    const consumed = event.metadata?.session?.consumed;
    if (event.type === "RUN_STARTED" && consumed !== undefined) {
      runs.push({ ...consumed, hasOutput: false, end: undefined });
    } else if (run !== undefined && run.end === undefined) {
      if (event.type === "RUN_FINISHED") run.end = "finished";
      else if (event.type === "RUN_ERROR") run.end = event.code ?? "error";
      else run.hasOutput = true;
    } else throw new Error(`${event.type} is outside of any run`);
  }
  return runs;
}

test("a runner that is killed at random points loses no message and answers none twice", async () => {
  const KILLS = 6;
  const random = new Random(seedOfRun());
  const sessionId = newSession();
  const file = join(await makeDirectory(), "spool");
  await say(client, sessionId, "word 0");
  const page = watch(client, "events", sessionId);
  const seen: string[] = [];
  const watched = (async () => {
    for await (const { payload } of page) seen.push(payload);
  })().catch(() => undefined);
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const runner = startRunner(sessionId, file);
    // A run prints 11 lines; with the message, the next turn may have begun.
    const lines = 1 + random.below(14);
    await runner.printed(Math.min(lines, 5));
    await say(client, sessionId, `more ${kill}`);
    await runner.printed(lines);
    await runner.kill("SIGKILL");
    await say(client, sessionId, `word ${kill}`);
  }
  const runner = startRunner(sessionId, file);
  const rest = (): Promise<unknown> => standing(client, sessionId).then((state) => state.slice(1));
  await expect.poll(rest).toEqual([0n, undefined]);
  expect(await runner.kill("SIGTERM")).toBe(0);

  const rows = await rowsOf(client, "events", sessionId);
  const runs = runsIn(rows.map(({ payload }) => payload));
  const said = (await rowsOf(client, "messages", sessionId)).filter(
    ({ eventType }) => eventType === "user",
  );
  for (const { seq } of said) {
    const own = runs.filter(({ first, last }) => first <= seq && seq <= last);
    expect(own.length, `runs of message ${seq}`).toBeGreaterThan(0);
    // Only a run without any output is given again.
    const shown = own.filter(({ hasOutput }) => hasOutput);
    expect(shown.length, `runs of message ${seq} with output`).toBe(1);
    expect(own.at(-1)?.hasOutput).toBe(true);
  }
  expect(new Set(runs.map(({ end }) => end))).toEqual(new Set(["finished", "RUNNER_LOST"]));
  // The page has seen all of it, in one watch.
  await expect.poll(() => seen.length).toBe(rows.length);
  expect(seen).toEqual(rows.map(({ payload }) => payload));
  page.cancel();
  await watched;
});

test("two runners that fail alike have a message for each failure", async () => {
  // Bug: without RUN_STARTED in the writer, the keys of both messages were the same.
  const sessionId = newSession();
  for (const text of ["one", "two"]) {
    await say(client, sessionId, text);
    const bridge = new TestBridge(async function* () {
      yield { type: "RAW", event: 1 };
      throw new Error("boom");
    });
    const runner = createRunner(bridge, { address: service.grpcAddress, sessionId });
    const ended = runner.run();
    await expect.poll(() => runner.stats.turns).toBe(1);
    await runner.stop();
    await ended;
  }
  const rows = await rowsOf(client, "messages", sessionId);
  expect(rows.map(({ eventType }) => eventType)).toEqual(["user", "error", "user", "error"]);
});

test("a runner ends when another one takes over, and the lost run is given again", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const never = new TestBridge(async function* (_input, signal) {
    if (!signal.aborted) await once(signal, "abort");
    yield { type: "RAW", event: 1 };
  });
  const first = createRunner(never, { address: service.grpcAddress, sessionId });
  const lost = failureOf(() => first.run());
  await expect.poll(() => never.inputs.length).toBe(1);
  const bridge = new TestBridge();
  const second = createRunner(bridge, { address: service.grpcAddress, sessionId });
  const ended = second.run();
  await expect.poll(() => second.stats.turns).toBe(1);
  expect(await lost).toMatchObject({ reason: "STALE_EPOCH" });
  expect(bridge.inputs[0]?.messages).toHaveLength(1);
  await second.stop();
  await ended;
});

test("a runner continues through a restart of the service, in a run and while it waits", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  let resume = (): void => undefined;
  const bridge = new TestBridge(async function* (input) {
    if (bridge.inputs.length === 1) await new Promise<void>((resolve) => (resume = resolve));
    yield* echo(input);
  });
  const runner = createRunner(bridge, { address: service.grpcAddress, sessionId });
  const ended = runner.run();
  await expect.poll(() => bridge.inputs.length).toBe(1);
  await service.kill("SIGKILL");
  resume();
  await service.restart();
  await expect.poll(() => runner.stats.turns).toBe(1);
  await service.kill("SIGKILL");
  await service.restart();
  await say(client, sessionId, "two");
  await expect.poll(() => runner.stats.turns).toBe(2);
  expect(runner.stats.failures).toBe(0);
  await runner.stop();
  await ended;
  const { messages } = await client.unary(getTranscript, { sessionId });
  expect(JSON.parse(messages)).toMatchObject([
    { content: "one" },
    { content: "You said: one" },
    { content: "two" },
    { content: "You said: two" },
  ]);
});
