/**
 * Every RPC and every route, called by every kind of caller, on its own session, another one of its
 * project, a foreign one, one that was never created and one with an invalid id. Each answer must be
 * the one of the table of roles; `expected` computes it from that table alone. The list of calls comes
 * from the contract and from the service, so a new method or route fails here until the table has it. Then
 * calls that last: a stream ends with its token, and stored rows name the owner of the token.
 */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type Action, METHOD_ACTIONS, ROUTE_ACTIONS, RULES } from "../../src/auth/actions.ts";
import { bearer, type Caller, Doors, everyCaller, sessionCaller } from "../support/callers.ts";
import { eventually } from "../support/eventually.ts";
import { type Call, EVERY_CALL, EveryCall } from "../support/every-call.ts";
import { RpcFailure } from "../support/grpc-client.ts";
import { useService } from "../support/use-service.ts";

type Made = "own" | "of its project" | "foreign" | "of no project";
type Place = Made | "unknown" | "impossible";

const PROJECTS: Readonly<Record<Made, string | undefined>> = {
  own: "alpha",
  "of its project": "alpha",
  foreign: "beta",
  "of no project": undefined,
};
const MADE: readonly Made[] = ["own", "of its project", "foreign", "of no project"];
const PLACES: readonly Place[] = [...MADE, "unknown", "impossible"];
/** A path may say it, and no session can have it. */
const IMPOSSIBLE = "a!b";
const documentSchema = z.object({
  paths: z.record(z.string(), z.record(z.string(), z.unknown())),
});
/** Calls at a time: more only wait for each other. */
const CALLS_AT_ONCE = 16;
const SESSIONS = "/api/ambient/v1/sessions";
/** As src/auth/authorizer.ts has it. */
const RECORDS_PER_SECOND_MAX = 20;
const { cancelRun, createSession, deleteSession, getSession, listSessions, updateSession } =
  SessionService.method;
const { listSessionMessages, watchSessionEvents, watchSessionMessages } = SessionService.method;
const { pushSessionEvent, pushSessionEvents, pushSessionMessage } = SessionService.method;

let doors: Doors;
let calls: EveryCall;
let root: Caller;
let editor: Caller;
let leaving: Caller;
let callers: readonly Caller[];
const sessions = new Map<Place, string>();

const { service, client } = useService(async () => {
  doors = await Doors.make();
  root = doors.add("root", ["admin"]);
  editor = doors.add("editor", ["editor"], "alpha");
  leaving = doors.add("leaving", ["viewer"], "alpha");
  callers = await everyCaller(doors, { project: "alpha" });
  return { env: { ...doors.env, LOG_LEVEL: "debug" } };
});

beforeAll(async () => {
  calls = new EveryCall(service);
  for (const place of MADE) sessions.set(place, await newSession(PROJECTS[place]));
  const own = sessions.get("own") ?? "";
  const roles = ["runner", "viewer", "editor"] as const;
  const bound = await Promise.all(
    roles.map((role) => sessionCaller(client, root, { sessionId: own, role })),
  );
  callers = [...callers, ...bound];
});

afterAll(() => calls[Symbol.dispose]());

const as = (caller: Caller) => ({ metadata: bearer(caller) });

/** With a run that has ended and a message, so that an allowed read has a content. */
async function newSession(projectId: string | undefined): Promise<string> {
  const project = projectId === undefined ? {} : { projectId };
  const { metadata } = await client.unary(createSession, { name: "walked", ...project }, as(root));
  const sessionId = metadata?.id ?? "";
  for (const eventType of [
    "RUN_STARTED",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_END",
    "RUN_FINISHED",
  ]) {
    const ids = { threadId: "t", runId: "r", messageId: "walked" };
    const payload = JSON.stringify({ type: eventType, ...ids });
    await client.unary(pushSessionEvent, { sessionId, eventType, payload }, as(root));
    // A repeated cancel gets the message of the first, at any time.
    await client.unary(cancelRun, { sessionId, runId: "r" }, as(root));
  }
  return sessionId;
}

