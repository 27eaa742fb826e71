/**
 * Cancels of runs across two services on one PostgreSQL, with the poll a minute away: the producer
 * hears on any service, and a run whose producer does not end it is ended once, also after kills.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { PushStreamClient } from "../support/push-stream.ts";
import { failureOf, newSession, push, rowsOf } from "../support/pushing.ts";
import { Replicas } from "../support/replicas.ts";
import { cancel, claim, emit, finish, say, standing, textsOf } from "../support/turns.ts";

let database: OpenDatabase;
let replicas: Replicas;

async function startReplicas(grace: string): Promise<void> {
  database = await openDatabase();
  replicas = await Replicas.start(database.url, { CANCEL_GRACE: grace });
}

async function stopReplicas(): Promise<void> {
  await replicas.stop();
  await database.stop();
  await cleanUp();
}

function clientOf(index: number): RpcClient {
  return new RpcClient(() => replicas.at(index).grpcAddress);
}

/** A session whose run `r1` is open, with epoch 1. */
async function running(client: RpcClient): Promise<string> {
  const sessionId = newSession();
  await say(client, sessionId, "one");
  await claim(client, { sessionId, runId: "r1" });
  return sessionId;
}

async function typesOf(client: RpcClient, sessionId: string): Promise<readonly string[]> {
  return (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
}

/** Resolves when no run is open. */
function ended(client: RpcClient, sessionId: string): Promise<void> {
  return eventually(async () => expect((await standing(client, sessionId))[2]).toBeUndefined());
}

describe("a cancel of the open run", () => {
  let one: RpcClient;
  let other: RpcClient;
  beforeAll(async () => {
    await startReplicas("1h");
    [one, other] = [clientOf(0), clientOf(1)];
  });
  afterAll(async () => {
    for (const client of [one, other]) client.close();
    await stopReplicas();
  });

  test("is a message that every reader gets, and the same one when it is repeated", async () => {
    const sessionId = await running(one);
    const asked = await cancel(one, { sessionId, runId: "r1", reason: "too slow" });
    expect(JSON.parse(asked.payload)).toEqual({
      event: "cancel_requested",
      run_id: "r1",
      reason: "too slow",
    });
    expect(asked).toMatchObject({ eventType: "lifecycle", seq: 2n, deduplicated: false });
    const again = await cancel(other, { sessionId, runId: "r1", reason: "another" });
    expect(again).toEqual({ ...asked, deduplicated: true });
    await finish(one, sessionId, "r1");
    expect(await cancel(other, { sessionId, runId: "r1" })).toEqual(again);
    expect((await rowsOf(one, "messages", sessionId)).slice(1)).toEqual([asked]);
  });

  test("is stored once, when many callers race on both services", async () => {
    const sessionId = await running(one);
    const asking = Array.from({ length: 20 }, (_, at) =>
      cancel(at % 2 === 0 ? one : other, { sessionId, runId: "r1", reason: String(at) }),
    );
    const rows = await Promise.all(asking);
    expect(new Set(rows.map(({ id }) => id)).size).toBe(1);
    expect(rows.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
    expect(await rowsOf(one, "messages", sessionId)).toHaveLength(2);
  });

  test("reaches the producer's push stream on another service", async () => {
    const sessionId = await running(one);
    const open = { sessionId, producerEpoch: 1n };
    const { stream } = await PushStreamClient.open(other, open);
    await cancel(one, { sessionId, runId: "r1", reason: "enough" });
    const value = { runId: "r1", reason: "enough", messageSeq: 2n };
    expect(await stream.next()).toMatchObject({ case: "cancel", value });
    // The producer ends its run on the same stream, and is told no second time.
    await push(one, "messages", { sessionId });
    stream.batch(1, [{ payload: '{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}' }]);
    stream.flush();
    await stream.committed(1);
    stream.end();
    expect((await stream.rest()).map((frame) => frame.case)).not.toContain("cancel");
    expect(await standing(one, sessionId)).toEqual([1n, 1n, undefined]);
  });

  test("reaches a producer that connects later, on each stream, until the run ends", async () => {
    const sessionId = await running(one);
    await cancel(one, { sessionId, runId: "r1" });
    for (const client of [other, one]) {
      const { stream } = await PushStreamClient.open(client, { sessionId, producerEpoch: 1n });
      expect(await stream.next()).toMatchObject({ case: "cancel", value: { runId: "r1" } });
    }
    await finish(one, sessionId, "r1");
    const { stream } = await PushStreamClient.open(other, { sessionId, producerEpoch: 1n });
    stream.flush();
    stream.end();
    expect((await stream.rest()).map((frame) => frame.case)).toEqual(["committed"]);
  });

  test("of a later run with the same id is another message", async () => {
    const sessionId = await running(one);
    const first = await cancel(one, { sessionId, runId: "r1" });
    await finish(one, sessionId, "r1");
    await emit(one, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r1" });
    const rows = await Promise.all(
      [one, other, one, other].map((client) => cancel(client, { sessionId, runId: "r1" })),
    );
    expect(new Set(rows.map(({ seq }) => seq))).toEqual(new Set([first.seq + 1n]));
  });

  test("is refused with the reason where no such run is open", async () => {
    const sessionId = await running(one);
    const unknown = await failureOf(cancel(one, { sessionId, runId: "r2" }));
    expect(unknown).toMatchObject({ code: "NOT_FOUND", reason: "RUN_NOT_FOUND" });
    expect(unknown.message).toContain("the open run is r1");
    await finish(one, sessionId, "r1");
    const over = await failureOf(cancel(other, { sessionId, runId: "r1" }));
    expect(over).toMatchObject({ code: "NOT_FOUND", reason: "RUN_NOT_FOUND" });
    const nowhere = await failureOf(cancel(one, { sessionId: newSession(), runId: "r1" }));
    expect(nowhere).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" });
    expect(await rowsOf(one, "messages", sessionId)).toHaveLength(1);
  });
});

describe("a cancelled run whose producer does not end it", () => {
  let one: RpcClient;
  let other: RpcClient;
  beforeAll(async () => {
    await startReplicas("1s");
    [one, other] = [clientOf(0), clientOf(1)];
  });
  afterAll(async () => {
    for (const client of [one, other]) client.close();
    await stopReplicas();
  });

  const OPEN_EVENTS = [
    { type: "STEP_STARTED", stepName: "think" },
    { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "Hel" },
    { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "look" },
    { type: "THINKING_START" },
    { type: "TEXT_MESSAGE_CHUNK", messageId: "m2", role: "assistant", delta: "Ho" },
  ];

  test("is ended with its constructs, and its producer is fenced", async () => {
    const sessionId = await running(one);
    const { stream } = await PushStreamClient.open(other, { sessionId, producerEpoch: 1n });
    const events = OPEN_EVENTS.map((event) => ({ payload: JSON.stringify(event) }));
    stream.batch(1, events);
    stream.flush();
    await stream.committed(events.length);
    await say(one, sessionId, "two");
    await cancel(one, { sessionId, runId: "r1" });
    await ended(one, sessionId);
    const rows = await rowsOf(other, "events", sessionId);
    expect(rows.slice(1 + events.length).map(({ payload }) => JSON.parse(payload))).toEqual([
      { type: "THINKING_END" },
      { type: "TOOL_CALL_END", toolCallId: "c1" },
      { type: "TEXT_MESSAGE_END", messageId: "m1" },
      { type: "STEP_FINISHED", stepName: "think" },
      { type: "RUN_FINISHED", threadId: sessionId, runId: "r1", outcome: { type: "cancelled" } },
    ]);
    stream.batch(events.length + 1, [{ payload: '{"type":"CUSTOM","name":"late","value":1}' }]);
    expect(await stream.failure()).toMatchObject({ reason: "STALE_EPOCH" });
    expect(await rowsOf(one, "events", sessionId)).toEqual(rows);
    // What waited still waits, for any later claim.
    const next = await claim(one, { sessionId, runId: "r2" });
    expect([textsOf(next), next.lostRunId]).toEqual([["two"], ""]);
    expect(next.producerEpoch).toBeGreaterThan(2n);
    const ends = await Promise.all(
      [0, 1].map((index) => replicas.metric(index, /^session_ledger_cancelled_runs_ended_total /)),
    );
    expect(ends.reduce((sum, count) => sum + count, 0)).toBe(1);
  });

  test("is not touched when the producer ends it in time", async () => {
    const [sessionId, witness] = [await running(one), await running(one)];
    await cancel(one, { sessionId, runId: "r1" });
    await finish(one, sessionId, "r1");
    await cancel(other, { sessionId: witness, runId: "r1" });
    await ended(one, witness);
    expect(await typesOf(one, sessionId)).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(
      (await claim(one, { sessionId, runId: "r2", wait: { seconds: 0n, nanos: 1 } })).producerEpoch,
    ).toBe(0n);
  });

  test("is ended although a producer without an epoch continues", async () => {
    const sessionId = newSession();
    await emit(one, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r1" });
    const over = new AbortController();
    const pushing = (async () => {
      while (!over.signal.aborted) await push(other, "events", { sessionId });
    })();
    await cancel(one, { sessionId, runId: "r1" });
    await eventually(async () => expect((await standing(one, sessionId))[2]).toBeUndefined());
    over.abort();
    await pushing;
  });

  test("has the outcome for clients that know it, and is over for others", async () => {
    const sessionId = await running(one);
    for (const event of OPEN_EVENTS.slice(0, 3)) await emit(one, sessionId, event, 1n);
    const watching = AGUI_CLIENTS.map(async ({ name, generation, ...agui }) => {
      const seen: object[] = [];
      const client = agui.open(replicas.at(1).httpAddress, sessionId);
      await client.connect({ onEvent: (_, event) => void seen.push(event) });
      return { name, generation, end: seen.at(-1), messages: client.conversation().messages };
    });
    await cancel(one, { sessionId, runId: "r1" });
    for (const { generation, end, messages } of await Promise.all(watching)) {
      const outcome = generation === "1.0.0" ? { type: "cancelled" } : undefined;
      expect({ outcome: undefined, ...end }).toMatchObject({
        type: "RUN_FINISHED",
        runId: "r1",
        outcome,
      });
      expect(messages).toMatchObject([{ content: "one" }, { id: "m1", content: "Hel" }]);
    }
  });

  test("is ended after a kill of the service that took the cancel, and of both", async () => {
    const [first, second] = [await running(one), await running(one)];
    await cancel(one, { sessionId: first, runId: "r1" });
    await replicas.at(0).kill("SIGKILL");
    await ended(other, first);
    await cancel(other, { sessionId: second, runId: "r1" });
    await replicas.at(1).kill("SIGKILL");
    await replicas.replace(1);
    await ended(other, second);
    for (const sessionId of [first, second]) {
      expect(await typesOf(other, sessionId)).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    }
    await replicas.replace(0);
  });
});
