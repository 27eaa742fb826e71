/** Claims of turns through gRPC, on one service. Two replicas are in turns-replicas.test.ts. */
import { describe, expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { failureOf, newSession, push, rowsOf } from "../support/pushing.ts";
import { endService, startService } from "../support/service-process.ts";
import { claim, emit, finish, say, standing, textsOf } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();
const seconds = (count: number) => ({ seconds: BigInt(count), nanos: 0 });

async function waiting(...texts: readonly string[]): Promise<string> {
  const sessionId = newSession();
  for (const text of texts) await say(client, sessionId, text);
  return sessionId;
}

describe("a claim", () => {
  test("takes the waiting user messages in order, and stores the start of the run", async () => {
    const sessionId = await waiting("one");
    await push(client, "messages", { sessionId, eventType: "assistant", payload: "no" });
    await say(client, sessionId, "two");
    await say(client, sessionId, "three");
    const turn = await claim(client, { sessionId, runId: "r1", messagesMax: 2 });
    expect(textsOf(turn)).toEqual(["one", "two"]);
    expect([turn.waiting, turn.producerEpoch, turn.lostRunId]).toEqual([1n, 1n, ""]);
    const [row] = await rowsOf(client, "events", sessionId);
    expect(row).toEqual(turn.runStarted);
    expect(JSON.parse(row?.payload ?? "")).toEqual({
      type: "RUN_STARTED",
      threadId: sessionId,
      runId: "r1",
      metadata: { session: { consumed: { first: 1, last: 3 }, producerEpoch: "1" } },
    });
    expect(await standing(client, sessionId)).toEqual([3n, 1n, "r1"]);
    await finish(client, sessionId, "r1");
    const next = await claim(client, { sessionId, runId: "r2", upToSeq: 4n });
    expect(textsOf(next)).toEqual(["three"]);
    expect(next.producerEpoch).toBe(2n);
    await finish(client, sessionId, "r2");
    expect(await standing(client, sessionId)).toEqual([4n, 0n, undefined]);
  });

  test("of the same run again gets the same answer, also with other fields in the request", async () => {
    const sessionId = await waiting("one", "two");
    const first = await claim(client, { sessionId, runId: "r1", messagesMax: 1 });
    await say(client, sessionId, "three");
    const again = await claim(client, {
      sessionId,
      runId: "r1",
      producerEpoch: 7n,
      wait: seconds(60),
    });
    expect(textsOf(again)).toEqual(["one"]);
    expect(again.runStarted).toEqual({ ...first.runStarted, deduplicated: true });
    expect([again.producerEpoch, again.waiting]).toEqual([1n, 2n]);
    expect(await rowsOf(client, "events", sessionId)).toHaveLength(1);
  });

  test("keeps the payload of its caller byte for byte, and adds its metadata as the last member", async () => {
    const sessionId = await waiting("one");
    const given = `{ "runId":"r1","threadId":"t","n":1.50,"metadata":{"a":[1, 2]} }`;
    const { claimTurn } = SessionService.method;
    const { runStarted } = await client.unary(claimTurn, { sessionId, runStarted: given });
    expect(runStarted?.payload).toBe(
      `{"type":"RUN_STARTED", "runId":"r1","threadId":"t","n":1.50,"metadata":{"a":[1, 2],"session":{"consumed":{"first":1,"last":1},"producerEpoch":"1"}} }`,
    );
  });

  test("is refused while a run is open, with nothing to take, or below the epoch", async () => {
    const sessionId = await waiting("one");
    await claim(client, { sessionId, runId: "r1", producerEpoch: 5n });
    await say(client, sessionId, "two");
    const open = await failureOf(claim(client, { sessionId, runId: "r2" }));
    expect([open.code, open.reason, open.retryAfterMs]).toEqual(["ABORTED", "RUN_OPEN", 1_000]);
    const same = await failureOf(claim(client, { sessionId, runId: "r2", producerEpoch: 5n }));
    expect(same.reason).toBe("RUN_OPEN");
    const stale = await failureOf(claim(client, { sessionId, runId: "r2", producerEpoch: 4n }));
    expect([stale.code, stale.reason]).toEqual(["FAILED_PRECONDITION", "STALE_EPOCH"]);
    await finish(client, sessionId, "r1");
    await claim(client, { sessionId, runId: "r2", producerEpoch: 5n });
    await finish(client, sessionId, "r2");
    const nothing = await failureOf(claim(client, { sessionId, runId: "r3" }));
    expect([nothing.code, nothing.reason]).toEqual(["FAILED_PRECONDITION", "NOTHING_WAITS"]);
    const unknown = await failureOf(claim(client, { sessionId: newSession(), runId: "r1" }));
    expect(unknown.reason).toBe("NOTHING_WAITS");
  });

  test("with a higher epoch ends the open run in the same commit, and fences its writer", async () => {
    const sessionId = await waiting("one");
    const lost = await claim(client, { sessionId, runId: "r1" });
    await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 }, lost.producerEpoch);
    await say(client, sessionId, "two");
    const turn = await claim(client, {
      sessionId,
      runId: "r2",
      producerEpoch: 9n,
      redeliver: true,
    });
    expect([textsOf(turn), turn.lostRunId, turn.producerEpoch]).toEqual([["two"], "r1", 9n]);
    const rows = await rowsOf(client, "events", sessionId);
    expect(rows.map(({ eventType }) => eventType)).toEqual([
      "RUN_STARTED",
      "CUSTOM",
      "RUN_ERROR",
      "RUN_STARTED",
    ]);
    expect(JSON.parse(rows[2]?.payload ?? "")).toMatchObject({ code: "RUNNER_LOST" });
    expect(rows.map((row) => "runId" in row && row.runId)).toEqual(["r1", "r1", "r1", "r2"]);
    const fenced = emit(
      client,
      sessionId,
      { type: "CUSTOM", name: "n", value: 2 },
      lost.producerEpoch,
    );
    expect((await failureOf(fenced)).reason).toBe("STALE_EPOCH");
    const again = await claim(client, { sessionId, runId: "r2", producerEpoch: 9n });
    expect([textsOf(again), again.lostRunId]).toEqual([["two"], "r1"]);
  });

  test("that takes over with redeliver gets the messages of a run without output again", async () => {
    const sessionId = await waiting("one", "two", "three");
    await claim(client, { sessionId, runId: "r1", messagesMax: 2 });
    await emit(client, sessionId, { type: "META", metaType: "thumbs_up", payload: {} });
    const second = { sessionId, runId: "r2", producerEpoch: 5n, redeliver: true, messagesMax: 1 };
    const turn = await claim(client, second);
    expect([textsOf(turn), turn.waiting, turn.lostRunId]).toEqual([["one"], 2n, "r1"]);
    expect(await standing(client, sessionId)).toEqual([1n, 2n, "r2"]);
    const third = { sessionId, runId: "r3", producerEpoch: 6n, redeliver: true };
    expect(textsOf(await claim(client, third))).toEqual(["one", "two", "three"]);
    expect(await standing(client, sessionId)).toEqual([3n, 0n, "r3"]);
    const without = { sessionId, runId: "r4", producerEpoch: 7n };
    const ended = await claim(client, without);
    expect([ended.runStarted, ended.lostRunId, ended.producerEpoch]).toEqual([undefined, "r3", 7n]);
    expect(await standing(client, sessionId)).toEqual([3n, 0n, undefined]);
    expect((await failureOf(claim(client, without))).reason).toBe("NOTHING_WAITS");
  });

  test("names each wrong field, and stores nothing", async () => {
    const { claimTurn } = SessionService.method;
    const sessionId = await waiting("one");
    const wrong = {
      sessionId: "a/b",
      producerEpoch: 2n ** 63n,
      upToSeq: -1n,
      messagesMax: 1_001,
      wait: { seconds: 60n, nanos: 1 },
      envelopeTokens: -1n,
    };
    const failure = await failureOf(client.unary(claimTurn, wrong));
    const fields = ["session_id", "producer_epoch", "up_to_seq", "messages_max", "run_started"];
    expect(failure.violations.map(({ field }) => field)).toEqual([
      ...fields,
      "wait",
      "envelope_tokens",
    ]);
    const ofRun = async (runStarted: string) => {
      const { violations } = await failureOf(client.unary(claimTurn, { sessionId, runStarted }));
      return violations.map(({ field, description }) => `${field}: ${description}`);
    };
    expect(await ofRun("[]")).toEqual(["run_started: run_started must be a JSON object"]);
    expect(await ofRun("{}")).toEqual([expect.stringContaining("run_started.runId: ")]);
    expect(await ofRun('{"runId":""}')).toEqual([
      "run_started.runId: run_started.runId is required",
    ]);
    expect(await ofRun(`{"runId":"${"r".repeat(129)}"}`)).toEqual([
      "run_started.runId: run_started.runId must have at most 128 bytes",
    ]);
    expect(await ofRun('{"runId":"r","type":"RUN_ERROR"}')).toHaveLength(1);
    expect(await ofRun('{"runId":"r","metadata":[]}')).toHaveLength(1);
    expect(await ofRun('{"runId":"r","metadata":{"session":1}}')).toEqual([
      "run_started.metadata.session: run_started.metadata.session must be absent: the service sets it",
    ]);
    const large = `{"runId":"r","a":"${"x".repeat(4_170_000)}"}`;
    const tooLarge = await failureOf(client.unary(claimTurn, { sessionId, runStarted: large }));
    expect(tooLarge.reason).toBe("PAYLOAD_TOO_LARGE");
    expect(await standing(client, sessionId)).toEqual([0n, 1n, undefined]);
    expect(await rowsOf(client, "events", sessionId)).toEqual([]);
  });

  test("of several at once is given to one of them", async () => {
    const sessionId = await waiting("one", "two");
    const claims = Array.from({ length: 8 }, (_, at) =>
      claim(client, { sessionId, runId: `r${at}` }),
    );
    const outcomes = await Promise.allSettled(claims);
    const won = outcomes.filter(({ status }) => status === "fulfilled");
    expect(won).toHaveLength(1);
    expect(await rowsOf(client, "events", sessionId)).toHaveLength(1);
    await say(client, sessionId, "three");
    const takeOver = { sessionId, runId: "same", producerEpoch: 9n };
    const answers = await Promise.all(Array.from({ length: 8 }, () => claim(client, takeOver)));
    expect(new Set(answers.map(({ runStarted }) => runStarted?.id)).size).toBe(1);
    expect(answers.map(textsOf)).toEqual(answers.map(() => ["three"]));
    expect(await rowsOf(client, "events", sessionId)).toHaveLength(3);
  });
});