function expected(call: Call, caller: Caller, place: Place): string {
  const served = call.of === "rpc" ? METHOD_ACTIONS[call.entry] : ROUTE_ACTIONS[call.entry];
  if (served === undefined) return "to be in the table";
  if (served === "public") return "OK";
  const pushed = call.messageType === "user" ? "message.push.user" : "message.push.other";
  const action: Action = served === "by message type" ? pushed : served;
  const may = (one: Action): boolean =>
    caller.roles.some((role) => RULES[one].roles.includes(role));
  const mayDo = may(action);
  // A typed message is pushed after the session was read.
  const done = call.messageType === undefined || may(pushed) ? "OK" : "PERMISSION_DENIED";
  const isOfProject = ["session.create", "session.fork", "feed.read"].includes(action);
  if (!mayDo || (isOfProject && caller.sessionId !== undefined)) return "PERMISSION_DENIED";
  if (!call.hasSession) return "OK";
  if (place === "impossible") return "INVALID_ARGUMENT";
  const seesAll = caller.projectId === undefined && caller.sessionId === undefined;
  if (place === "unknown" && seesAll) return call.unknown === "OK" ? done : call.unknown;
  if (seesAll || place === "own") return done;
  if (place === "of its project" && caller.sessionId === undefined) return done;
  if (call.entry.includes("/stop/")) return "OK"; // It says that no run was stopped.
  const isConnect = call.entry.startsWith("POST /copilotkit") && !call.entry.endsWith("/run");
  return isConnect ? "EMPTY" : "NOT_FOUND";
}

/**
 * Of callers with the same rights one, by turns with a static and a signed token: the rights of a caller
 * depend on these three alone, and a test of the roles asks as every caller.
 */
function withEachRight(all: readonly Caller[]): readonly Caller[] {
  const groups = Map.groupBy(all, ({ roles, projectId, sessionId }) =>
    JSON.stringify([roles, projectId, sessionId]),
  );
  return [...groups.values()].flatMap((group, at) => group.at(at % group.length) ?? []);
}

/** A call that deletes or creates has a session for itself. */
async function sessionOf(place: Place, call: Call, outcome: string): Promise<string> {
  if (place === "impossible") return IMPOSSIBLE;
  if (place === "unknown") return randomUUID();
  if (call.destroys && outcome === "OK") return newSession(PROJECTS[place]);
  return sessions.get(place) ?? "";
}

async function eachAtOnce<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const walk = async (): Promise<void> => {
    for (const item of rest) await act(item);
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, walk));
}

