/**
 * The session writer against a server that the test controls: tokens expire, and the server is silent,
 * refuses, or breaks off. The stub keeps the requests.
 */
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { createSessionWriter } from "@session-ledger/runner/internal/writer/writer";
import type { SessionWriterOptions } from "@session-ledger/runner/internal/writer/types";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { startStubLedger, type StubLedger, type StubOptions } from "../support/stub-ledger.ts";
import { calling, eventsOfRun, observedWriter } from "../support/writing.ts";

const stubs: StubLedger[] = [];
afterEach(async () => {
  for (const stub of stubs.splice(0)) await stub.stop();
});
afterAll(cleanUp);

async function started(options: StubOptions = {}): Promise<StubLedger> {
  const stub = await startStubLedger(options);
  stubs.push(stub);
  return stub;
}

function observed(stub: StubLedger, options: Partial<SessionWriterOptions> = {}) {
  return observedWriter({ address: stub.address, sessionId: "s1", ...options });
}

function messagesOf(stub: StubLedger) {
  return stub.pushedMessages.map((bytes) => fromBinary(PushSessionMessageRequestSchema, bytes));
}

const RUN = eventsOfRun(1, 40);

describe("a token", () => {
  test("that is refused is fetched again, for the stream and for calls", async () => {
    const stub = await started({ token: () => "new" });
    const given: string[] = [];
    const { writer, problems } = observed(stub, {
      token: async () => {
        given.push(given.length < 2 ? "old" : "new");
        return given.at(-1) ?? "";
      },
      wait: () => Promise.resolve(),
    });
    for (const payload of RUN) writer.event(payload);
    expect((await writer.close()).stats.events).toMatchObject({ committed: 44 });
    expect(stub.pushedMessages).toHaveLength(3);
    expect(stub.tokens.slice(0, 3)).toEqual(["old", "old", "new"]);
    expect(problems).toEqual([
      expect.objectContaining({
        kind: "unreachable",
        stream: "events",
        reason: "UNAUTHENTICATED",
      }),
    ]);
  });

  test("that expires during a stream is replaced silently", async () => {
    let valid = "first";
    const stub = await started({ token: () => valid });
    const { writer, problems } = observed(stub, { token: () => valid });
    for (const payload of RUN) writer.event(payload);
    await writer.flush();
    valid = "second";
    stub.breakStreams({ code: status.UNAUTHENTICATED });
    for (const payload of eventsOfRun(2, 5)) writer.event(payload);
    expect((await writer.close()).stats.events).toMatchObject({ committed: 53 });
    expect(problems).toEqual([]);
  });

  test("that never arrives does not delay the close", async () => {
    const stub = await started();
    const { writer } = observed(stub, { token: () => new Promise(() => undefined) });
    writer.event({ type: "CUSTOM", name: "n", value: 1 });
    expect(await writer.close({ timeoutMs: 10 })).toMatchObject({ complete: false, events: 1 });
  });

  test("whose source fails is requested again", async () => {
    const stub = await started();
    let asked = 0;
    const { writer, problem } = observed(stub, {
      token: () => {
        asked += 1;
        if (asked < 3) throw new Error("no token yet");
        return "token";
      },
    });
    writer.event({ type: "CUSTOM", name: "n", value: 1 });
    expect(await problem("unreachable")).toMatchObject({
      stream: "events",
      message: "the source of tokens failed: no token yet",
    });
    expect((await writer.close()).complete).toBe(true);
  });
});

