/**
 * How much may be pushed a second, and how much a session may hold, at the border and from outside; the
 * other limits have their tests where docs/limits.md says.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { MESSAGE_BYTES } from "../../src/ingest/rate-limits.ts";
import { withSql } from "../support/embedded-fixture.ts";
import { RpcFailure } from "../support/grpc-client.ts";
import { eventsOf, PushStreamClient, whole } from "../support/push-stream.ts";
import { failureOf, newSession, push, rowsOf, STREAMS } from "../support/pushing.ts";
import { claim, finish, say, textsOf } from "../support/turns.ts";
import { type UsedService, useService } from "../support/use-service.ts";
import { observedWriter } from "../support/writing.ts";
import { eventually } from "../support/eventually.ts";

const { forkSession, getSession, pushSessionMessage, searchTexts } = SessionService.method;

/** Messages of 128 bytes at most; a message counts as 3,072 bytes more. */
const MESSAGES_PER_SECOND = 10;
const BYTES_PER_SECOND = 32_000;
/** Of profile limited, and of bytes more than one push of a test has. */
const ROWS_MAX = 10;
const BYTES_MAX = 8_192;

const { service, client } = useService({
  env: {
    SESSION_BYTES_PER_SECOND: String(BYTES_PER_SECOND),
    // Three for reads, and of them one for long ones.
    DATABASE_CONNECTIONS: "6",
    STATEMENT_TIMEOUT_MS: "60000",
  },
});
/** Without limits of a rate. */
const { service: full, client: fullClient } = useService("limited");

async function metric(of: UsedService, name: string): Promise<number> {
  const text = await (await fetch(`http://${of.opsAddress}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(`session_ledger_${name} `));
  return Number(line?.split(" ").at(-1) ?? 0);
}

const messagesUrl = (of: UsedService, sessionId: string): string =>
  `http://${of.httpAddress}/api/ambient/v1/sessions/${sessionId}/messages`;

function post(of: UsedService, sessionId: string, payload = "hi"): Promise<Response> {
  return fetch(messagesUrl(of, sessionId), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ event_type: "user", payload }),
  });
}

test("one message above PENDING_MAX is refused with a retry time, until a claim makes room", async () => {
  const sessionId = newSession();
  for (const text of ["1", "2", "3", "4"]) await say(fullClient, sessionId, text); // Not claimed yet.
  await claim(fullClient, { sessionId, runId: "r1", messagesMax: 1 });
  const failure = await failureOf(say(fullClient, sessionId, "5"));
  expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "TOO_MANY_PENDING" });
  expect([failure.retryAfterMs, failure.message.includes("PENDING_MAX")]).toEqual([1_000, true]);
  await finish(fullClient, sessionId, "r1");
  expect(textsOf(await claim(fullClient, { sessionId, runId: "r2" }))).toEqual(["2", "3", "4"]);
});

test("long reads leave connections to pushes and short reads, and too many of a caller are refused", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "hi");
  const outcomes = await withSql(service.databaseUrl, (sql) =>
    sql.begin(async (locking) => {
      await locking`lock table session_texts in access exclusive mode`;
      const searches = Array.from({ length: 70 }, () => client.unary(searchTexts, { query: "x" }));
      const all = Promise.allSettled(searches);
      const refused = await Promise.all(searches.slice(65).map((one) => failureOf(one)));
      for (const failure of refused)
        expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "SERVER_BUSY" });
      await say(client, sessionId, "hi");
      expect(await client.unary(getSession, { id: sessionId })).toMatchObject({ messageSeq: 2n });
      await locking`rollback`;
      return all;
    }),
  );
  const answered = outcomes.slice(0, 65).filter(({ status }) => status === "fulfilled");
  expect(answered).toHaveLength(65);
});

