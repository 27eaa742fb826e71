/** The RPCs of sessions over the wire; bad-input.test.ts has what they refuse. */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RunStatus } from "@session-ledger/proto/ambient/v1/conversation_pb";
import {
  failureOf,
  newSession,
  push,
  rowsOf,
  sessionCount,
  STREAMS,
  watch,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const {
  createSession,
  deleteSession,
  getSession,
  getTranscript,
  listRuns,
  listSessionEvents,
  listSessions,
  updateSession,
  updateSessionStatus,
} = SessionService.method;

/** Its own: the tests list all sessions. */
const { client } = useService({});
const { client: strict } = useService("strict");

async function create(name = "a session", of = client): Promise<string> {
  const { metadata } = await of.unary(createSession, { name });
  return metadata?.id ?? "";
}

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const NOT_FOUND = { code: "NOT_FOUND", domain: "session-ledger" };

describe("CreateSession", () => {
  test("keeps every field byte for byte, and GetSession returns the same session", async () => {
    const parentSessionId = await create();
    const fields = {
      name: "é 😀",
      prompt: "",
      llmModel: "m",
      parentSessionId,
      labels: '{ "b":1, "a":"\\u0000"}',
      annotations: "not JSON",
      projectId: "p",
    };
    const session = await client.unary(createSession, fields);
    expect(session).toMatchObject(fields);
    expect(session.metadata?.id).toMatch(UUID_V7);
    const id = session.metadata?.id ?? "";
    expect(session.metadata).toMatchObject({
      kind: "Session",
      href: `/api/ambient/v1/sessions/${id}`,
      createdAt: session.metadata?.updatedAt,
    });
    expect(await client.unary(getSession, { id })).toEqual(session);
  });

  test("leaves absent fields unset", async () => {
    const session = await client.unary(createSession, { name: "n" });
    const { prompt, labels, phase, startTime, lastActivityAt, projectId } = session;
    const absent = { prompt, labels, phase, startTime, lastActivityAt, projectId };
    expect(Object.values(absent)).toEqual(Object.values(absent).map(() => undefined));
  });
});

describe("GetSession", () => {
  test("returns the time of the last push of a session that a push created", async () => {
    const id = newSession();
    const row = await push(client, "messages", { sessionId: id });
    const session = await client.unary(getSession, { id });
    expect(session).toMatchObject({ name: "", metadata: { id, kind: "Session" } });
    expect(session.lastActivityAt?.seconds).toBeGreaterThanOrEqual(row.createdAt?.seconds ?? 0n);
  });

  test("is NOT_FOUND for an unknown id", async () => {
    const unknown = await failureOf(client.unary(getSession, { id: "never-seen" }));
    expect(unknown).toMatchObject({ ...NOT_FOUND, reason: "SESSION_NOT_FOUND" });
  });
});

describe("ListSessions", () => {
  test("returns all sessions, newest first, page by page", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1) ids.unshift(await create(`page ${n}`));
    const total = await sessionCount(client);
    const pages = [];
    for (const page of [0, 1, 2, 3])
      pages.push(await client.unary(listSessions, { page, size: 2 }));
    const [unsaid, first, second, third] = pages.map(({ items }) =>
      items.map(({ metadata }) => metadata?.id),
    );
    expect(unsaid).toEqual(first);
    expect([first, second, third].flat().slice(0, 5)).toEqual(ids);
    expect(pages[2]?.metadata).toMatchObject({ page: 2, size: 2, total });
    const beyond = await client.unary(listSessions, { page: 10, size: 1_000 });
    expect(beyond).toMatchObject({ items: [], metadata: { page: 10, size: 0, total } });
  });

  test("returns all sessions by tokens, which have the order and the total of the first page", async () => {
    const ids = [];
    for (let n = 0; n < 3; n += 1) ids.unshift(await create(`token ${n}`));
    const walked: (string | undefined)[] = [];
    let page = await client.unary(listSessions, { size: 2 });
    const { metadata: first } = page;
    for (;;) {
      walked.push(...page.items.map(({ metadata }) => metadata?.id));
      expect(page.metadata).toMatchObject({ total: first?.total, totalIsLowerBound: false });
      if (page.nextPageToken === "") break;
      await create("made meanwhile");
      page = await client.unary(listSessions, { size: 2, pageToken: page.nextPageToken });
    }
    expect(walked.slice(0, 3)).toEqual(ids);
    expect(walked).toHaveLength(first?.total ?? 0);
    expect(new Set(walked).size).toBe(walked.length);
  });
});

