/**
 * A new writer and an old server: one that knows upstream's calls and fields 1 to 5 only. The
 * requests are compared with those of upstream's runner, in upstream's hand-written codec.
 */
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { PushSessionEventRequestSchema } from "../../gen/ambient/v1/events_pb.ts";
import type { SessionWriterOptions } from "../../src/runner/writer/types.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import {
  type Failure,
  startStubLedger,
  type StubLedger,
  type StubOptions,
} from "../support/stub-ledger.ts";
import { encodePushEvent, encodePushMessage, unknownFields } from "../support/upstream-codec.ts";
import { eventsOfRun, messagesOfRun, observedWriter } from "../support/writing.ts";

const stubs: StubLedger[] = [];
afterEach(async () => {
  for (const stub of stubs.splice(0)) await stub.stop();
});
afterAll(cleanUp);

async function started(options: StubOptions): Promise<StubLedger> {
  const stub = await startStubLedger(options);
  stubs.push(stub);
  return stub;
}

function observed(stub: StubLedger, options: Partial<SessionWriterOptions> = {}) {
  return observedWriter({ address: stub.address, sessionId: "s1", ...options });
}

const RUN = eventsOfRun(1, 40);

describe("a server with only upstream's calls and fields", () => {
  test("receives rows that it understands, and no record is lost", async () => {
    const stub = await started({ streams: false });
    const { writer, problems } = observed(stub);
    for (const payload of RUN) writer.event(payload);
    const closed = await writer.close();
    expect(closed).toMatchObject({ complete: true, events: 0, messages: 0 });
    expect(closed.stats.events).toMatchObject({ accepted: 44, committed: 44 });
    expect(problems.map(({ kind }) => kind)).toEqual(["no_stream"]);

    // An upstream server stores fields 1 to 5. They come first and equal upstream's own encoding, byte
    // for byte; our fields follow, and it skips them.
    const [, text = ""] = messagesOfRun(1, 40);
    const merged = RUN[2]?.replace('"1.0 "', JSON.stringify(text)) ?? "";
    const expected = [RUN[0], RUN[1], merged, RUN[42], RUN[43]].map((payload = "", at) => ({
      sessionId: "s1",
      eventType: String(JSON.parse(payload).type),
      payload,
      eventCount: at === 2 ? 40 : 1,
    }));
    expect(stub.pushedEvents).toHaveLength(expected.length);
    for (const [at, bytes] of stub.pushedEvents.entries()) {
      const { completedAt } = fromBinary(PushSessionEventRequestSchema, bytes);
      expect(completedAt !== undefined).toBe(at === 2);
      const { sessionId = "", eventType = "", payload = "", eventCount = 0 } = expected[at] ?? {};
      const known = { sessionId, eventType, payload, eventCount };
      const upstream = encodePushEvent(completedAt ? { ...known, completedAt } : known);
      expect(bytes.subarray(0, upstream.length)).toEqual(upstream);
      expect(unknownFields(bytes)).toEqual(at === 2 ? [100, 102, 103] : [100, 102]);
    }
    const said = messagesOfRun(1, 40);
    expect(stub.pushedMessages).toHaveLength(said.length);
    for (const [at, bytes] of stub.pushedMessages.entries()) {
      const eventType = at === 1 ? "assistant" : "lifecycle";
      const upstream = encodePushMessage({ sessionId: "s1", eventType, payload: said[at] ?? "" });
      expect(bytes.subarray(0, upstream.length)).toEqual(upstream);
    }
  });

  test("is asked for a stream once and not again", async () => {
    const stub = await started({ streams: false });
    const { writer } = observed(stub);
    for (const run of [1, 2, 3]) {
      for (const payload of eventsOfRun(run, 3)) writer.event(payload);
      await writer.flush();
    }
    await writer.close();
    expect(stub.pushedEvents).toHaveLength(15);
    const keys = stub.pushedEvents.map(
      (bytes) => fromBinary(PushSessionEventRequestSchema, bytes).idempotencyKey,
    );
    expect(new Set(keys).size).toBe(15);
  });

  test("that refuses a merged row receives each of its events", async () => {
    const stub = await started({
      streams: false,
      failsPush: (bytes) =>
        bytes.includes("1.5 ") ? { code: status.INVALID_ARGUMENT } : undefined,
    });
    const { writer, problem } = observed(stub, { messages: "manual" });
    for (const payload of eventsOfRun(1, 10)) writer.event(payload);
    expect(await problem("refused")).toMatchObject({ stream: "events", count: 1 });
    const { stats } = await writer.close();
    expect(stats.events).toMatchObject({ committed: 13, refused: 1, pending: 0 });
    expect(stub.pushedEvents).toHaveLength(13);
  });

  test("receives a row with a lost answer again unchanged, also from the next process", async () => {
    let isLost = true;
    const failsPush = (): Failure | undefined =>
      isLost ? { code: status.UNAVAILABLE, isStored: true } : undefined;
    const stub = await started({ streams: false, failsPush });
    const file = join(await makeDirectory(), "spool");
    const options = { messages: "manual", transport: "unary", spool: { file } } as const;
    const first = observed(stub, options);
    for (const payload of RUN.slice(2, 12)) first.writer.event(payload);
    await expect.poll(() => stub.pushedEvents.length).toBeGreaterThan(0);
    for (const payload of RUN.slice(12)) first.writer.event(payload);
    expect(await first.writer.close({ timeoutMs: 10 })).toMatchObject({ kept: true, events: 42 });
    isLost = false;
    const second = observed(stub, options);
    expect(await second.writer.close()).toMatchObject({ complete: true });
    const rows = stub.pushedEvents.map((bytes) => bytes.toString("latin1"));
    const counts = [...new Set(rows)].map(
      (row) => fromBinary(PushSessionEventRequestSchema, Buffer.from(row, "latin1")).eventCount,
    );
    expect(rows.length).toBeGreaterThan(counts.length);
    expect(counts).toEqual([10, 30, 1, 1]);
  });

  test("is an error for a caller that requires a stream", async () => {
    const stub = await started({ streams: false });
    const { writer, problem } = observed(stub, { transport: "stream" });
    writer.event({ type: "CUSTOM", name: "n", value: 1 });
    expect(await problem("ended")).toMatchObject({ reason: "UNIMPLEMENTED", events: 1 });
    await writer.close();
  });
});
