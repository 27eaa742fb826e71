/**
 * The session writer against the real service, and what may happen between them. The service is slow,
 * gone for WRITER_DOWN_SECONDS (default 3), killed, cut off, silent, taken over by another writer. At
 * the end `expand` gives every raw event back once and in order, or the counts say to the record what
 * is missing.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { setImmediate } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { addressOf, breakableWay, hostAndPort, startSilentWay } from "../support/broken-network.ts";
import { blocksOf, sectionOf } from "../support/readme.ts";
import { eventsOfRun, messagesOfRun, observedWriter, payloadsOf } from "../support/writing.ts";
import { pace } from "../support/eventually.ts";
import { useService } from "../support/use-service.ts";

const DOWN_MS = Number(process.env["WRITER_DOWN_SECONDS"] ?? "3") * 1_000;

const { service } = useService({});
const events = (sessionId: string) =>
  payloadsOf(service.grpcAddress, { sessionId, stream: "events" });
const messages = (sessionId: string) =>
  payloadsOf(service.grpcAddress, { sessionId, stream: "messages" });

function runsOf(count: number, words: number) {
  const runs = Array.from({ length: count }, (_, at) => at + 1);
  return {
    events: runs.flatMap((run) => eventsOfRun(run, words)),
    messages: runs.flatMap((run) => messagesOfRun(run, words)),
  };
}

/** As an agent does: a token, and then others have their turn. */
async function say(
  { writer }: Pick<ReturnType<typeof observedWriter>, "writer">,
  payloads: readonly string[],
  meanwhile?: (at: number) => void,
): Promise<void> {
  for (const [at, payload] of payloads.entries()) {
    writer.event(payload);
    meanwhile?.(at);
    await setImmediate();
  }
}

test("a service that is killed, down for a while and started again has every record once", async () => {
  const sessionId = "down";
  const { writer, problems, problem } = observedWriter({ address: service.grpcAddress, sessionId });
  const expected = runsOf(60, 40);
  const third = Math.floor(expected.events.length / 3);
  await say({ writer }, expected.events.slice(0, third));
  await service.kill("SIGKILL");
  await say({ writer }, expected.events.slice(third, 2 * third));
  await problem("unreachable");
  await pace(DOWN_MS); // Down is a time and no event: this is how long the writer has to bear it.
  await service.restart();
  await say({ writer }, expected.events.slice(2 * third));
  const closed = await writer.close({ timeoutMs: 60_000 });
  expect(closed).toMatchObject({ complete: true });
  expect(closed.stats.events).toMatchObject({ committed: expected.events.length, dropped: 0 });
  expect(await events(sessionId)).toEqual(expected.events);
  expect(await messages(sessionId)).toEqual(expected.messages);
  expect(new Set(problems.map(({ kind }) => kind))).toEqual(new Set(["unreachable"]));
});

