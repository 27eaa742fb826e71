/**
 * The file of a session writer against the real service: the runner is killed in the middle, and the
 * next one sends what it left, once; or another writer has taken over in between, and what was left is
 * counted.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { isObject } from "@session-ledger/agui/json";
import { addressOf, breakableWay, hostAndPort } from "../support/broken-network.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { useService } from "../support/use-service.ts";
import { eventsOfRun, messagesOfRun, observedWriter, payloadsOf } from "../support/writing.ts";

const { service } = useService();

const events = (sessionId: string) =>
  payloadsOf(service.grpcAddress, { sessionId, stream: "events" });
const messages = (sessionId: string) =>
  payloadsOf(service.grpcAddress, { sessionId, stream: "messages" });

describe("a file", () => {
  const RUNNER = fileURLToPath(new URL("../support/runner-process.ts", import.meta.url));
  const running = new Set<ChildProcess>();
  afterAll(() => {
    for (const child of running) child.kill("SIGKILL");
  });

  interface RunnerOptions {
    readonly address: string;
    readonly sessionId: string;
    readonly file: string;
    readonly firstRun: number;
    readonly runs: number;
  }

  function startRunner({ address, sessionId, file, firstRun, runs }: RunnerOptions) {
    const args = [RUNNER, address, sessionId, file, String(firstRun), String(runs)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    running.add(child);
    const said: unknown[] = [];
    const waiting = new Map<number, () => void>();
    createInterface({ input: child.stdout }).on("line", (line) => {
      const value: unknown = JSON.parse(line);
      said.push(value);
      if (isObject(value)) waiting.get(Number(value["run"]))?.();
    });
    const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
    return {
      said,
      ended,
      /** Resolves when the run was said, to the writer. */
      untilRun: (run: number) => new Promise<void>((resolve) => waiting.set(run, resolve)),
      kill: () => {
        child.kill("SIGKILL");
        return ended;
      },
    };
  }

  function say(
    { writer }: Pick<ReturnType<typeof observedWriter>, "writer">,
    payloads: readonly string[],
  ): void {
    for (const payload of payloads) writer.event(payload);
  }

  const closedSchema = z.object({ closed: z.object({ complete: z.boolean(), kept: z.boolean() }) });

  test.each([
    ["while the service is reachable", true],
    ["while the service is unreachable", false],
  ])(
    "after a SIGKILL of the runner %s lets the next one send the rest, once",
    async (_, exists) => {
      const sessionId = `killed-${exists}`;
      const file = join(await makeDirectory(), "spool");
      const way = await breakableWay(hostAndPort(service.grpcAddress));
      if (!exists) await way.cut();
      const options = { address: addressOf(way), sessionId, file };
      const killed = startRunner({ ...options, firstRun: 1, runs: 1_000 });
      // What stands in the file when it is killed is what must not be lost.
      await killed.untilRun(30);
      await expect.poll(() => existsSync(file) && readFileSync(file, "utf8").length).not.toBe(0);
      const written = exists ? 0 : await lastRunIn(file, 10);
      await killed.kill();
      await way.mend();
      const next = startRunner({ ...options, firstRun: 5_001, runs: 3 });
      await next.ended;
      expect(closedSchema.parse(next.said.at(-1)).closed).toEqual({ complete: true, kept: false });
      expect(existsSync(file)).toBe(false);

      const stored = await events(sessionId);
      const after = [5_001, 5_002, 5_003].flatMap((run) => eventsOfRun(run, 20));
      const before = stored.slice(0, stored.length - after.length);
      expect(stored.slice(before.length)).toEqual(after);
      const all = Array.from({ length: 1_000 }, (_one, at) => eventsOfRun(at + 1, 20)).flat();
      expect(before).toEqual(all.slice(0, before.length));
      expect(before.length).toBeGreaterThanOrEqual(written * 24);

      const conversation = await messages(sessionId);
      // Messages have a separate stream, which a kill may find far ahead of that of the events.
      const messagesOfRuns = Array.from({ length: 1_000 }, (_one, at) => messagesOfRun(at + 1, 20));
      const wholeRuns = Math.floor(before.length / 24);
      const first = conversation.slice(0, -9);
      expect(first).toEqual(messagesOfRuns.flat().slice(0, first.length));
      expect(first.length).toBeGreaterThanOrEqual(wholeRuns * 3);
      expect(conversation.slice(-9)).toEqual(
        [5_001, 5_002, 5_003].flatMap((run) => messagesOfRun(run, 20)),
      );
      await way.cut();
    },
  );

  // Bug: the file is written in the background, so a kill could find the event of a message in the
  // service, and the message neither there nor in the file.
  test("holds the messages of each event that the service has", async () => {
    const sessionId = "killed-before-its-messages";
    const directory = await makeDirectory();
    const file = join(directory, "spool");
    const pipe = join(directory, "pipe");
    execFileSync("sh", ["-c", 'mkfifo "$1"', "sh", pipe]);
    const program = fileURLToPath(new URL("../support/runner-stuck-file.ts", import.meta.url));
    const killed = spawn(process.execPath, [program, service.grpcAddress, sessionId, file, pipe], {
      stdio: "inherit",
      env: { ...process.env, UV_THREADPOOL_SIZE: "1" },
    });
    running.add(killed);
    const [, signal] = await once(killed, "close");
    expect(signal).toBe("SIGKILL");
    const next = startRunner({
      address: service.grpcAddress,
      sessionId,
      file,
      firstRun: 3,
      runs: 0,
    });
    await next.ended;
    expect(await events(sessionId)).toEqual([...eventsOfRun(1, 5), ...eventsOfRun(2, 5)]);
    expect(await messages(sessionId)).toEqual([...messagesOfRun(1, 5), ...messagesOfRun(2, 5)]);
  });

  test("with records of a writer that was replaced meanwhile reports them as lost", async () => {
    const sessionId = "left-and-fenced";
    const file = join(await makeDirectory(), "spool");
    const way = await breakableWay(hostAndPort(service.grpcAddress));
    const options = { address: addressOf(way), sessionId, spool: { file } };
    const first = observedWriter({ ...options, messages: "manual" });
    say(first, eventsOfRun(1, 5));
    await first.writer.flush();
    await way.cut();
    say(first, eventsOfRun(2, 5));
    first.writer.message({ type: "user", payload: "left" });
    expect(await first.writer.close({ timeoutMs: 50 })).toMatchObject({
      complete: false,
      kept: true,
      events: 9,
      messages: 1,
    });
    const other = observedWriter({ address: service.grpcAddress, sessionId, messages: "manual" });
    say(other, eventsOfRun(3, 5));
    await other.writer.close();
    await way.mend();
    const second = observedWriter({ ...options, messages: "manual" });
    say(second, eventsOfRun(4, 5));
    expect(await second.problem("left_lost")).toMatchObject({ events: 9, messages: 1 });
    const { stats } = await second.writer.close();
    expect(stats.events).toMatchObject({ accepted: 18, committed: 9, dropped: 9 });
    expect(await events(sessionId)).toEqual([1, 3, 4].flatMap((run) => eventsOfRun(run, 5)));
    await way.cut();
  });

  test("with records of a writer that never connected reports them as lost after a replacement", async () => {
    const sessionId = "left-unopened";
    const file = join(await makeDirectory(), "spool");
    const way = await breakableWay(hostAndPort(service.grpcAddress));
    await way.cut();
    const options = { address: addressOf(way), sessionId, spool: { file } };
    const first = observedWriter(options);
    say(first, eventsOfRun(1, 5));
    expect(await first.writer.close({ timeoutMs: 50 })).toMatchObject({ kept: true, events: 9 });
    const other = observedWriter({ address: service.grpcAddress, sessionId });
    say(other, eventsOfRun(2, 5));
    await other.writer.close();
    await way.mend();
    const second = observedWriter(options);
    say(second, eventsOfRun(3, 5));
    expect(await second.problem("left_lost")).toMatchObject({ events: 9, messages: 3 });
    await second.writer.close();
    expect(await events(sessionId)).toEqual([2, 3].flatMap((run) => eventsOfRun(run, 5)));
    await way.cut();
  });

  /** Resolves with the last complete run in the file, once there are `runs` of them. */
  async function lastRunIn(file: string, runs: number): Promise<number> {
    const finished = (): number =>
      (readFileSync(file, "utf8").match(/\\"RUN_FINISHED\\"/g) ?? []).length;
    await expect.poll(finished).toBeGreaterThanOrEqual(runs);
    return finished();
  }
});