test("a fork is charged to its caller like a push of its bytes", async () => {
  const sessionId = newSession();
  const payload = "x".repeat(BYTES_PER_SECOND);
  for (let n = 0; n < 3; n += 1) {
    const row = { sessionId, eventType: "user", payload };
    await eventually(() => client.unary(pushSessionMessage, row));
  }
  const fork = { sessionId, newId: newSession(), atMessageSeq: 3n };
  await client.unary(forkSession, fork);
  const next = { sessionId: fork.newId, eventType: "user", payload: "more" };
  const failure = await failureOf(client.unary(pushSessionMessage, next));
  expect(failure).toMatchObject({ reason: "RATE_LIMITED" });
  expect(failure.message).toContain("SESSION_BYTES_PER_SECOND");
});

describe("bytes a second", () => {
  test.each(STREAMS)(
    "a unary push of %s above the limit is refused with a retry time and not stored",
    async (stream) => {
      const sessionId = newSession();
      const beganMs = performance.now();
      const all = await Promise.allSettled(
        Array.from({ length: 4 * MESSAGES_PER_SECOND }, () => push(client, stream, { sessionId })),
      );
      const seconds = (performance.now() - beganMs) / 1_000;
      const stored = all.filter(({ status }) => status === "fulfilled").length;
      expect(stored).toBeGreaterThanOrEqual(MESSAGES_PER_SECOND);
      expect(stored).toBeLessThanOrEqual((BYTES_PER_SECOND / MESSAGE_BYTES) * (1 + seconds));
      for (const one of all) {
        if (one.status === "fulfilled") continue;
        const failure: unknown = one.reason;
        if (!(failure instanceof RpcFailure)) throw failure;
        expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "RATE_LIMITED" });
        expect(failure.message).toContain("SESSION_BYTES_PER_SECOND");
        expect(failure.retryAfterMs).toBeGreaterThan(0);
        expect(failure.retryAfterMs).toBeLessThanOrEqual(1_000 / MESSAGES_PER_SECOND);
      }
      expect(await rowsOf(client, stream, sessionId)).toHaveLength(stored);
      await eventually(() => push(client, stream, { sessionId }));
    },
  );

  test("a refusal over HTTP is 429 with the seconds to wait", async () => {
    const sessionId = newSession();
    const answers = await Promise.all(
      Array.from({ length: 4 * MESSAGES_PER_SECOND }, () => post(service, sessionId)),
    );
    const refused = answers.find(({ status }) => status !== 201);
    expect(refused?.status).toBe(429);
    expect(refused?.headers.get("retry-after")).toBe("1");
    expect(await refused?.json()).toMatchObject({ reason: "RATE_LIMITED" });
  });

  test("one push larger than the bytes of a second is stored, and later pushes wait", async () => {
    const sessionId = newSession();
    await push(client, "messages", { sessionId, payload: "x".repeat(300_000) });
    const failure = await failureOf(push(client, "messages", { sessionId, payload: "x" }));
    expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "RATE_LIMITED" });
    expect(failure.message).toContain("SESSION_BYTES_PER_SECOND");
    expect(failure.retryAfterMs).toBeGreaterThan(1_000);
  });

  test("a push stream above the limit is read slower and loses nothing", async () => {
    const sessionId = newSession();
    const before = await metric(service, "push_stream_pauses_total");
    const beganMs = performance.now();
    const { stream } = await PushStreamClient.open(client, { sessionId });
    const frames = 2 * MESSAGES_PER_SECOND;
    for (let n = 1; n <= frames; n += 1) stream.batch(n, [whole(n)]);
    await stream.committed(frames);
    // Half a bucket at once, and the last frame is not waited for.
    const bytesMin = (frames - 1) * MESSAGE_BYTES - BYTES_PER_SECOND / 2;
    expect(performance.now() - beganMs).toBeGreaterThan((1_000 * bytesMin) / BYTES_PER_SECOND);
    stream.end();
    await stream.rest();
    const events = await eventsOf(client, sessionId);
    expect(events.map(({ seq }) => seq)).toEqual(
      Array.from({ length: frames }, (_, n) => BigInt(n + 1)),
    );
    expect(await metric(service, "push_stream_pauses_total")).toBeGreaterThan(before);
    // It leaves room for the messages of its session meanwhile.
    const again = await PushStreamClient.open(client, { sessionId });
    for (let n = 1; n <= frames; n += 1) again.stream.batch(n, [whole(n)]);
    await push(client, "messages", { sessionId });
    again.stream.cancel();
  });
});