test("a connection that is cut again and again loses and doubles nothing", async () => {
  const sessionId = "cut";
  const way = await breakableWay(hostAndPort(service.grpcAddress));
  const { writer } = observedWriter({ address: addressOf(way), sessionId });
  const expected = runsOf(40, 40);
  let cut = Promise.resolve();
  await say({ writer }, expected.events, (at) => {
    if (at % 300 === 299) cut = cut.then(() => way.cut()).then(() => way.mend());
  });
  await cut;
  expect(await writer.close({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
  expect(await events(sessionId)).toEqual(expected.events);
  expect(await messages(sessionId)).toEqual(expected.messages);
  await way.cut();
});

test.each(["derive", "manual"] as const)(
  "a connection on which nothing comes back any more is left for a new one (messages: %s)",
  async (derivation) => {
    const sessionId = `black-hole-${derivation}`;
    const way = await startSilentWay(hostAndPort(service.grpcAddress));
    const { writer, problem } = observedWriter({
      address: addressOf(way),
      sessionId,
      messages: derivation,
      progressTimeoutMs: 500,
      openTimeoutMs: 500,
      callTimeoutMs: 500,
    });
    const expected = runsOf(6, 40);
    await say({ writer }, expected.events.slice(0, 100));
    await writer.flush();
    way.silence();
    await say({ writer }, expected.events.slice(100));
    expect(await problem("unreachable")).toMatchObject({ reason: "DEADLINE_EXCEEDED" });
    // Well before a ping finds out that the old connection is dead, which takes half a minute.
    expect(await writer.close({ timeoutMs: 15_000 })).toMatchObject({ complete: true });
    expect(await events(sessionId)).toEqual(expected.events);
    expect(await messages(sessionId)).toEqual(derivation === "derive" ? expected.messages : []);
    expect(way.connections).toBeGreaterThan(1);
    await way.stop();
  },
);

test("a service that is suspended for a while is waited for", async () => {
  const sessionId = "slow";
  const { writer, problems } = observedWriter({ address: service.grpcAddress, sessionId });
  const expected = runsOf(30, 40);
  await say({ writer }, expected.events.slice(0, 50));
  process.kill(service.pid, "SIGSTOP");
  await say({ writer }, expected.events.slice(50));
  expect(await writer.flush({ timeoutMs: 1_000 })).toMatchObject({ complete: false });
  process.kill(service.pid, "SIGCONT");
  expect(await writer.close({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
  expect(await events(sessionId)).toEqual(expected.events);
  expect(problems).toEqual([]);
});

describe("a full spool", () => {
  const gapSchema = z.object({
    type: z.literal("CUSTOM"),
    name: z.literal("session_ledger.dropped"),
    value: z.object({ events: z.number(), messages: z.number(), since: z.iso.datetime() }),
  });

  test("counts every dropped record, and marks the gap in the stream", async () => {
    const sessionId = "full";
    const way = await breakableWay(hostAndPort(service.grpcAddress));
    const { writer, problems } = observedWriter({
      address: addressOf(way),
      sessionId,
      messages: "manual",
      spool: { bytesMax: 100_000 },
    });
    const all: string[] = [];
    const said: string[] = [];
    for (let round = 0; round < 4; round += 1) {
      await way.cut();
      const payloads = eventsOfRun(round, 1_000);
      await say({ writer }, payloads);
      all.push(...payloads);
      for (let at = 0; at < 200; at += 1) {
        const payload = `${round}.${at} `.padEnd(500, "m");
        writer.message({ type: "assistant", payload });
        said.push(payload);
      }
      await way.mend();
      expect(await writer.flush({ timeoutMs: 60_000 })).toMatchObject({ complete: true });
    }
    const { stats } = await writer.close();
    const stored = await events(sessionId);
    const gaps = stored.flatMap((payload) => gapSchema.safeParse(JSON.parse(payload)).data ?? []);
    const kept = stored.filter((payload) => !payload.includes("session_ledger.dropped"));
    const conversation = await messages(sessionId);

    expect(stats.events.dropped).toBeGreaterThan(100);
    expect(stats.messages.dropped).toBeGreaterThan(100);
    expect(stats.events.committed).toBe(kept.length);
    expect(stats.events.committed + stats.events.dropped).toBe(all.length);
    expect(stats.messages.committed).toBe(conversation.length);
    expect(stats.messages.committed + stats.messages.dropped).toBe(said.length);
    expect(gaps).toHaveLength(4);
    const sum = (of: "events" | "messages") =>
      gaps.reduce((total, { value }) => total + value[of], 0);
    expect([sum("events"), sum("messages")]).toEqual([
      stats.events.dropped,
      stats.messages.dropped,
    ]);
    // What is there is in order, once; the messages had room although the events had none.
    expect(kept).toEqual(all.filter((payload) => new Set(kept).has(payload)));
    expect(conversation).toEqual(said.filter((payload) => new Set(conversation).has(payload)));
    const told = problems.filter(({ kind }) => kind === "dropping" || kind === "dropped");
    expect(told.map(({ kind }) => kind)).toEqual(
      Array.from({ length: 4 }, () => ["dropping", "dropped"]).flat(),
    );
  });

  test("loses nothing within its limit", async () => {
    const sessionId = "within";
    const way = await breakableWay(hostAndPort(service.grpcAddress));
    await way.cut();
    const expected = runsOf(4, 500);
    const bytesMax = expected.events.reduce((sum, payload) => sum + payload.length + 128, 0) * 2;
    const { writer } = observedWriter({
      address: addressOf(way),
      sessionId,
      spool: { bytesMax },
    });
    for (const payload of expected.events) writer.event(payload);
    await way.mend();
    expect((await writer.close({ timeoutMs: 60_000 })).stats.events).toMatchObject({ dropped: 0 });
    expect(await events(sessionId)).toEqual(expected.events);
    expect(await messages(sessionId)).toEqual(expected.messages);
    await way.cut();
  });
});

test("a writer whose successor has begun is fenced and reports its lost records", async () => {
  const sessionId = "fenced";
  const [first, second] = [1, 2].map(() =>
    observedWriter({ address: service.grpcAddress, sessionId }),
  );
  if (first === undefined || second === undefined) throw new Error();
  await say(first, eventsOfRun(1, 10));
  await first.writer.flush();
  await say(second, eventsOfRun(2, 10));
  await second.writer.flush();
  await say(first, eventsOfRun(3, 10));
  const lost = await first.problem("fenced");
  await say(first, eventsOfRun(4, 10));
  const closed = await first.writer.close();
  await say(second, eventsOfRun(5, 10));
  await second.writer.close();
  expect(closed.stats).toMatchObject({ state: "fenced", events: { committed: 14, dropped: 28 } });
  expect(lost.reason).toBe("STALE_EPOCH");
  expect(first.problems.filter(({ kind }) => kind === "fenced")).toHaveLength(1);
  expect(await events(sessionId)).toEqual([1, 2, 5].flatMap((run) => eventsOfRun(run, 10)));
  expect(await messages(sessionId)).toEqual([1, 2, 5].flatMap((run) => messagesOfRun(run, 10)));
});

test("a normal close is no failure in the metrics of the service", async () => {
  const metricsText = async () => (await fetch(`http://${service.opsAddress}/metrics`)).text();
  // A stream of another test is counted when it has ended, a little after its writer.
  await expect.poll(metricsText).toMatch(/^session_ledger_push_streams 0$/m);
  const ended = async (code: string): Promise<number> => {
    const metrics = await metricsText();
    const line = new RegExp(
      `^session_ledger_calls_total\\{method="PushSessionEvents",code="${code}"\\} (\\d+)$`,
      "m",
    );
    return Number(line.exec(metrics)?.[1] ?? 0);
  };
  const [ok, cancelled] = await Promise.all(["OK", "CANCELLED"].map(ended));
  if (ok === undefined || cancelled === undefined) throw new Error();
  for (let at = 0; at < 30; at += 1) {
    const { writer } = observedWriter({
      address: service.grpcAddress,
      sessionId: `closed-${at}`,
      messages: "manual",
    });
    writer.event({ type: "CUSTOM", name: "n", value: at });
    expect(await writer.close()).toMatchObject({ complete: true });
  }
  await expect.poll(() => ended("OK")).toBe(ok + 30);
  expect(await ended("CANCELLED")).toBe(cancelled);
});

test("the example of docs/writing.md runs", async () => {
  const doc = readFileSync(new URL("../../docs/writing.md", import.meta.url), "utf8");
  const [example = ""] = blocksOf(sectionOf(doc, "The writer"), "ts");
  const script = example
    .replace("127.0.0.1:9000", service.grpcAddress)
    .replace('sessionId: "s1"', 'sessionId: "example"');
  const args = ["--input-type=module-typescript", "-e", script];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [printed] = await Promise.all([
    text(child.stdout),
    new Promise((resolve) => child.once("exit", resolve)),
  ]);
  expect(printed).toContain("complete: true");
  expect((await events("example")).map((payload) => JSON.parse(payload).delta ?? "").join("")).toBe(
    "Hello world",
  );
  expect(await messages("example")).toEqual([
    "Say hello",
    '{"event":"run_started"}',
    "Hello world",
    '{"event":"run_finished"}',
  ]);
});

test("a process ends by itself with a closed writer, and with one that was never closed", async () => {
  const address = service.grpcAddress;
  const script = (end: string): string => `
    import { createSessionWriter } from "@session-ledger/runner";
    const writer = createSessionWriter({ address: "${address}", sessionId: "ends", idleTimeoutMs: 100 });
    writer.event({ type: "CUSTOM", name: "n", value: 1 });
    ${end}`;
  for (const end of ["await writer.close();", "await writer.flush();", ""]) {
    const child = spawn(process.execPath, ["--input-type=module", "-e", script(end)], {
      stdio: ["ignore", "inherit", "inherit"],
    });
    const code = await new Promise((resolve) => child.once("exit", resolve));
    expect(code).toBe(0);
  }
  expect(await events("ends")).toHaveLength(3);
});