describe("the table of actions", () => {
  test("every RPC is in the table and in this test", () => {
    const names = SessionService.methods.map(({ name }) => name).toSorted();
    expect(entriesOf("rpc")).toEqual(names);
    expect(Object.keys(METHOD_ACTIONS).toSorted()).toEqual(names);
  });

  test("every route is in the table and in this test", async () => {
    const answer = await fetch(`http://${service.httpAddress}/openapi.json`, {
      headers: bearer(root),
    });
    const document: unknown = await answer.json();
    expect(document).toHaveProperty("components.securitySchemes.bearer.scheme", "bearer");
    const { paths } = documentSchema.parse(document);
    const routes = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map(
        (method) => `${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ":$1")}`,
      ),
    );
    expect(routes.length).toBeGreaterThan(10);
    // Pages for people are not in the document.
    const pages = Object.keys(ROUTE_ACTIONS).filter((name) => ROUTE_ACTIONS[name] === "public");
    const all = [...routes, ...pages].toSorted();
    expect(entriesOf("route")).toEqual(all);
    expect(Object.keys(ROUTE_ACTIONS).toSorted()).toEqual(all);
  });

  test("every caller can ask for its roles and actions", async () => {
    for (const caller of callers.filter(({ roles }) => roles.length > 0)) {
      const answer = await fetch(`http://${service.httpAddress}/api/ambient/v1/caller`, {
        headers: bearer(caller),
      });
      const { roles, projectId, sessionId } = caller;
      const isBound = sessionId !== undefined;
      const actions = Object.entries(RULES)
        .filter(([, rule]) => rule.roles.some((role) => roles.includes(role)))
        .map(([action]) => action)
        .filter(
          (action) => !isBound || !["session.create", "session.fork", "feed.read"].includes(action),
        );
      expect(await answer.json(), `of ${caller.name}`).toMatchObject({
        roles,
        actions,
        ...(projectId !== undefined && { project_id: projectId }),
        ...(isBound && { session_id: sessionId }),
      });
    }
  });

  test.each(["rpc", "route"] as const)(
    "every caller gets the documented answer of every %s on every session",
    async (of) => {
      // One call after the other and not all of a kind at once: of some, few may run at a time.
      const kinds = EVERY_CALL.filter((call) => call.of === of);
      const steps = withEachRight(callers).flatMap((caller) =>
        PLACES.flatMap((place) => kinds.map((call) => ({ call, caller, place }))),
      );
      const wrong: string[] = [];
      const outcomes = new Map<string, number>();
      await eachAtOnce(steps, async ({ call, caller, place }) => {
        const wanted = expected(call, caller, place);
        const id = await sessionOf(place, call, wanted);
        const { outcome } = await calls.ask(call, id, [`Bearer ${caller.token}`]);
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        const step = `${call.name}, ${caller.name}, ${place}`;
        if (outcome !== wanted) wrong.push(`${step}: ${outcome}, not ${wanted}`);
      });
      expect(wrong).toEqual([]);
      expect(steps.length).toBeGreaterThan(1_500);
      for (const outcome of ["OK", "PERMISSION_DENIED", "NOT_FOUND"]) {
        expect(outcomes.get(outcome), `calls that are ${outcome}`).toBeGreaterThan(20);
      }
    },
  );

  test("an answer does not reveal whether a session of another owner exists", async () => {
    const scoped = callers.filter(
      ({ projectId, sessionId }) => projectId !== undefined || sessionId !== undefined,
    );
    const kinds = EVERY_CALL.filter(({ hasSession }) => hasSession);
    const steps = scoped.flatMap((caller) => kinds.map((call) => ({ call, caller })));
    const told: string[] = [];
    await eachAtOnce(steps, async ({ call, caller }) => {
      const foreign = sessions.get("foreign") ?? "";
      const there = await calls.ask(call, foreign, [`Bearer ${caller.token}`]);
      const never = await calls.ask(call, randomUUID(), [`Bearer ${caller.token}`]);
      if (there.seen !== never.seen) {
        told.push(`${call.name}, ${caller.name}: ${there.seen} or ${never.seen}`);
      }
    });
    expect(told).toEqual([]);
    expect(steps.length).toBeGreaterThan(300);
  });
});

test("the envelope of CopilotKit stops a run only for callers that may cancel it", async () => {
  const body = JSON.stringify({ method: "agent/stop", params: { threadId: sessions.get("own") } });
  const answers: (readonly [string, number])[] = [];
  const right: (readonly [string, number])[] = [];
  for (const caller of callers) {
    const headers = { ...bearer(caller), "content-type": "application/json" };
    const answer = await fetch(`http://${service.httpAddress}/copilotkit`, {
      method: "POST",
      headers,
      body,
    });
    const mayDo = caller.roles.some((role) => RULES["run.cancel"].roles.includes(role));
    answers.push([caller.name, answer.status]);
    right.push([caller.name, mayDo ? 200 : 403]);
  }
  expect(answers).toEqual(right);
});

describe("a caller without a valid token", () => {
  test("gets UNAUTHENTICATED from every call but a page without data, whatever is wrong with the token", async () => {
    const bad = (await doors.badTokens()).map(
      ([name, token]) => [name, [`Bearer ${token}`]] as const,
    );
    const [one, other] = callers;
    const ways: readonly (readonly [string, readonly string[]])[] = [
      ...bad,
      ["none", []],
      ["another scheme", [`Basic ${root.token}`]],
      ["nothing but the scheme", ["Bearer"]],
      ["differing ones", [`Bearer ${one?.token}`, `Bearer ${other?.token}`]],
      ["a good one after a bad one", ["Bearer not-a-token-of-anybody", `Bearer ${root.token}`]],
      ["a bad one after a good one", [`Bearer ${root.token}`, "Bearer not-a-token-of-anybody"]],
    ];
    const own = sessions.get("own") ?? "";
    const steps = EVERY_CALL.flatMap((call) => ways.map((way) => ({ call, way })));
    const let_in: string[] = [];
    await eachAtOnce(steps, async ({ call, way: [name, authorization] }) => {
      const { outcome } = await calls.ask(call, own, authorization);
      const wanted = ROUTE_ACTIONS[call.entry] === "public" ? "OK" : "UNAUTHENTICATED";
      if (outcome !== wanted) let_in.push(`${call.name}, ${name}: ${outcome}`);
    });
    expect(let_in).toEqual([]);
    expect(steps.length).toBeGreaterThan(500);
  });

  test("gets 401 with WWW-Authenticate and a problem document over HTTP", async () => {
    const answer = await fetch(`http://${service.httpAddress}/api/ambient/v1/sessions`);
    expect(answer.status).toBe(401);
    expect(answer.headers.get("www-authenticate")).toBe("Bearer");
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
    expect(await answer.json()).toMatchObject({ status: 401, reason: "UNAUTHENTICATED" });
  });

  test("gets a plain 404 for a path that does not exist", async () => {
    const answer = await fetch(`http://${service.httpAddress}/api/ambient/v1/secrets`);
    expect(answer.status).toBe(404);
  });
});