describe("a stream", () => {
  test("without acknowledgements is left, and its records are sent again", async () => {
    let acknowledges = false;
    const stub = await started({ acknowledges: () => acknowledges });
    const { writer, problem } = observed(stub, { progressTimeoutMs: 50 });
    for (const payload of RUN) writer.event(payload);
    expect(await problem("unreachable")).toMatchObject({ reason: "DEADLINE_EXCEEDED" });
    acknowledges = true;
    expect((await writer.close()).stats.events).toMatchObject({ committed: 44 });
    expect(stub.events.map(({ payload }) => payload)).toEqual(RUN);
    expect(new Set(stub.events.map(({ epoch }) => epoch))).toEqual(new Set([writer.stats.epoch]));
  });

  test("that breaks again and again loses and doubles nothing", async () => {
    const stub = await started({ refuses: (payload) => (payload.includes("7 ") ? 3 : undefined) });
    const { writer, problems } = observed(stub, { wait: () => Promise.resolve() });
    const sent: string[] = [];
    for (let run = 0; run < 30; run += 1) {
      for (const payload of eventsOfRun(run, 12)) {
        writer.event(payload);
        sent.push(payload);
      }
      if (run % 3 === 0) await writer.flush();
      stub.breakStreams({ code: status.UNAVAILABLE });
    }
    const { stats } = await writer.close();
    const refused = sent.filter((payload) => payload.includes("7 "));
    expect(stub.events.map(({ payload }) => payload)).toEqual(
      sent.filter((payload) => !refused.includes(payload)),
    );
    expect(stats.events).toEqual({
      accepted: sent.length,
      committed: sent.length - refused.length,
      refused: refused.length,
      dropped: 0,
      pending: 0,
    });
    const told = problems.flatMap((one) => (one.kind === "refused" ? [one.count] : []));
    expect(told.reduce((sum, count) => sum + count, 0)).toBe(refused.length);
    expect(stub.opened).toBeGreaterThan(10);
  });

  test("that breaks before its refusals arrive: the next one reports their number", async () => {
    let answers = false;
    const refuses = (payload: string) =>
      payload.includes("7 ") ? status.INVALID_ARGUMENT : undefined;
    const stub = await started({ refuses, answers: () => answers });
    const { writer, problems } = observed(stub, { messages: "manual" });
    for (const payload of RUN) writer.event(payload);
    await expect.poll(() => stub.events.length).toBe(40);
    stub.breakStreams({ code: status.UNAVAILABLE });
    answers = true;
    const { stats } = await writer.close();
    expect(stats.events).toMatchObject({ committed: 40, refused: 4, pending: 0 });
    expect(problems).toContainEqual(expect.objectContaining({ kind: "refused", count: 4 }));
    expect(stub.events).toHaveLength(40);
  });

  test("left by a process is asked for its position before the rest is sent", async () => {
    let answers = false;
    const stub = await started({ answers: () => answers });
    const file = join(await makeDirectory(), "spool");
    const first = observed(stub, { messages: "manual", spool: { file } });
    for (const payload of eventsOfRun(0, 3)) first.writer.event(payload);
    await expect.poll(() => stub.events.length).toBe(7);
    stub.breakStreams({ code: status.UNAVAILABLE });
    for (const payload of RUN) first.writer.event(payload);
    await expect.poll(() => stub.events.length).toBe(51);
    expect(await first.writer.close({ timeoutMs: 10 })).toMatchObject({ kept: true, events: 44 });
    answers = true;
    const second = observed(stub, { messages: "manual", spool: { file } });
    for (const payload of eventsOfRun(2, 3)) second.writer.event(payload);
    expect(await second.writer.close()).toMatchObject({ complete: true, kept: false });
    const sent = [...eventsOfRun(0, 3), ...RUN, ...eventsOfRun(2, 3)];
    expect(stub.events.map(({ payload }) => payload)).toEqual(sent);
    const [before, after, ...more] = new Set(stub.events.map(({ epoch }) => epoch));
    expect(more).toEqual([]);
    expect(after).toBeGreaterThan(before ?? after ?? 0n);
  });

  test("that is fenced ends the writer, which reports it once and counts later records", async () => {
    const stub = await started({ acknowledges: () => false });
    const { writer, problems, problem } = observed(stub, { messages: "manual" });
    for (const payload of RUN) writer.event(payload);
    await expect.poll(() => stub.opened).toBe(1);
    stub.breakStreams({ code: status.FAILED_PRECONDITION, reason: "STALE_EPOCH" });
    expect(await problem("fenced")).toMatchObject({ reason: "STALE_EPOCH", events: 44 });
    for (const payload of RUN) writer.event(payload);
    writer.message({ type: "user", payload: "late" });
    const { stats, complete } = await writer.close();
    expect(stats.state).toBe("fenced");
    expect(stats.events).toEqual({
      accepted: 44,
      committed: 0,
      refused: 0,
      dropped: 88,
      pending: 0,
    });
    expect(stats.messages).toMatchObject({ dropped: 1 });
    expect(complete).toBe(true);
    expect(problems).toHaveLength(1);
    expect(stub.opened).toBe(1);
  });

  test("of a deleted session ends the writer too", async () => {
    const stub = await started({ acknowledges: () => false });
    const { writer, problem } = observed(stub, { messages: "manual" });
    writer.event(RUN[0] ?? "");
    await expect.poll(() => stub.opened).toBe(1);
    stub.breakStreams({ code: status.NOT_FOUND, reason: "SESSION_DELETED" });
    expect(await problem("ended")).toMatchObject({ reason: "SESSION_DELETED", events: 1 });
    expect((await writer.close()).stats.state).toBe("refused");
  });

  test("that is silent is ended, and opened again under the same epoch", async () => {
    const stub = await started();
    const { writer } = observed(stub, { idleTimeoutMs: 30, messages: "manual" });
    writer.event(RUN[0] ?? "");
    await expect.poll(() => writer.stats.state).toBe("idle");
    writer.event(RUN[1] ?? "");
    await writer.close();
    expect(stub.opened).toBe(2);
    expect(stub.events.map(({ epoch, clientSeq }) => [epoch, clientSeq])).toEqual([
      [writer.stats.epoch, 1n],
      [writer.stats.epoch, 2n],
    ]);
  });

  test("of a service restored from a backup continues from the position of the backup", async () => {
    const stub = await started();
    const { writer } = observed(stub, { messages: "manual" });
    for (const payload of RUN) writer.event(payload);
    await writer.flush();
    stub.forget(4);
    stub.breakStreams({ code: status.UNAVAILABLE });
    for (const payload of eventsOfRun(2, 3)) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true, stats: { state: "closed" } });
    expect(stub.events.map(({ payload }) => payload)).toEqual([
      ...RUN.slice(0, -4),
      ...eventsOfRun(2, 3),
    ]);
  });

  test("that acknowledges unsent records is left, and nothing counts as stored", async () => {
    let isWrong = true;
    const stub = await started({ overstatesBy: () => (isWrong ? 1_000n : 0n) });
    const { writer, problem } = observed(stub, { messages: "manual" });
    writer.event(RUN[0] ?? "");
    expect(await problem("unreachable")).toMatchObject({ reason: "INTERNAL" });
    isWrong = false;
    for (const payload of RUN.slice(1)) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true });
    expect(stub.events.map(({ payload }) => payload)).toEqual(RUN);
  });

  test("is fenced when another writer used its epoch meanwhile", async () => {
    const stub = await started();
    const { writer, problem } = observed(stub, { messages: "manual", epoch: 7n });
    writer.event(RUN[0] ?? "");
    await writer.flush();
    stub.breakStreams({ code: status.UNAVAILABLE });
    const { writer: other } = observed(stub, { messages: "manual", epoch: 7n });
    for (const payload of RUN) other.event(payload);
    await other.close();
    writer.event(RUN[1] ?? "");
    expect(await problem("fenced")).toMatchObject({ reason: "STALE_EPOCH", events: 1 });
    expect((await writer.close()).stats.events).toMatchObject({ committed: 1, dropped: 1 });
  });

  test("that gets no `opened` is opened again with the same epoch", async () => {
    let opens = false;
    const stub = await started({ opens: () => opens });
    const { writer, problem } = observed(stub, { messages: "manual", openTimeoutMs: 50 });
    for (const payload of RUN) writer.event(payload);
    await problem("unreachable");
    await expect.poll(() => stub.asked.length).toBeGreaterThan(1);
    opens = true;
    expect(await writer.close()).toMatchObject({ complete: true });
    expect(new Set(stub.asked)).toEqual(new Set([writer.stats.epoch]));
    expect(stub.events.map(({ payload }) => payload)).toEqual(RUN);
  });

  test("of a chosen epoch survives its own late Open, and no other one", async () => {
    let opens = false;
    const stub = await started({ opens: () => opens, acknowledges: () => false });
    const { writer, problem } = observed(stub, {
      messages: "manual",
      epoch: 7n,
      openTimeoutMs: 500, // Long enough for the first connection: an Open that never left is not late.
      wait: () => new Promise((resolve) => setImmediate(resolve)),
    });
    writer.event(RUN[0] ?? "");
    await problem("unreachable");
    opens = true;
    await expect.poll(() => writer.stats.state).toBe("streaming");
    const replaced = { code: status.ABORTED, reason: "STREAM_REPLACED" };
    for (let late = stub.asked.length - 1; late > 0; late -= 1) {
      const before = stub.opened;
      stub.breakStreams(replaced);
      await expect.poll(() => stub.opened).toBe(before + 1);
      await expect.poll(() => writer.stats.state).toBe("streaming");
    }
    stub.breakStreams(replaced);
    expect(await problem("fenced")).toMatchObject({ reason: "STREAM_REPLACED", events: 1 });
    await writer.close();
  });

  test("of a session with a higher epoch gets the one after that", async () => {
    const stub = await started();
    const highest = 2n ** 63n - 10n;
    const first = observed(stub, { messages: "manual", epoch: highest });
    first.writer.event(RUN[0] ?? "");
    await first.writer.close();
    const { writer, problems } = observed(stub, { messages: "manual" });
    for (const payload of RUN) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true, stats: { epoch: highest + 1n } });
    expect(problems).toEqual([]);
  });

  test("of an epoch that was used before continues its numbers", async () => {
    const stub = await started();
    for (const run of [1, 2]) {
      const { writer } = observed(stub, { epoch: 7n, messages: "manual" });
      for (const payload of eventsOfRun(run, 2)) writer.event(payload);
      expect((await writer.close()).complete).toBe(true);
    }
    expect(stub.events.map(({ clientSeq }) => clientSeq)).toEqual(
      Array.from({ length: 12 }, (_, at) => BigInt(at + 1)),
    );
  });
});

