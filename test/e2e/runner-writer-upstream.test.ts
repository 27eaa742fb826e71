/**
 * A new writer and an old server, one that knows upstream's calls only; and the messages of a writer,
 * compared with those of upstream's runner in upstream's hand-written codec.
 */
import { afterEach, expect, test } from "vitest";
import type { SessionWriterOptions } from "@session-ledger/runner/internal/writer/types";
import { startStubLedger, type StubLedger, type StubOptions } from "../support/stub-ledger.ts";
import { encodePushMessage } from "../support/upstream-codec.ts";
import { eventsOfRun, messagesOfRun, observedWriter } from "../support/writing.ts";

const stubs: StubLedger[] = [];
afterEach(async () => {
  for (const stub of stubs.splice(0)) await stub.stop();
});
async function started(options: StubOptions): Promise<StubLedger> {
  const stub = await startStubLedger(options);
  stubs.push(stub);
  return stub;
}

function observed(stub: StubLedger, options: Partial<SessionWriterOptions> = {}) {
  return observedWriter({ address: stub.address, sessionId: "s1", ...options });
}

const RUN = eventsOfRun(1, 40);

test("a server without PushSessionEvents ends the writer with one error, which names it", async () => {
  const stub = await started({ streams: false });
  const { writer, problem, problems } = observed(stub);
  for (const payload of RUN) writer.event(payload);
  const ended = await problem("ended");
  expect(ended).toMatchObject({ reason: "UNIMPLEMENTED", events: 44, messages: 3 });
  expect(ended).toMatchObject({ message: expect.stringMatching(/has no PushSessionEvents/) });
  writer.message({ type: "user", payload: "late" });
  const { state, stats } = await writer.close();
  expect([state, stats.events.dropped, stats.messages.dropped]).toEqual(["refused", 44, 4]);
  expect(problems.map(({ kind }) => kind)).toEqual(["ended"]);
  expect([stub.events, stub.pushedMessages]).toEqual([[], []]);
});

test("messages begin with the fields of upstream's runners, byte for byte", async () => {
  const stub = await started({});
  const { writer } = observed(stub);
  for (const payload of RUN) writer.event(payload);
  await writer.close();
  const said = messagesOfRun(1, 40);
  expect(stub.pushedMessages).toHaveLength(said.length);
  for (const [at, bytes] of stub.pushedMessages.entries()) {
    const eventType = at === 1 ? "assistant" : "lifecycle";
    const upstream = encodePushMessage({ sessionId: "s1", eventType, payload: said[at] ?? "" });
    expect(bytes.subarray(0, upstream.length)).toEqual(upstream);
  }
});