describe("UpdateSession", () => {
  test("sets the given texts byte for byte, and leaves all other fields unchanged", async () => {
    const { metadata, ...made } = await client.unary(createSession, {
      name: "old",
      prompt: "p",
      labels: '{"a":"b"}',
      annotations: "old",
      projectId: "p",
    });
    const id = metadata?.id ?? "";
    const labels = '{ "b":1, "a":"\\u0000"}';
    const named = await client.unary(updateSession, { id, name: "é 😀", labels });
    const { metadata: after, ...now } = named;
    expect(now).toEqual({ ...made, name: "é 😀", labels });
    expect(after?.createdAt).toEqual(metadata?.createdAt);
    expect(after?.updatedAt).not.toEqual(metadata?.updatedAt);
    const emptied = await client.unary(updateSession, { id, annotations: "" });
    expect(emptied).toMatchObject({ name: "é 😀", labels, annotations: "" });
    expect(await client.unary(getSession, { id })).toEqual(emptied);
  });

  test("is NOT_FOUND for an unknown or deleted session and creates none", async () => {
    const id = await create();
    await client.unary(deleteSession, { id });
    for (const gone of [id, "never-made"]) {
      const call = client.unary(updateSession, { id: gone, name: "n" });
      expect(await failureOf(call)).toMatchObject(NOT_FOUND);
    }
    expect(await failureOf(client.unary(getSession, { id: "never-made" }))).toMatchObject(
      NOT_FOUND,
    );
  });
});

describe("UpdateSessionStatus", () => {
  const START = { seconds: 1_700_000_000n, nanos: 1_999 };
  const END = { seconds: 253_402_300_799n, nanos: 999_999_999 };

  test("keeps absent fields and cuts times to microseconds", async () => {
    const id = await create();
    await client.unary(updateSessionStatus, { id, phase: "Running", startTime: START });
    const session = await client.unary(updateSessionStatus, { id, completionTime: END });
    expect(session).toMatchObject({
      name: "a session",
      phase: "Running",
      startTime: { seconds: START.seconds, nanos: 1_000 },
      completionTime: { seconds: END.seconds, nanos: 999_999_000 },
    });
    expect(await client.unary(getSession, { id })).toEqual(session);
  });

  test("accepts the first moment of the year 1, and an end that equals the start", async () => {
    const id = await create();
    const moment = { seconds: -62_135_596_800n, nanos: 0 };
    const request = { id, startTime: moment, completionTime: moment };
    expect(await client.unary(updateSessionStatus, request)).toMatchObject({
      startTime: moment,
      completionTime: moment,
    });
  });

  test("is NOT_FOUND for an unknown session and creates none", async () => {
    const request = { id: "never-made", phase: "Running" };
    expect(await failureOf(client.unary(updateSessionStatus, request))).toMatchObject(NOT_FOUND);
    expect(await failureOf(client.unary(getSession, request))).toMatchObject(NOT_FOUND);
  });
});