describe("a token", () => {
  test("sent twice with the same value counts as one", async () => {
    const own = sessions.get("own") ?? "";
    const twice = [`Bearer ${root.token}`, `Bearer ${root.token}`];
    const reads = EVERY_CALL.filter(({ name }) => /^(?:GetSession|GET .*v1.*:id)$/.test(name));
    expect(reads).toHaveLength(2);
    for (const call of reads) {
      expect(await calls.ask(call, own, twice), `of ${call.name}`).toMatchObject({
        outcome: "OK",
      });
    }
  });

  test("is in no line of the log, valid or not", async () => {
    const bad = (await doors.badTokens()).map(([, token]) => token);
    const log = service.log.join("\n");
    expect(log).toContain('"audit":true');
    for (const token of [root.token, ...bad, ...callers.map((caller) => caller.token)]) {
      expect(log.includes(token)).toBe(false);
    }
  });
});

describe("a push with a runner's token into another session", () => {
  test("a unary push gets NOT_FOUND, stores nothing and is audited", async () => {
    const [own, other] = [await made(), await made()];
    const runner = await sessionCaller(client, root, { sessionId: own, role: "runner" });
    const message = { eventType: "assistant", payload: "hi" };
    const record = await recordOfDenied(other, async () => {
      const push = client.unary(pushSessionMessage, { ...message, sessionId: other }, as(runner));
      await expect(push).rejects.toMatchObject({
        code: "NOT_FOUND",
        reason: "SESSION_NOT_FOUND",
        message: `session ${other} does not exist`,
      });
    });
    expect(await messagesOf(other)).toEqual([]);
    expect(record).toMatchObject({
      level: "warn",
      audit: true,
      action: "message.push.other",
      actor: `session:${own}:runner`,
      actorKind: "session",
      sessionId: other,
      reason: "scope",
    });
    await client.unary(pushSessionMessage, { ...message, sessionId: own }, as(runner));
    expect(await messagesOf(own)).toEqual(["hi"]);
  });

  test("a push stream gets NOT_FOUND, and the open stream of that session continues", async () => {
    const [own, other] = [await made(), await made()];
    const runner = await sessionCaller(client, root, { sessionId: own, role: "runner" });
    const theirs = client.bidiStream(pushSessionEvents, as(root));
    theirs.send({ frame: { case: "open", value: { sessionId: other } } });
    expect(await theirs.next()).toMatchObject({ value: { frame: { case: "opened" } } });

    const record = await recordOfDenied(other, async () => {
      const stream = client.bidiStream(pushSessionEvents, as(runner));
      stream.send({ frame: { case: "open", value: { sessionId: other } } });
      expect(await failureOf(stream)).toMatchObject({ code: "NOT_FOUND" });
    });
    expect(record).toMatchObject({ action: "event.push", reason: "scope" });

    const event = { payload: '{"type":"RAW","event":1}' };
    theirs.send({ frame: { case: "batch", value: { firstClientSeq: 1n, events: [event] } } });
    expect(await theirs.next()).toMatchObject({ value: { frame: { case: "committed" } } });
    theirs.cancel();
  });
});

