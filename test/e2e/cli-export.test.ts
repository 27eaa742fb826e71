/**
 * `export` and `tail --expand` against a real service: what was merged comes back event by event,
 * whatever happens to the service, the reader or the file meanwhile.
 */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { runHere, runWith } from "../support/command-line.ts";
import { makeDirectory } from "../support/embedded-fixture.ts";
import { fragments, pushMerged } from "../support/merging.ts";
import { expectedOf } from "../support/recorded.ts";
import { type Command, runCommand, startCommand } from "../support/service-process.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../support/streams.ts";
import { useService } from "../support/use-service.ts";

const { service } = useService();
/** For tests that end it. */
const { service: own } = useService({});
let client: LedgerClient;

beforeAll(() => {
  client = createLedgerClient({ address: service.grpcAddress });
});

afterAll(() => client.close());

function run(args: readonly string[], input?: string) {
  const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
  return runHere(args, { env, ...(input === undefined ? {} : { input }) });
}

function start(args: readonly string[]): Command {
  return startCommand(args, { SESSION_LEDGER_ADDRESS: service.grpcAddress });
}

function linesOf(text: string): readonly string[] {
  return text.split("\n").slice(0, -1);
}

function payloads(events: readonly StreamEvent[]): readonly string[] {
  return events.map(({ payload }) => payload);
}

function custom(value: unknown): StreamEvent {
  return { eventType: "CUSTOM", payload: JSON.stringify({ type: "CUSTOM", name: "n", value }) };
}

describe("export", () => {
  test("returns every event of real streams byte for byte, ready for push", async () => {
    const accepted: string[] = [];
    const streams = [...ownStreams(), ...(recordedStreams() ?? []).slice(0, 20)];
    for (const { events } of streams) {
      // What the service would rewrite is not this test's business.
      const plain = events.filter((event) => expectedOf(event).text !== undefined);
      for (const event of plain) {
        const printed = { ...event, payload: JSON.stringify(JSON.parse(event.payload)) };
        const pushed = await pushMerged(client, "streams", [printed]).catch(() => undefined);
        if (pushed !== undefined) accepted.push(printed.payload);
      }
    }
    expect(accepted.length).toBeGreaterThan(50);
    const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
    const single = await runCommand(["export", "streams"], { env });
    expect(linesOf(single.stdout)).toEqual(accepted);

    const events = accepted.map((payload) => ({ eventType: JSON.parse(payload).type, payload }));
    const rows = await pushMerged(client, "merged", events);
    expect(rows.length).toBeLessThan(accepted.length);
    const merged = await run(["export", "merged"]);
    expect(merged).toMatchObject({ exitCode: 0, stdout: single.stdout });

    expect(await run(["push", "-s", "copied"], merged.stdout)).toMatchObject({ exitCode: 0 });
    expect((await run(["export", "copied"])).stdout).toBe(single.stdout);
  });

  test("reads many pages, each of which ends inside a row", async () => {
    const events = [custom(1), ...fragments(2_500), custom(2), ...fragments(1_234), custom(3)];
    await pushMerged(client, "pages", events);
    const { stdout, stderr, exitCode } = await run(["export", "pages"]);
    expect(linesOf(stdout)).toEqual(payloads(events));
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: expect.stringMatching(
        /^session-ledger: 3737 events in [\d.]+ s, session pages up to 3737\n$/,
      ),
    });
  });

  test("prints a payload with line breaks as one line of the same value", async () => {
    const payload =
      '{\r\n  "type": "CUSTOM",\n\n  "name": "a\\nb\\u000d",\r  "value": [1.0,\n2]\n}';
    await pushMerged(client, "breaks", [custom(1), { eventType: "CUSTOM", payload }]);
    const lines = linesOf((await run(["export", "breaks"])).stdout);
    expect(lines).toHaveLength(2);
    expect(lines[1]).not.toContain("\r");
    expect(JSON.parse(lines[1] ?? "")).toEqual(JSON.parse(payload));
    expect(lines[1]).toContain("1.0");
  });

  test("prints a merged row without an index as one line", async () => {
    const [event] = fragments(1);
    const row = { ...event, sessionId: "whole", eventCount: 7 };
    await client.call(ledger.pushSessionEvent, row);
    await pushMerged(client, "whole", [custom(1)]);
    const { stdout } = await run(["export", "whole"]);
    expect(linesOf(stdout)).toEqual([event?.payload, custom(1).payload]);
  });

  test("prints messages in the format of tail", async () => {
    for (const payload of ["hi", "two\nlines"])
      await client.call(ledger.pushSessionMessage, {
        sessionId: "messages",
        eventType: "user",
        payload,
      });
    const { stdout } = await run(["export", "messages", "--stream", "messages"]);
    expect(linesOf(stdout)).toHaveLength(2);
    expect(stdout).toBe((await run(["tail", "-s", "messages", "--stream", "messages"])).stdout);
    expect((await run(["export", "messages"])).stdout).toBe("");
  });

  test("ends with 4 for an unknown session and leaves no file", async () => {
    const into = await makeDirectory();
    const { exitCode, stderr, stdout } = await run(["export", "nowhere", "-o", join(into, "a")]);
    expect({ exitCode, stdout }).toEqual({ exitCode: 4, stdout: "" });
    expect(stderr).toContain("SESSION_NOT_FOUND");
    expect(await readdir(into)).toEqual([]);
  });

  test("ends silently when the reader of its output closes", async () => {
    await pushMerged(client, "pipe", fragments(20_000));
    const command = start(["export", "pipe"]);
    command.closeOutput();
    expect(await command.result).toEqual({ exitCode: 0, stderr: "" });
  });

  test("ends with 130 on SIGINT while its reader is stuck, and reports no success", async () => {
    await pushMerged(client, "still", fragments(100));
    const { stdout, stderr, interrupt, exitCode } = exportHeld("still", service.grpcAddress);
    await stdout.first;
    interrupt.abort();
    expect(await exitCode).toBe(130);
    expect(linesOf(stdout.text)).toHaveLength(1);
    expect(stderr.text).toBe("");
  });
});