describe("a waiting claim", () => {
  test("ends with the next message of a person, and with no other row", async () => {
    const sessionId = newSession();
    const turn = claim(client, { sessionId, runId: "r1", wait: seconds(60) });
    await push(client, "messages", { sessionId, eventType: "assistant", payload: "no" });
    await push(client, "events", { sessionId });
    await say(client, sessionId, "one");
    expect(textsOf(await turn)).toEqual(["one"]);
  });

  test("ends empty when its time is over", async () => {
    const wait = { seconds: 0n, nanos: 50_000_000 };
    const nothing = await claim(client, { sessionId: newSession(), runId: "r1", wait });
    expect([nothing.runStarted, nothing.messages, nothing.producerEpoch]).toEqual([
      undefined,
      [],
      0n,
    ]);
  });

  test("ends with the deletion of its session", async () => {
    const sessionId = newSession();
    await push(client, "events", { sessionId });
    const turn = failureOf(claim(client, { sessionId, runId: "r1", wait: seconds(60) }));
    await client.unary(SessionService.method.deleteSession, { id: sessionId });
    expect((await turn).reason).toMatch(/SESSION_(DELETED|NOT_FOUND)/);
  });
});

describe("a claim over HTTP", () => {
  const post = async (sessionId: string, body: object) => {
    const url = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/turns`;
    const headers = { "content-type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    return { response, body: JSON.parse(await response.text()) };
  };

  test("is the same claim as over gRPC", async () => {
    const sessionId = await waiting("one", "two", "three");
    const run_started = { runId: "r1", threadId: "t" };
    const asked = { run_started, messages_max: 2, producer_epoch: "7", wait: "60s" };
    const { response, body } = await post(sessionId, asked);
    expect([response.status, response.headers.get("idempotent-replayed")]).toEqual([200, null]);
    expect(body).toMatchObject({
      run_started: { event_type: "RUN_STARTED", seq: 1, run_id: "r1" },
      messages: [{ payload: "one" }, { payload: "two" }],
      waiting: 1,
      producer_epoch: "7",
    });
    expect(textsOf(await claim(client, { sessionId, runId: "r1" }))).toEqual(["one", "two"]);
    const again = await post(sessionId, { run_started });
    expect(again.response.headers.get("idempotent-replayed")).toBe("true");
    const other = await post(sessionId, { run_started: { runId: "r2" } });
    expect([other.response.status, other.body.reason]).toEqual([409, "RUN_OPEN"]);
    expect(other.response.headers.get("retry-after")).toBe("1");
    const takeOver = { run_started: { runId: "r2" }, producer_epoch: 9, redeliver: true };
    const { body: second } = await post(sessionId, takeOver);
    expect(second).toMatchObject({ lost_run_id: "r1", waiting: 0, messages: [{}, {}, {}] });
  });

  test("ends empty when its time is over, and names each wrong field", async () => {
    const { response, body } = await post(newSession(), {
      run_started: { runId: "r" },
      wait: "0.01s",
    });
    expect([response.status, body]).toEqual([
      200,
      { messages: [], waiting: 0, producer_epoch: "0" },
    ]);
    const wrong = { run_started: 1, wait: "1m", producer_epoch: -1, messages_max: 0, more: 1 };
    const refused = await post(newSession(), wrong);
    expect(refused.response.status).toBe(400);
    const fields = refused.body.violations.map(({ field }: { field: string }) => field);
    expect(fields.toSorted()).toEqual(
      ["messages_max", "more", "producer_epoch", "run_started", "wait"].toSorted(),
    );
    const late = await post(newSession(), { run_started: { runId: "r" }, wait: "61s" });
    expect([late.response.status, late.body.violations[0].field]).toEqual([400, "wait"]);
  });
});

test("the metrics count sessions that wait, and the turns", async () => {
  // A ledger of its own: the metric counts all sessions, and a scrape of a busy database repeats the one before.
  const own = await startService();
  onTestFinished(() => endService(own));
  const rpc = new RpcClient(own.grpcAddress);
  onTestFinished(() => rpc.close());
  const [sessionId, unclaimed] = [newSession(), newSession()];
  for (const text of ["one", "two"]) await say(rpc, sessionId, text);
  await say(rpc, unclaimed, "unclaimed");
  await claim(rpc, { sessionId, runId: "r1", messagesMax: 1, envelopeTokens: 40n });
  await eventually(async () => {
    const text = await (await fetch(`http://${own.opsAddress}/metrics`)).text();
    const value = (name: string) =>
      new RegExp(`^session_ledger_${name} (\\d+)`, "m").exec(text)?.[1];
    expect(value('claims_total{outcome="claimed"}')).toBe("1");
    expect(value("turn_messages_count")).toBe("1");
    expect(value("turn_wait_seconds_count")).toBe("1");
    expect(value("turn_envelope_tokens_total")).toBe("40");
    expect(value('sessions_waiting{claimed="yes"}')).toBe("1");
    expect(value('sessions_waiting{claimed="no"}')).toBe("1");
  });
});

describe("without claims", () => {
  test("each RUN_STARTED moves the watermark to the last message before it", async () => {
    const sessionId = await waiting("one", "two");
    expect(await standing(client, sessionId)).toEqual([0n, 2n, undefined]);
    await emit(client, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "u1" });
    expect(await standing(client, sessionId)).toEqual([2n, 0n, "u1"]);
    await say(client, sessionId, "three");
    await finish(client, sessionId, "u1");
    const turn = await claim(client, { sessionId, runId: "r1" });
    expect(textsOf(turn)).toEqual(["three"]);
    await say(client, sessionId, "four");
    await finish(client, sessionId, "r1");
    await emit(client, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "u2" });
    expect(await standing(client, sessionId)).toEqual([3n, 1n, "u2"]);
  });
});
