/** The signal of a run: a writer hears of a cancel while its agent thinks, also after breaks. */
import { expect, test } from "vitest";
import { RunCancelled } from "@session-ledger/runner";
import { newSession, rowsOf } from "../support/pushing.ts";
import { cancel, claim, say } from "../support/turns.ts";
import { observedWriter } from "../support/writing.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService({});
async function running() {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  const { producerEpoch: epoch } = await claim(client, { sessionId, runId: "r1" });
  const { writer } = observedWriter({
    address: service.grpcAddress,
    sessionId,
    epoch,
    idleTimeoutMs: 1,
    lifecycleMessages: false,
  });
  return { sessionId, writer };
}

function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener("abort", () => resolve(signal.reason), { once: true });
  });
}

async function streaming(writer: { readonly stats: { readonly state: string } }): Promise<void> {
  await expect.poll(() => writer.stats.state).toBe("streaming");
}

test("a cancel aborts the signal of an agent that has said nothing yet", async () => {
  const { sessionId, writer } = await running();
  const signal = writer.runSignal("r1");
  expect(writer.runSignal("r1")).toBe(signal);
  await streaming(writer);
  await cancel(client, { sessionId, runId: "r1", reason: "enough" });
  const reason = await aborted(signal);
  expect(reason).toBeInstanceOf(RunCancelled);
  expect(reason).toMatchObject({ name: "AbortError", runId: "r1", reason: "enough" });
  expect(String(reason)).toContain("run r1 was cancelled: enough");
  const outcome = { type: "cancelled" };
  writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId: "r1", outcome });
  await writer.close();
  const types = (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
  expect(types).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
});

test("a cancel is heard by a signal that is asked for later", async () => {
  const { sessionId, writer } = await running();
  await cancel(client, { sessionId, runId: "r1" });
  const first = writer.runSignal("r1");
  await aborted(first);
  // Asked for again after the end of the wait, for the same run.
  writer.runSignal("r2");
  expect(writer.runSignal("r1").aborted).toBe(true);
  await writer.close();
});

test("the stream ends with the run, and the signal stays as it is", async () => {
  const { sessionId, writer } = await running();
  const signal = writer.runSignal("r1");
  await streaming(writer);
  writer.event({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: '"RUN_FINISHED"' });
  await writer.flush();
  expect(writer.stats.state).toBe("streaming");
  writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId: "r1" });
  await expect.poll(() => writer.stats.state).toBe("idle");
  expect(signal.aborted).toBe(false);
  await writer.close();
});

test("a writer that another one has fenced aborts the signal with the reason", async () => {
  const { sessionId, writer } = await running();
  const signal = writer.runSignal("r1");
  await streaming(writer);
  const taken = await claim(client, { sessionId, runId: "r2", producerEpoch: 9n, redeliver: true });
  expect(taken.lostRunId).toBe("r1");
  writer.event({ type: "CUSTOM", name: "late", value: 1 });
  expect(await aborted(signal)).toMatchObject({ reason: "STALE_EPOCH" });
  expect(writer.runSignal("r1").aborted).toBe(true);
  await writer.close();
});

test("a cancel during a break is heard after it", async () => {
  const { sessionId, writer } = await running();
  const signal = writer.runSignal("r1");
  await streaming(writer);
  await service.kill("SIGKILL");
  await service.restart();
  await cancel(client, { sessionId, runId: "r1" });
  expect(await aborted(signal)).toMatchObject({ runId: "r1" });
  await writer.close();
});