describe("export into a file", () => {
  test("appears when it is complete, and is replaced only with --force", async () => {
    const into = await makeDirectory();
    const file = join(into, "session.jsonl");
    await pushMerged(client, "file", fragments(3));
    const first = await run(["export", "file", "-o", file]);
    expect(first).toMatchObject({ exitCode: 0, stdout: "" });
    expect(first.stderr).toContain("3 events");
    expect(linesOf(await readFile(file, "utf8"))).toEqual(payloads(fragments(3)));

    await writeFile(file, "mine");
    const refused = await run(["export", "file", "-o", file]);
    expect(refused.exitCode).toBe(2);
    expect(refused.stderr).toContain("--force");
    expect(await readFile(file, "utf8")).toBe("mine");

    expect(await run(["export", "file", "-o", file, "--force"])).toMatchObject({ exitCode: 0 });
    expect(linesOf(await readFile(file, "utf8"))).toEqual(payloads(fragments(3)));
    expect(await readdir(into)).toEqual(["session.jsonl"]);
  });

  test("keeps the old file and ends with 130 on SIGINT", async () => {
    const into = await makeDirectory();
    const file = join(into, "session.jsonl");
    await writeFile(file, "mine");
    for (let row = 0; row < 10; row += 1)
      await pushMerged(client, "interrupted", fragments(20_000, { messageId: `m${row}` }));
    const command = start(["export", "interrupted", "-o", file, "--force"]);
    while ((await readdir(into)).length < 2) await new Promise(setImmediate);
    command.kill("SIGINT");
    expect((await command.result).exitCode).toBe(130);
    expect(await readdir(into)).toEqual(["session.jsonl"]);
    expect(await readFile(file, "utf8")).toBe("mine");
  });
});

test("export survives a restart of the service, and ends at the head that it saw at its start", async () => {
  const pushing = createLedgerClient({ address: own.grpcAddress });
  const events = [...fragments(1_500), custom(1), ...fragments(2_500)];
  await pushMerged(pushing, "held", events);
  pushing.close();
  const { stdout, exitCode } = exportHeld("held", own.grpcAddress);
  await stdout.first;
  await own.kill("SIGKILL");
  await own.restart();
  const pushingAgain = createLedgerClient({ address: own.grpcAddress });
  await pushMerged(pushingAgain, "held", [custom("late"), ...fragments(500)]);
  pushingAgain.close();
  stdout.release();
  expect(await exitCode).toBe(0);
  expect(linesOf(stdout.text)).toEqual(payloads(events));
});

const lineSchema = z.object({
  seq: z.string().transform((seq) => BigInt(seq)),
  eventCount: z.number(),
  payload: z.string(),
  createdAt: z.string(),
  fragments: z.unknown().optional(),
});

function parsed(line: string): z.infer<typeof lineSchema> {
  return lineSchema.parse(JSON.parse(line));
}

