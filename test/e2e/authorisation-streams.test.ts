/**
 * Calls that last: a stream ends with its token, and stored rows name the owner of the token. And a
 * runner's push into the session of another runner is refused.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { bearer, type Caller, Doors, sessionCaller } from "../support/callers.ts";
import { eventually } from "../support/eventually.ts";
import { RpcFailure } from "../support/grpc-client.ts";
import { useService } from "../support/use-service.ts";

const {
  createSession,
  deleteSession,
  updateSession,
  getSession,
  listSessions,
  listSessionMessages,
  pushSessionEvent,
  pushSessionEvents,
  pushSessionMessage,
  watchSessionEvents,
  watchSessionMessages,
} = SessionService.method;
const API = "/api/ambient/v1";

let doors: Doors;
let root: Caller;
let editor: Caller;
let leaving: Caller;

const { service, client } = useService(async () => {
  doors = await Doors.make();
  root = doors.add("root", ["admin"]);
  editor = doors.add("editor", ["editor"], "alpha");
  leaving = doors.add("leaving", ["viewer"], "alpha");
  await doors.save();
  return { env: doors.env };
});

const as = (caller: Caller) => ({ metadata: bearer(caller) });

async function newSession(projectId = "alpha"): Promise<string> {
  const { metadata } = await client.unary(createSession, { name: "n", projectId }, as(root));
  return metadata?.id ?? "";
}

async function messagesOf(sessionId: string): Promise<readonly string[]> {
  const { items } = await client.unary(listSessionMessages, { sessionId }, as(root));
  return items.map(({ payload }) => payload);
}

async function failureOf(stream: AsyncIterable<unknown>): Promise<RpcFailure> {
  try {
    for await (const _ of stream) continue;
  } catch (error) {
    if (error instanceof RpcFailure) return error;
    throw error;
  }
  throw new Error("the stream ended without an error");
}

/** Audit records of a session, so far as its log has come here. */
function recordsOf(sessionId: string, msg: "denied" | "done"): readonly unknown[] {
  const lines = service.log.filter((line) => line.includes(sessionId) && line.includes(`"${msg}"`));
  return lines.map((line): unknown => JSON.parse(line));
}

describe("a push with a runner's token into another session", () => {
  test("a unary push gets NOT_FOUND, stores nothing and is audited", async () => {
    const [own, other] = [await newSession(), await newSession()];
    const runner = await sessionCaller(client, root, { sessionId: own, role: "runner" });
    const message = { eventType: "assistant", payload: "hi" };
    const pushed = client.unary(pushSessionMessage, { ...message, sessionId: other }, as(runner));
    await expect(pushed).rejects.toMatchObject({
      code: "NOT_FOUND",
      reason: "SESSION_NOT_FOUND",
      message: `session ${other} does not exist`,
    });
    expect(await messagesOf(other)).toEqual([]);
    await expect
      .poll(() => recordsOf(other, "denied"))
      .toMatchObject([
        {
          level: "warn",
          audit: true,
          action: "message.push.other",
          actor: `session:${own}:runner`,
          actorKind: "session",
          sessionId: other,
          reason: "scope",
        },
      ]);
    await client.unary(pushSessionMessage, { ...message, sessionId: own }, as(runner));
    expect(await messagesOf(own)).toEqual(["hi"]);
  });

  test("a push stream gets NOT_FOUND, and the open stream of that session continues", async () => {
    const [own, other] = [await newSession(), await newSession()];
    const runner = await sessionCaller(client, root, { sessionId: own, role: "runner" });
    const theirs = client.bidiStream(pushSessionEvents, as(root));
    theirs.send({ frame: { case: "open", value: { sessionId: other } } });
    expect(await theirs.next()).toMatchObject({ value: { frame: { case: "opened" } } });

    const stream = client.bidiStream(pushSessionEvents, as(runner));
    stream.send({ frame: { case: "open", value: { sessionId: other } } });
    expect(await failureOf(stream)).toMatchObject({ code: "NOT_FOUND" });
    await expect
      .poll(() => recordsOf(other, "denied"))
      .toMatchObject([{ action: "event.push", reason: "scope" }]);

    const event = { payload: '{"type":"RAW","event":1}' };
    theirs.send({ frame: { case: "batch", value: { firstClientSeq: 1n, events: [event] } } });
    expect(await theirs.next()).toMatchObject({ value: { frame: { case: "committed" } } });
    theirs.cancel();
  });
});