describe("messages", () => {
  test("pushed by hand arrive in order, each with a key, under the epoch of the stream", async () => {
    const stub = await started();
    const { writer } = observed(stub, { messages: "manual" });
    const sentAt = new Date(1_700_000_000_123);
    writer.message({ type: "user", payload: "hi", sentAt, sender: { id: "u1" } });
    writer.message({ type: "assistant", payload: { text: "hello" }, key: "mine" });
    for (const payload of RUN) writer.event(payload);
    expect((await writer.close()).stats.messages).toMatchObject({ committed: 2 });
    const [first, second, ...more] = messagesOf(stub);
    expect(more).toEqual([]);
    expect(first).toMatchObject({
      eventType: "user",
      payload: "hi",
      producerEpoch: writer.stats.epoch,
      sentAt: { seconds: 1_700_000_000n, nanos: 123_000_000 },
      sender: { id: "u1" },
    });
    expect(first?.idempotencyKey).toMatch(/^[0-9a-f-]{36}$/);
    expect(second).toMatchObject({ payload: '{"text":"hello"}', idempotencyKey: "mine" });
  });

  test("that are refused do not delay the next, and failed ones are sent again with their key", async () => {
    let failures = 2;
    const stub = await started({
      failsPush: (bytes) => {
        if (bytes.includes("wrong")) return { code: status.INVALID_ARGUMENT };
        failures -= 1;
        return failures >= 0 ? { code: status.UNAVAILABLE } : undefined;
      },
    });
    const { writer, problem } = observed(stub, { messages: "manual" });
    for (const payload of ["one", "wrong", "two"]) writer.message({ type: "user", payload });
    expect(await problem("refused")).toMatchObject({ stream: "messages", count: 1 });
    expect((await writer.close()).stats.messages).toMatchObject({ committed: 2, refused: 1 });
    expect(messagesOf(stub).map(({ payload }) => payload)).toEqual(["one", "two"]);
  });

  test("of a person are stored before the events that were given after them", async () => {
    const before: number[] = [];
    const stub: StubLedger = await started({
      failsPush: (bytes) => {
        if (!bytes.includes("question")) return undefined;
        before.push(stub.events.length);
        return before.length < 3 ? { code: status.UNAVAILABLE } : undefined;
      },
    });
    const wait = () => Promise.resolve();
    const { writer } = observed(stub, { messages: "manual", wait });
    writer.event(RUN[0] ?? "");
    writer.message({ type: "user", payload: "question" });
    for (const payload of RUN.slice(1)) writer.event(payload);
    const { complete, stats } = await writer.close();
    expect({ complete, events: stats.events.committed }).toEqual({ complete: true, events: 44 });
    expect(before).toHaveLength(3);
    expect(Math.max(...before)).toBeLessThanOrEqual(1);
  });

  test("are one for each text, and a broken text is a failed run", async () => {
    const stub = await started();
    const { writer } = observed(stub);
    await writer.text(pieces(["Hello", "", " world"]), { runId: "r1", messageId: "m1" });
    await writer.text(pieces(["half "], new Error("the model is gone")), { runId: "r2" });
    await writer.close();
    const types = stub.events.map(({ payload }) => String(JSON.parse(payload).type));
    expect(types).toEqual([
      "RUN_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
      "RUN_FINISHED",
      "RUN_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "RUN_ERROR",
    ]);
    const told = messagesOf(stub).map(({ eventType, payload }) => [eventType, payload]);
    expect(told.filter(([type]) => type !== "lifecycle")).toEqual([
      ["assistant", "Hello world"],
      ["assistant", "half "],
      ["error", expect.stringContaining("the model is gone")],
    ]);
  });
});

