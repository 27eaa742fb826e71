/** A derived message is stored after the events that it stands for, also after a restart. */
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, expect, test } from "vitest";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { startStubLedger, type StubLedger, type StubOptions } from "../support/stub-ledger.ts";
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

const RUN = eventsOfRun(1, 40);

// Bug: a derived message was pushed beside its events, so it could be stored before them.
test("a derived message is not pushed before its events are acknowledged by a stream", async () => {
  let acknowledges = false;
  const before: number[] = [];
  const stub: StubLedger = await started({
    acknowledges: () => acknowledges,
    failsPush: () => void before.push(stub.events.length),
  });
  const { writer, problem } = observedWriter({
    address: stub.address,
    sessionId: "s1",
    progressTimeoutMs: 200,
  });
  for (const payload of RUN) writer.event(payload);
  await problem("unreachable");
  acknowledges = true;
  expect(await writer.close()).toMatchObject({ complete: true });
  expect(before).toHaveLength(3);
  expect(before[0]).toBeGreaterThanOrEqual(1); // RUN_STARTED
  expect(before[1]).toBeGreaterThanOrEqual(RUN.length - 1);
  expect(before[2]).toBe(RUN.length);
});

test("a message whose events a process had not seen acknowledged is sent once by the next", async () => {
  let answers = false;
  const stub = await started({ answers: () => answers });
  const options = { address: stub.address, sessionId: "s1" };
  const file = join(await makeDirectory(), "spool");
  const first = observedWriter({ ...options, spool: { file } });
  for (const payload of RUN) first.writer.event(payload);
  await expect.poll(() => stub.events.length).toBe(RUN.length);
  expect(await first.writer.close({ timeoutMs: 10 })).toMatchObject({ kept: true, messages: 3 });
  expect(stub.pushedMessages).toEqual([]);
  answers = true;
  const next = observedWriter({ ...options, spool: { file } });
  expect(await next.writer.close()).toMatchObject({ complete: true, kept: false });
  expect(stub.events).toHaveLength(RUN.length);
  const told = stub.pushedMessages.map((bytes) =>
    fromBinary(PushSessionMessageRequestSchema, bytes),
  );
  expect(told.map(({ payload }) => payload)).toEqual(messagesOfRun(1, 40));
});

test("a person's message behind a derived one does not wait until the open row is old", async () => {
  const stub = await started({ commitsOnFlush: true });
  const { writer } = observedWriter({
    address: stub.address,
    sessionId: "s1",
    progressTimeoutMs: 600_000, // A stream that is opened again learns what was committed.
  });
  const chunk = (messageId: string) => ({ type: "TEXT_MESSAGE_CHUNK", messageId, delta: "word" });
  writer.event(chunk("m1"));
  writer.event(chunk("m2")); // Completes the first message, and stays in an open row.
  writer.message({ type: "user", payload: "question" });
  await expect.poll(() => stub.pushedMessages.length).toBe(2);
  await writer.close();
});