describe("a stream whose token expires", () => {
  async function expiring(): Promise<{ readonly sessionId: string; readonly caller: Caller }> {
    const sessionId = await newSession();
    const caller = await sessionCaller(client, root, { sessionId, role: "viewer", ttlS: 2 });
    return { sessionId, caller };
  }

  test("ends with UNAUTHENTICATED over gRPC, and a new stream with that token is refused", async () => {
    const { sessionId, caller } = await expiring();
    const request = { sessionId, stateFrames: true };
    const watch = client.serverStream(watchSessionEvents, request, as(caller));
    expect(await watch.next()).toMatchObject({ done: false });
    expect(await failureOf(watch)).toMatchObject({
      code: "UNAUTHENTICATED",
      reason: "UNAUTHENTICATED",
    });
    const again = client.serverStream(watchSessionMessages, request, as(caller));
    expect(await failureOf(again)).toMatchObject({ code: "UNAUTHENTICATED" });
  });

  test.each([
    ["messages", `${API}/sessions/{id}/messages`, undefined, "event: error\ndata: "],
    ["events", `${API}/sessions/{id}/events`, undefined, "event: error\ndata: "],
    ["an AG-UI client", "/agui/sessions/{id}?follow=true", {}, '"code":"UNAUTHENTICATED"'],
    [
      "CopilotKit's client",
      "/copilotkit/agent/default/connect",
      { forwardedProps: { follow: true } },
      '"code":"UNAUTHENTICATED"',
    ],
  ])("ends over HTTP for %s, with the reason", async (_name, path, input, last) => {
    const { sessionId, caller } = await expiring();
    const body = input === undefined ? undefined : { ...input, threadId: sessionId };
    const init = {
      method: body === undefined ? "GET" : "POST",
      headers: {
        ...bearer(caller),
        accept: "text/event-stream",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    };
    const url = `http://${service.httpAddress}${path.replace("{id}", sessionId)}`;
    const answer = await fetch(url, init);
    expect(answer.status).toBe(200);
    const text = await answer.text();
    expect(text).toContain(last);
    expect(text).toContain("UNAUTHENTICATED");
    expect((await fetch(url, init)).status).toBe(401);
  });
});

describe("the removal of a static token", () => {
  test("ends the streams of its caller and no others", async () => {
    const sessionId = await newSession();
    const request = { sessionId, stateFrames: true };
    const gone = client.serverStream(watchSessionMessages, request, as(leaving));
    const stays = client.serverStream(watchSessionMessages, request, as(editor));
    const events = await fetch(`http://${service.httpAddress}${API}/sessions/${sessionId}/events`, {
      headers: bearer(leaving),
    });
    for (const watch of [gone, stays]) expect(await watch.next()).toMatchObject({ done: false });
    doors.remove(leaving);
    await doors.save();
    expect(await failureOf(gone)).toMatchObject({ code: "UNAUTHENTICATED" });
    expect(await events.text()).toContain("UNAUTHENTICATED");
    const message = { sessionId, eventType: "user", payload: "still there" };
    await client.unary(pushSessionMessage, message, as(editor));
    for await (const row of stays) {
      if (row.payload === "still there") break;
    }
  });
});

test("a caller with all eight replays loses one when another caller asks", async () => {
  const sessionId = await newSession();
  // More than the buffers of a connection take: an unread replay does not end.
  const large = { type: "CUSTOM", name: "n", value: "v".repeat(1_000_000) };
  const run = { threadId: "t", runId: "r" };
  const began = { type: "RUN_STARTED", ...run };
  const ended = { type: "RUN_FINISHED", ...run };
  for (const event of [began, ...Array.from({ length: 20 }, () => large), ended]) {
    const payload = JSON.stringify(event);
    await client.unary(pushSessionEvent, { sessionId, eventType: event.type, payload }, as(root));
  }
  const replay = (caller: Caller): Promise<Response> =>
    fetch(`http://${service.httpAddress}/agui/sessions/${sessionId}?replay=events`, {
      method: "POST",
      headers: { ...bearer(caller), "content-type": "application/json" },
      body: "{}",
    });
  const unread: Response[] = [];
  for (let count = 0; count < 8; count += 1) unread.push(await replay(root));
  expect(unread.map(({ status }) => status)).toEqual(unread.map(() => 200));
  expect((await replay(root)).status).toBe(429);
  const read = await replay(editor);
  expect(read.status).toBe(200);
  expect(await read.text()).toContain("RUN_FINISHED");
  // The service cuts the oldest a second after its end: read before that, it would end normally.
  await eventually(async () => {
    const metrics = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
    expect(metrics).toContain('session_ledger_sse_streams{route="/agui/sessions/:id"} 7');
  });
  // A caller that stands still is cut off; one whose connection still takes bytes gets the reason.
  const lost = await unread[0]?.text().catch(String);
  expect(lost).toMatch(/^TypeError: terminated$|"code":"TOO_MANY_WATCHERS"\}\n\n$/);
  for (const { body } of unread.slice(1)) await body?.cancel();
});