describe("a stream whose token expires", () => {
  async function expiring(): Promise<{ readonly sessionId: string; readonly caller: Caller }> {
    const sessionId = await made();
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
    ["messages", `${SESSIONS}/{id}/messages`, undefined, "event: error\ndata: "],
    ["events", `${SESSIONS}/{id}/events`, undefined, "event: error\ndata: "],
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
    const sessionId = await made();
    const request = { sessionId, stateFrames: true };
    const gone = client.serverStream(watchSessionMessages, request, as(leaving));
    const stays = client.serverStream(watchSessionMessages, request, as(editor));
    const events = await fetch(`http://${service.httpAddress}${SESSIONS}/${sessionId}/events`, {
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

test("a caller has half of the eight replays, and another caller finds room beside it", async () => {
  const sessionId = await made();
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
  for (let count = 0; count < 4; count += 1) unread.push(await replay(root));
  expect(unread.map(({ status }) => status)).toEqual(unread.map(() => 200));
  expect((await replay(root)).status).toBe(429);
  const read = await replay(editor);
  expect(read.status).toBe(200);
  expect(await read.text()).toContain("RUN_FINISHED");
  await eventually(async () => {
    const metrics = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
    expect(metrics).toContain('session_ledger_sse_streams{route="/agui/sessions/:id"} 4');
  });
  for (const { body } of unread) await body?.cancel();
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
    const foreign = await made("beta");
    const own = await made();
    const viewer = await sessionCaller(client, root, { sessionId: own, role: "viewer" });
    const bound = await client.unary(listSessions, {}, as(viewer));
    expect(bound.items.map(({ metadata }) => metadata?.id)).toEqual([own]);
    expect(bound.metadata?.total).toBe(1);
    const answer = await fetch(`http://${service.httpAddress}${SESSIONS}?size=1000`, {
      headers: bearer(editor),
    });
    const text = await answer.text();
    expect(text).toContain(own);
    expect(text).not.toContain(foreign);
    expect(text).not.toContain("beta");
  });

  test("a retry under another token is the same push", async () => {
    const sessionId = await made();
    const request = { sessionId, eventType: "user", payload: "once", idempotencyKey: "k" };
    const first = await client.unary(pushSessionMessage, request, as(editor));
    const again = await client.unary(pushSessionMessage, request, as(root));
    expect(again).toMatchObject({ id: first.id, seq: first.seq, deduplicated: true });
    expect(await messagesOf(sessionId)).toEqual(["once"]);
  });

  test("a deleted session is SESSION_DELETED to its own callers and SESSION_NOT_FOUND to others", async () => {
    const sessionId = await made("beta");
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

test("regression: every request with a bad token was a line in the log", async () => {
  const url = `http://${service.httpAddress}${SESSIONS}`;
  const before = service.log.length;
  const beganMs = performance.now();
  const asked = 300;
  for (let count = 0; count < asked; count += 1) {
    const answer = await fetch(url, {
      headers: { authorization: `Bearer nobody-has-this-${count}` },
    });
    expect(answer.status).toBe(401);
    await answer.arrayBuffer();
  }
  const seconds = Math.ceil((performance.now() - beganMs) / 1_000);
  // A later line, so that all before it are here.
  const later = client.unary(pushSessionEvent, { sessionId: "s", eventType: "RAW" }, as(root));
  await later.catch(() => undefined);
  await expect.poll(() => service.log.slice(before).join()).toContain('"PushSessionEvent"');
  const lines = service.log
    .slice(before)
    .filter((line) => !line.includes('"PushSessionEvent"') && !line.includes('"level":"debug"'));
  expect(lines.length).toBeGreaterThan(0);
  // The budget of each second, and one line that says how many were left out of it.
  expect(lines.length).toBeLessThanOrEqual((RECORDS_PER_SECOND_MAX + 1) * (seconds + 1));
  expect(lines.length).toBeLessThan(asked);
});

async function made(projectId = "alpha"): Promise<string> {
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

/** Asks until the call has a record: the denials of the tests before may have used those of this second. */
function recordOfDenied(sessionId: string, ask: () => Promise<void>): Promise<unknown> {
  return eventually(async () => {
    await ask();
    const [record] = recordsOf(sessionId, "denied");
    if (record === undefined) throw new Error("there is no record yet");
    return record;
  });
}

/** Audit records of a session, so far as its log has come here. */
function recordsOf(sessionId: string, msg: "denied" | "done"): readonly unknown[] {
  const lines = service.log.filter((line) => line.includes(sessionId) && line.includes(`"${msg}"`));
  return lines.map((line): unknown => JSON.parse(line));
}

function entriesOf(of: Call["of"]): readonly string[] {
  const entries = EVERY_CALL.filter((call) => call.of === of).map(({ entry }) => entry);
  return [...new Set(entries)].toSorted();
}