describe("tail", () => {
  test("--expand prints raw events, also from a cursor inside a row", async () => {
    const events = [custom(1), ...fragments(5), custom(2)];
    await pushMerged(client, "tail", events);
    const whole = await run(["tail", "-s", "tail", "--expand"]);
    const lines = linesOf(whole.stdout).map(parsed);
    expect(lines.map(({ payload }) => payload)).toEqual(payloads(events));
    expect(lines.map(({ seq }) => seq)).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
    expect(lines.every((line) => line.eventCount === 1 && line.fragments === undefined)).toBe(true);
    const args = ["tail", "-s", "tail", "--expand", "--after", "4"];
    expect(linesOf((await run(args)).stdout)).toEqual(linesOf(whole.stdout).slice(4));
    const two = await run([...args, "-n", "2", "--format", "payload"]);
    expect(linesOf(two.stdout)).toEqual(payloads(events).slice(4, 6));
  });

  test("-f --expand survives a kill of the service inside a row and prints every event once", async () => {
    const pushing = createLedgerClient({ address: own.grpcAddress });
    const events = [custom(1), ...fragments(20_000, { payloadBytes: 400 }), custom(2)];
    expect(await pushMerged(pushing, "killed", events)).toHaveLength(3);
    pushing.close();
    const env = { SESSION_LEDGER_ADDRESS: own.grpcAddress };
    const args = ["tail", "-s", "killed", "-f", "--expand", "-n", String(events.length)];
    const tail = startCommand(args, env);
    const seen: string[] = [];
    for await (const line of tail.stdout) {
      if (seen.push(line) !== 50) continue;
      await own.kill("SIGKILL");
      await own.restart();
    }
    const { exitCode, stderr } = await tail.result;
    expect({ exitCode, stderr }).toEqual({
      exitCode: 0,
      stderr: expect.stringContaining("trying again"),
    });
    const got = seen.map(parsed);
    expect(got.map(({ payload }) => payload)).toEqual(payloads(events));
    expect(got.every(({ seq }, at) => seq === BigInt(at + 1))).toBe(true);
  });

  test("-f survives a restart at the end of a merged row, with rows and with events", async () => {
    const env = { SESSION_LEDGER_ADDRESS: own.grpcAddress };
    const rowsBefore = fragments(30);
    const rowsAfter = fragments(30, { messageId: "later" });
    const pushing = createLedgerClient({ address: own.grpcAddress });
    await pushMerged(pushing, "restarted", rowsBefore, { eventsMax: 3 });
    pushing.close();
    const tails = [
      { expand: [], rows: 20, before: 10 },
      { expand: ["--expand"], rows: 60, before: 30 },
    ].map(({ expand, rows, before }) => {
      const command = startCommand(
        ["tail", "-s", "restarted", "-f", "-n", String(rows), ...expand],
        env,
      );
      const reached = Promise.withResolvers<void>();
      const read = async (): Promise<readonly z.infer<typeof lineSchema>[]> => {
        const seen: string[] = [];
        for await (const line of command.stdout) {
          if (seen.push(line) === before) reached.resolve();
        }
        return seen.map(parsed);
      };
      return { reached: reached.promise, seen: read(), result: command.result };
    });
    await Promise.all(tails.map(({ reached }) => reached));
    await own.stop();
    await own.restart();
    const pushingAgain = createLedgerClient({ address: own.grpcAddress });
    await pushMerged(pushingAgain, "restarted", rowsAfter, { eventsMax: 3 });
    pushingAgain.close();
    const [rows = [], events = []] = await Promise.all(tails.map(({ seen }) => seen));
    expect(rows.map(({ seq, eventCount }) => [seq, eventCount])).toEqual(
      Array.from({ length: 20 }, (_, at) => [BigInt(3 * at + 1), 3]),
    );
    expect(events.map(({ seq }) => seq)).toEqual(
      Array.from({ length: 60 }, (_, at) => BigInt(at + 1)),
    );
    expect(events.map(({ payload }) => payload)).toEqual(payloads([...rowsBefore, ...rowsAfter]));
    for (const { result } of tails) expect((await result).exitCode).toBe(0);
  });
});

/** A reader that takes one chunk, and the others when the test releases it. */
class Held extends Writable {
  text = "";
  readonly #first = Promise.withResolvers<void>();
  #isReleased = false;
  #done: (() => void) | undefined;
  readonly first: Promise<void> = this.#first.promise;

  constructor() {
    super({ highWaterMark: 1 });
  }

  release(): void {
    this.#isReleased = true;
    this.#done?.();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    this.#first.resolve();
    this.#done = done;
    if (this.#isReleased) done();
  }
}

/** The command with a reader that stands still. */
function exportHeld(sessionId: string, address: string) {
  const [stdout, stderr] = [new Held(), new Held()];
  stderr.release();
  const interrupt = new AbortController();
  const exitCode = runWith(["export", sessionId, "--address", address], {
    stdout,
    stderr,
    signal: interrupt.signal,
  });
  return { stdout, stderr, interrupt, exitCode };
}