describe("a write with a token", () => {
  test("a created session has the project and the name of its caller", async () => {
    for (const projectId of [undefined, "", "alpha"]) {
      const request = { name: "n", ...(projectId === undefined ? {} : { projectId }) };
      const session = await client.unary(createSession, request, as(editor));
      expect(session).toMatchObject({ projectId: "alpha", createdByUserId: "editor" });
    }
    const elsewhere = client.unary(createSession, { name: "n", projectId: "beta" }, as(editor));
    await expect(elsewhere).rejects.toMatchObject({
      code: "PERMISSION_DENIED",
      violations: [{ field: "project_id" }],
    });
  });

  test("a list of sessions holds and counts only sessions that the caller may read", async () => {
    const foreign = await newSession("beta");
    const own = await newSession();
    const viewer = await sessionCaller(client, root, { sessionId: own, role: "viewer" });
    const bound = await client.unary(listSessions, {}, as(viewer));
    expect(bound.items.map(({ metadata }) => metadata?.id)).toEqual([own]);
    expect(bound.metadata?.total).toBe(1);
    const answer = await fetch(`http://${service.httpAddress}${API}/sessions?size=1000`, {
      headers: bearer(editor),
    });
    const text = await answer.text();
    expect(text).toContain(own);
    expect(text).not.toContain(foreign);
    expect(text).not.toContain("beta");
  });

  test("a retry under another token is the same push", async () => {
    const sessionId = await newSession();
    const request = { sessionId, eventType: "user", payload: "once", idempotencyKey: "k" };
    const first = await client.unary(pushSessionMessage, request, as(editor));
    const again = await client.unary(pushSessionMessage, request, as(root));
    expect(again).toMatchObject({ id: first.id, seq: first.seq, deduplicated: true });
    expect(await messagesOf(sessionId)).toEqual(["once"]);
  });

  test("a deleted session is SESSION_DELETED to its own callers and SESSION_NOT_FOUND to others", async () => {
    const sessionId = await newSession("beta");
    const viewer = await sessionCaller(client, root, { sessionId, role: "viewer" });
    const rename = { id: sessionId, name: "new", annotations: "" };
    await client.unary(updateSession, rename, as(root));
    await client.unary(deleteSession, { id: sessionId }, as(root));
    const own = client.unary(listSessionMessages, { sessionId }, as(viewer));
    await expect(own).rejects.toMatchObject({ reason: "SESSION_DELETED" });
    for (const call of [
      () => client.unary(listSessionMessages, { sessionId }, as(editor)),
      () => client.unary(getSession, { id: sessionId }, as(editor)),
    ]) {
      await expect(call()).rejects.toMatchObject({
        reason: "SESSION_NOT_FOUND",
        message: `session ${sessionId} does not exist`,
      });
    }
    await expect
      .poll(() => recordsOf(sessionId, "done"))
      .toMatchObject([
        { audit: true, action: "token.issue", actor: "root" },
        { audit: true, action: "session.update", actor: "root", fields: "name,annotations" },
        { audit: true, action: "session.delete", actor: "root" },
      ]);
  });
});