test("the writer of the SDK waits the time of the refusal and loses nothing", async () => {
  const sessionId = newSession();
  const { writer, problems } = observedWriter({
    address: service.grpcAddress,
    sessionId,
    messages: "manual",
  });
  // A second's worth each.
  const payloads = ["1", "2", "3"].map((digit) => digit.repeat(BYTES_PER_SECOND));
  for (const payload of payloads) writer.message({ type: "assistant", payload });
  const { stats, complete } = await writer.close({ timeoutMs: 60_000 });
  expect([complete, stats.messages]).toMatchObject([true, { committed: 3, refused: 0 }]);
  const told = { kind: "unreachable", stream: "messages", reason: "RATE_LIMITED" };
  expect(problems[0]).toMatchObject(told);
  const rows = await rowsOf(client, "messages", sessionId);
  expect(rows.map(({ payload }) => payload)).toEqual(payloads);
});

const FULL = { code: "FAILED_PRECONDITION", reason: "SESSION_FULL", retryAfterMs: undefined };

describe("the limit of a session", () => {
  test("the last row with room is stored, the next is refused, and a repeated one is answered", async () => {
    const sessionId = newSession();
    await push(fullClient, "messages", { sessionId, idempotencyKey: "first" });
    for (let n = 1; n < ROWS_MAX; n += 1) await push(fullClient, "events", { sessionId });
    for (const stream of STREAMS) {
      const failure = await failureOf(push(fullClient, stream, { sessionId }));
      expect(failure).toMatchObject(FULL);
      expect(failure.message).toContain(`${ROWS_MAX} rows (SESSION_ROWS_MAX)`);
    }
    const answer = await post(full, sessionId);
    expect(answer.status).toBe(409);
    expect(await answer.json()).toMatchObject({ reason: "SESSION_FULL" });
    expect(await rowsOf(fullClient, "messages", sessionId)).toHaveLength(1);
    expect(await rowsOf(fullClient, "events", sessionId)).toHaveLength(ROWS_MAX - 1);
    const repeated = await push(fullClient, "messages", { sessionId, idempotencyKey: "first" });
    expect(repeated.deduplicated).toBe(true);
    await push(fullClient, "messages", { sessionId: newSession() });
  });

  test("payloads are stored up to the last byte", async () => {
    const sessionId = newSession();
    const payload = "x".repeat(BYTES_MAX - 10);
    await push(fullClient, "messages", { sessionId, payload });
    const failure = await failureOf(
      push(fullClient, "messages", { sessionId, payload: "x".repeat(11) }),
    );
    expect(failure).toMatchObject(FULL);
    expect(failure.message).toContain("SESSION_BYTES_MAX");
    await push(fullClient, "messages", { sessionId, payload: "x".repeat(10) });
    expect(await rowsOf(fullClient, "messages", sessionId)).toHaveLength(2);
    expect(await metric(full, 'limit_used_ratio{limit="session_bytes"}')).toBeGreaterThan(0.9);
    expect(await metric(full, 'refused_total{reason="SESSION_FULL"}')).toBeGreaterThan(0);
  });

  test("a push stream at the limit has its committed events acknowledged, and ends", async () => {
    const sessionId = newSession();
    const { stream } = await PushStreamClient.open(fullClient, { sessionId });
    for (let n = 1; n <= ROWS_MAX; n += 1) stream.batch(n, [whole(n)]);
    await stream.committed(ROWS_MAX);
    stream.batch(ROWS_MAX + 1, [whole("more")]);
    expect(await stream.failure()).toMatchObject(FULL);
    expect(await eventsOf(fullClient, sessionId)).toHaveLength(ROWS_MAX);
    const { stream: next, opened } = await PushStreamClient.open(fullClient, {
      sessionId,
      producerEpoch: 1n,
    });
    expect(opened.lastClientSeq).toBe(BigInt(ROWS_MAX));
    next.cancel();
  });
});
