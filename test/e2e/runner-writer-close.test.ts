/** The end of a session writer, against a server that a test has in its hand. */
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
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

const RUN = eventsOfRun(1, 10);

test("a close with unsent records cuts its stream and reports them", async () => {
  const stub = await started({ acknowledges: () => false });
  const spool = { file: join(await makeDirectory(), "spool") };
  for (const [options, kept] of [
    [{}, false],
    [{ spool }, true],
  ] as const) {
    const { writer, problem, problems } = observedWriter({
      address: stub.address,
      sessionId: "s1",
      messages: "manual",
      ...options,
    });
    for (const payload of RUN) writer.event(payload);
    writer.message({ type: "user", payload: "hi" });
    expect(await writer.close({ timeoutMs: 20 })).toMatchObject({ complete: false, kept });
    const left = { kind: "left_behind", events: 14, kept };
    expect(await problem("left_behind")).toMatchObject(left);
    expect(problems).toEqual([expect.objectContaining(left)]);
  }
});

test("a closed writer that is used again reports it once and counts the records", async () => {
  const stub = await started();
  const { writer, problems } = observedWriter({ address: stub.address, sessionId: "s1" });
  writer.event(RUN[0] ?? "");
  await writer.close();
  for (const payload of RUN) writer.event(payload);
  writer.message({ type: "user", payload: "late" });
  const { stats } = await writer.close();
  expect(stats.events).toMatchObject({ committed: 1, dropped: 0 });
  expect(writer.stats.events).toMatchObject({ committed: 1, dropped: RUN.length });
  expect(writer.stats.messages).toMatchObject({ dropped: 1 });
  await Promise.resolve();
  expect(problems).toEqual([{ kind: "closed" }]);
});

describe("a timeout", () => {
  test.each([Number.POSITIVE_INFINITY, 2 ** 31, 2 ** 53, Number.NaN])(
    "of %s is a very long one, and nothing is lost",
    async (timeoutMs) => {
      const stub = await started();
      const { writer } = observedWriter({ address: stub.address, sessionId: "s1" });
      for (const payload of RUN) writer.event(payload);
      expect(await writer.flush({ timeoutMs })).toMatchObject({ complete: true });
      for (const payload of RUN) writer.event(payload);
      expect(await writer.close({ timeoutMs })).toMatchObject({ complete: true });
      expect(stub.events).toHaveLength(2 * RUN.length);
    },
  );

  test.each([-1, Number.NEGATIVE_INFINITY, 0])("of %s is no wait", async (timeoutMs) => {
    const stub = await started({ acknowledges: () => false });
    const { writer } = observedWriter({ address: stub.address, sessionId: "s1" });
    writer.event(RUN[0] ?? "");
    expect(await writer.flush({ timeoutMs })).toMatchObject({ complete: false });
    expect(await writer.close({ timeoutMs })).toMatchObject({ complete: false, events: 1 });
  });

  test("that is invalid is replaced by the default", async () => {
    const stub = await started();
    const { writer } = observedWriter({ address: stub.address, sessionId: "s1" });
    writer.event(RUN[0] ?? "");
    for (const options of [null, 5, { timeoutMs: "1" }]) {
      expect(await calling(writer, "flush", options)).toMatchObject({ complete: true });
    }
    expect(await calling(writer, "close", null)).toMatchObject({ complete: true });
  });
});