async function* pieces(texts: readonly string[], error?: Error): AsyncGenerator<string> {
  yield* texts;
  if (error !== undefined) throw error;
}

test("a flush is complete when the records before it are, whatever comes later", async () => {
  const stub = await started();
  const { writer } = observed(stub);
  for (const payload of RUN) writer.event(payload);
  const flushed = writer.flush();
  let isOver = false;
  const more = (): void => {
    writer.event({ type: "CUSTOM", name: "n", value: 1 });
    if (!isOver) setImmediate(more);
  };
  more();
  const result = await flushed;
  isOver = true;
  expect(result).toMatchObject({ complete: true });
  expect(result.events).toBeGreaterThan(0);
  expect(await writer.close()).toMatchObject({ complete: true });
});

describe("any input", () => {
  test("a call never throws, and records that cannot be sent are counted", async () => {
    const stub = await started();
    const { writer, problems } = observed(stub, { messages: "manual" });
    const none: { toJSON: () => undefined } = { toJSON: () => undefined };
    for (const event of [none, "x".repeat(4_200_000)]) writer.event(event);
    writer.message({ type: "user", payload: none });
    writer.message({ type: "user", payload: "x", sentAt: new Date(Number.NaN) });
    // What an agent's own code throws need not be an Error, nor anything that can be printed.
    const unprintable: unknown = Object.create(null);
    const hostile = {
      toJSON: () => {
        throw unprintable;
      },
    };
    writer.event(hostile);
    writer.message({
      payload: "x",
      get type(): string {
        throw new Error("no type");
      },
    });
    writer.event('{"type":"RAW","event":"\ud800"}');
    const { stats } = await writer.close();
    expect(stats.events).toMatchObject({ accepted: 1, committed: 1, refused: 3 });
    expect(stats.messages).toMatchObject({ refused: 3 });
    expect(problems).toHaveLength(6);
    expect(stub.events[0]?.payload).toBe('{"type":"RAW","event":"\\ud800"}');
  });

  test("an event is copied when it is given", async () => {
    const stub = await started();
    const { writer } = observed(stub);
    const event = { type: "CUSTOM", name: "n", value: "before" };
    writer.event(event);
    event.value = "after";
    await writer.close();
    expect(stub.events[0]?.payload).toContain("before");
  });

  test("a throwing listener for problems disturbs nothing", async () => {
    const stub = await started();
    const writer = createSessionWriter({
      address: stub.address,
      sessionId: "s1",
      onProblem: () => {
        throw new Error("of the caller's own");
      },
    });
    writer.event("x".repeat(4_200_000));
    writer.event({ type: "RAW", event: 1 });
    expect((await writer.close()).stats.events).toMatchObject({ committed: 1, refused: 1 });
  });

  test("an event larger than the spool is refused, and the next ones are not", async () => {
    const stub = await started();
    const { writer, problems } = observed(stub, { spool: { bytesMax: 1 << 20 } });
    writer.event({ type: "CUSTOM", name: "n", value: "x".repeat(1_000_000) });
    for (const payload of RUN) writer.event(payload);
    const { stats } = await writer.close();
    expect(stats.events).toEqual({
      accepted: 44,
      committed: 44,
      refused: 1,
      dropped: 0,
      pending: 0,
    });
    expect(stub.events.map(({ payload }) => payload)).toEqual(RUN);
    expect(problems).toEqual([
      expect.objectContaining({ kind: "refused", stream: "events", reason: "PAYLOAD_TOO_LARGE" }),
    ]);
    // The message of it says what it can.
    expect(messagesOf(stub)[0]).toMatchObject({ eventType: "system" });
  });

  test("a message that cannot be encoded is refused and does not delay the next", async () => {
    const stub = await started();
    const { writer } = observed(stub, { messages: "manual" });
    calling(writer, "message");
    for (const wrong of [{ type: 5 }, { sender: { id: 5 } }, { sentAt: "2026-01-01" }]) {
      calling(writer, "message", { type: "user", payload: "x", ...wrong });
    }
    writer.message({ type: "user", payload: "right", key: "" });
    expect((await writer.close()).stats.messages).toMatchObject({ committed: 1, refused: 4 });
    expect(messagesOf(stub)[0]?.idempotencyKey).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("each record is counted once: committed, refused, dropped or pending", async () => {
    let answers = true;
    const stub = await started({
      answers: () => answers,
      refuses: (payload) => (payload.includes("7 ") ? status.INVALID_ARGUMENT : undefined),
    });
    const { writer } = observed(stub, { messages: "manual", spool: { bytesMax: 64 * 1024 } });
    for (const payload of RUN) writer.event(payload);
    writer.event({ type: "RAW", toJSON: () => undefined });
    await writer.flush();
    answers = false;
    const more = eventsOfRun(2, 500);
    for (const payload of more) writer.event(payload);
    const { stats } = await writer.close({ timeoutMs: 10 });
    writer.event(RUN[0] ?? "");
    const { accepted, committed, refused, dropped, pending } = writer.stats.events;
    expect({ committed, refused }).toEqual({ committed: 40, refused: 5 });
    expect(pending).toBeGreaterThan(0);
    expect(dropped).toBe(stats.events.dropped + 1);
    expect(committed + refused + dropped + pending).toBe(RUN.length + 1 + more.length + 1);
    expect(accepted).toBe(committed + 4 + pending); // One was refused before it was accepted.
  });
});