describe("DeleteSession", () => {
  test("every later call with the id of a deleted session is NOT_FOUND", async () => {
    const id = newSession();
    for (const stream of STREAMS)
      await push(client, stream, { sessionId: id, idempotencyKey: "k" });
    const sessions = await sessionCount(client);
    await client.unary(deleteSession, { id });
    const calls = [
      () => client.unary(deleteSession, { id }),
      () => client.unary(getSession, { id }),
      () => client.unary(updateSessionStatus, { id, phase: "Failed" }),
      () => client.unary(listSessionEvents, { sessionId: id }),
      ...STREAMS.flatMap((stream) => [
        () => watch(client, stream, id).next(),
        () => push(client, stream, { sessionId: id }),
        // Deleted comes before the key: not even the kept row is answered.
        () => push(client, stream, { sessionId: id, idempotencyKey: "k" }),
        // And before the epoch.
        () => push(client, stream, { sessionId: id, producerEpoch: 0n }),
      ]),
    ];
    for (const call of calls) expect(await failureOf(call())).toMatchObject(NOT_FOUND);
    expect(await sessionCount(client)).toBe(sessions - 1);
  });

  test("an invalid push to a deleted session gets INVALID_ARGUMENT first", async () => {
    const id = await create();
    await client.unary(deleteSession, { id });
    const failure = await failureOf(push(client, "messages", { sessionId: id, eventType: "" }));
    expect(failure.code).toBe("INVALID_ARGUMENT");
  });
});

describe("with SESSION_POLICY=strict", () => {
  test.each(STREAMS)(
    "%s: a push or watch of an unknown session is NOT_FOUND and creates no session",
    async (stream) => {
      const sessionId = newSession();
      for (const call of [
        () => push(strict, stream, { sessionId }),
        () => push(strict, stream, { sessionId, idempotencyKey: "k", producerEpoch: 1n }),
        () => watch(strict, stream, sessionId).next(),
      ]) {
        const failure = await failureOf(call());
        expect(failure).toMatchObject({ ...NOT_FOUND, reason: "SESSION_NOT_FOUND" });
      }
      const made = await failureOf(strict.unary(getSession, { id: sessionId }));
      expect(made).toMatchObject({ ...NOT_FOUND, reason: "SESSION_NOT_FOUND" });
    },
  );

  test("a created session takes pushes", async () => {
    const sessionId = await create("strict", strict);
    for (const stream of STREAMS) {
      const row = await push(strict, stream, { sessionId });
      expect(row.seq).toBe(1n);
      expect(await rowsOf(strict, stream, sessionId)).toEqual([row]);
    }
  });
});

describe("GetTranscript and ListRuns", () => {
  test("return the conversation and the runs, page by page, as HTTP does", async () => {
    const sessionId = newSession();
    const send = (event: object) => {
      const eventType = String(Object(event).type);
      return push(client, "events", { sessionId, eventType, payload: JSON.stringify(event) });
    };
    for (const runId of ["r1", "r2"]) {
      await send({ type: "RUN_STARTED", threadId: sessionId, runId, parentRunId: "r0" });
      await send({ type: "STATE_SNAPSHOT", snapshot: { runId } });
      await send({ type: "TEXT_MESSAGE_START", messageId: `m-${runId}`, role: "assistant" });
      await send({ type: "TEXT_MESSAGE_END", messageId: `m-${runId}` });
      if (runId === "r1") await send({ type: "RUN_FINISHED", threadId: sessionId, runId });
    }
    const first = await client.unary(listRuns, { sessionId, pageSize: 1 });
    expect(first.runs).toMatchObject([
      { runId: "r1", parentRunId: "r0", status: RunStatus.FINISHED, firstSeq: 1n, lastSeq: 5n },
    ]);
    const next = { sessionId, pageToken: first.nextPageToken };
    const second = await client.unary(listRuns, next);
    expect(second).toMatchObject({
      runs: [{ runId: "r2", status: RunStatus.RUNNING, firstSeq: 6n, lastSeq: 9n, rows: 4n }],
      nextPageToken: "",
    });
    expect(second.runs[0]?.endedAt).toBeUndefined();
    const whole = await client.unary(getTranscript, { sessionId });
    expect(whole).toMatchObject({ sessionId, upToSeq: 9n, upToMessageSeq: 0n, interrupts: "[]" });
    expect(JSON.parse(whole.messages)).toMatchObject([{ id: "m-r1" }, { id: "m-r2" }]);
    expect(whole.state).toBe('{"runId":"r2"}');
    const past = await client.unary(getTranscript, { sessionId, upToSeq: 5n });
    expect(past).toMatchObject({ upToSeq: 5n, state: '{"runId":"r1"}' });
  });
});
