/**
 * A runner of each bridge is killed five times in the call of a tool, once at its beginning and then at
 * random moments, and started again. People ask all the time, and a page watches.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, test } from "vitest";
import { z } from "zod";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { newSession, rowsOf, watch } from "../support/pushing.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { say, standing } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";
import { pace } from "../support/eventually.ts";

const KILLS = 5;
/** The tool takes 60 ms: some kills come before its result is stored, some after. */
const WITHIN_MS = 100;

const { service, client } = useService();
const random = new Random(seedOfRun());

/** Resolves when the agent calls its tool for the first time. */
async function start(name: string, sessionId: string, file: string): Promise<ChildProcess> {
  const script = join(import.meta.dirname, "killed-runner.ts");
  const runner = spawn(process.execPath, [script, name, service.grpcAddress, sessionId, file], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  running.add(runner);
  runner.once("exit", () => running.delete(runner));
  await once(createInterface(runner.stdout), "line");
  return runner;
}

const running = new Set<ChildProcess>();
afterAll(() => {
  for (const runner of running) runner.kill("SIGKILL");
});

async function end(runner: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const ended = once(runner, "exit");
  runner.kill(signal);
  await ended;
}

test.concurrent.for(["agui", "ai-sdk", "langgraph", "claude"])(
  "no message is lost or answered twice when the runner of %s is killed in a tool call",
  async (name, { expect }) => {
    const sessionId = newSession();
    const file = join(await makeDirectory(), "spool");
    const questions = Array.from({ length: KILLS + 1 }, (_, at) => `question ${at + 1}`);
    const page = watch(client, "events", sessionId);
    let runner: ChildProcess | undefined;
    for (const [kills, question] of questions.entries()) {
      if (runner !== undefined) {
        if (kills > 1) await pace(random.below(WITHIN_MS));
        await end(runner, "SIGKILL");
      }
      await say(client, sessionId, question);
      runner = await start(name, sessionId, file);
    }
    const idle = [expect.anything(), 0n, undefined];
    await expect.poll(() => standing(client, sessionId)).toEqual(idle);
    if (runner !== undefined) await end(runner, "SIGTERM");

    const rows = await rowsOf(client, "events", sessionId);
    const events = rows.map(({ payload }) => eventSchema.parse(JSON.parse(payload)));
    const asked = events.filter(({ name: own }) => own === "asked").map(({ value }) => value);
    expect(asked).toEqual(questions);
    const started = events.filter(({ type }) => type === "RUN_STARTED");
    const ends = events.filter(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
    expect(ends).toHaveLength(started.length);
    const lost = ends.filter(({ code }) => code === "RUNNER_LOST");
    expect(lost.length).toBeGreaterThan(0);
    expect(ends.filter(({ type }) => type === "RUN_ERROR")).toEqual(lost);
    // The page has every row, in order, by one watch that never broke.
    const seen: (bigint | undefined)[] = [];
    while (seen.length < rows.length) seen.push((await page.next()).value?.seq);
    page.cancel();
    expect(seen).toEqual(rows.map(({ seq }) => seq));
    // A chat that opens now shows each question once, and the answer of each run that was not lost.
    const [chat] = AGUI_CLIENTS;
    const opened = chat?.open(service.httpAddress, sessionId);
    await opened?.connect();
    const shown = messagesSchema.parse(opened?.conversation().messages);
    const said = shown.filter(({ role }) => role === "user").map(({ content }) => content);
    expect(said).toEqual(questions);
    const answers = shown.filter(({ content }) => content === "Done");
    expect(answers.length).toBeGreaterThanOrEqual(ends.length - lost.length);
  },
);

const eventSchema = z.looseObject({ type: z.string() });
const messagesSchema = z.array(z.looseObject({ role: z.string(), content: z.unknown() }));
