/**
 * Watches of sessions on two services with one PostgreSQL. The poll is a minute away, so a change on
 * one service reaches a watch on the other by an announcement.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller, sessionCaller } from "../support/callers.ts";
import { cleanUp, endProcess, runningPostmaster } from "../support/embedded-fixture.ts";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { eventually } from "../support/eventually.ts";
import { failureOf, newSession, push } from "../support/pushing.ts";
import { type OwnServer, Replicas, startServer } from "../support/replicas.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { SessionWatcher } from "../support/watching.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { createSession, deleteSession, eraseSession, listSessions, pushSessionMessage } =
  SessionService.method;
const { updateSession, updateSessionStatus, watchSessions } = SessionService.method;

const { client: guarded } = useService("tokens");
let database: OwnServer;
let replicas: Replicas;
let one: RpcClient;
let other: RpcClient;
beforeAll(async () => {
  database = await startServer();
  replicas = await Replicas.start(database.server.url);
  one = new RpcClient(() => replicas.at(0).grpcAddress);
  other = new RpcClient(() => replicas.at(1).grpcAddress);
});
afterAll(async () => {
  for (const client of [one, other]) client.close();
  await replicas.stop();
  await database.stop();
  await cleanUp();
});

async function made(fields: { readonly projectId?: string; readonly labels?: string } = {}) {
  const { metadata } = await one.unary(createSession, { name: "made", ...fields });
  return metadata?.id ?? "";
}

const sessionHttp = (query = "", signal?: AbortSignal) =>
  fetch(`http://${replicas.at(1).httpAddress}/api/ambient/v1/sessions${query}`, {
    headers: { accept: "text/event-stream" },
    ...(signal === undefined ? {} : { signal }),
  });

describe("a watch of sessions", () => {
  test("tells each kind of change that another service made, in the newest state", async () => {
    await using watch = await SessionWatcher.live(other);
    const id = await made();
    expect(await watch.of(id)).toEqual(["CREATED", 0n, undefined]);
    await say(one, id, "hello");
    expect(await watch.of(id)).toEqual(["UPDATED", 1n, undefined]);
    await claim(one, { sessionId: id, runId: "r1" });
    expect(await watch.of(id)).toEqual(["UPDATED", 0n, "r1"]);
    await finish(one, id, "r1");
    expect(await watch.of(id)).toEqual(["UPDATED", 0n, undefined]);
    await emit(one, id, { type: "RUN_STARTED", threadId: id, runId: "r2" });
    expect(await watch.of(id)).toEqual(["UPDATED", 0n, "r2"]);
    await one.unary(updateSession, { id, name: "renamed" });
    await one.unary(updateSessionStatus, { id, phase: "Completed" });
    for (let name = "", phase; name !== "renamed" || phase !== "Completed"; ) {
      const { session } = await watch.next();
      ({ name = "", phase } = session ?? {});
    }
    await one.unary(deleteSession, { id });
    expect(await watch.of(id)).toEqual(["DELETED"]);
    const erased = await made();
    expect(await watch.of(erased)).toEqual(["CREATED", 0n, undefined]);
    await one.unary(eraseSession, { id: erased });
    expect(await watch.of(erased)).toEqual(["DELETED"]);
  });

  test("reports a session that a push has made", async () => {
    await using watch = await SessionWatcher.live(other);
    const sessionId = newSession();
    await push(one, "events", { sessionId });
    expect(await watch.of(sessionId)).toEqual(["CREATED", 0n, undefined]);
  });

  test("is silent about rows, and about a message in a session that waits already", async () => {
    const sessionId = newSession();
    await say(one, sessionId, "first");
    await using watch = await SessionWatcher.live(other);
    // The place of a watch may be a little before its call.
    const marker = await made();
    await watch.upTo(marker);
    await say(one, sessionId, "second");
    for (let n = 0; n < 5; n += 1) await push(one, "events", { sessionId });
    await push(one, "messages", { sessionId, eventType: "assistant", payload: "no" });
    const next = await made();
    expect(await watch.upTo(next)).toEqual([next]);
  });

  test("leaves no gap before a list that follows its first LIVE, while sessions are made all the time", async () => {
    const ended = new AbortController();
    const all: string[] = [];
    const making = Array.from({ length: 4 }, async (_, writer) => {
      const client = writer % 2 === 0 ? one : other;
      while (!ended.signal.aborted) {
        const sessionId = newSession();
        await say(client, sessionId, "work");
        all.push(sessionId);
      }
    });
    for (let round = 0; round < 5; round += 1) {
      const known = new Set<string>();
      const before = all.length;
      await using watch = await SessionWatcher.live(round % 2 === 0 ? one : other);
      for (let page = 1, left = true; left; page += 1) {
        // Pages shift while sessions are made; the oldest first would need no second look.
        const { items } = await other.unary(listSessions, { page, size: 1_000 });
        for (const { metadata } of items) known.add(metadata?.id ?? "");
        left = items.length === 1_000;
      }
      await expect.poll(() => all.length).toBeGreaterThan(before + 20);
      const wanted = all.slice();
      while (wanted.some((id) => !known.has(id))) known.add((await watch.next()).resourceId);
    }
    ended.abort();
    await Promise.all(making);
  });

  test("sends only sessions that pass the filters, and every deletion of its project", async () => {
    const labels = '{"team":"blue"}';
    const [mine, foreign] = [newSession(), newSession()];
    await using waiting = await SessionWatcher.live(other, { waiting: true });
    await using running = await SessionWatcher.live(other, { running: true });
    await using labelled = await SessionWatcher.live(other, { labels: { team: "blue" } });
    await using project = await SessionWatcher.live(other, { projectId: mine });
    const idle = await made({ projectId: foreign });
    const blue = await made({ projectId: foreign, labels });
    const own = await made({ projectId: mine });
    await say(one, own, "work");
    await claim(one, { sessionId: own, runId: "r1" });
    await one.unary(deleteSession, { id: idle });
    const last = await made({ projectId: mine, labels });
    await say(one, last, "work");
    await claim(one, { sessionId: last, runId: "r2" });
    expect(new Set(await running.upTo(last))).toEqual(new Set([own, idle, last]));
    expect(new Set(await labelled.upTo(last))).toEqual(new Set([blue, last]));
    expect(new Set(await project.upTo(last))).toEqual(new Set([own, last]));
    const third = newSession();
    await say(one, third, "work");
    const seen = await waiting.upTo(third);
    expect(seen).toContain(idle);
    expect(seen).not.toContain(blue);
  });

  test("sends no state frames that were not requested", async () => {
    const events = other.serverStream(watchSessions, {});
    await using probe = await SessionWatcher.live(other);
    await probe.upTo(await made());
    const id = await made();
    const { value } = await events.next();
    expect(value?.watchState).toBe(WatchState.UNSPECIFIED);
    await probe.upTo(id);
    await events.return?.();
  });
});

test("a watch over HTTP tells where it stands, and the sessions that pass its filters", async () => {
  const ended = new AbortController();
  const project = newSession();
  const answer = await sessionHttp(`?state_frames=true&project_id=${project}`, ended.signal);
  expect(answer.headers.get("content-type")).toContain("text/event-stream");
  const text = (answer.body ?? new ReadableStream())
    .pipeThrough(new TextDecoderStream())
    .getReader();
  let seen = "";
  const until = async (part: string): Promise<void> => {
    while (!seen.includes(part)) seen += (await text.read()).value ?? "";
  };
  await until('event: watch_state\ndata: {"state":"LIVE"}\n\n');
  await made();
  const id = await made({ projectId: project });
  await until(`"resourceId":"${id}"}\n\n`);
  const [line = ""] = seen.split("\n").filter((sent) => sent.startsWith('data: {"type"'));
  expect(JSON.parse(line.slice("data: ".length))).toMatchObject({
    type: "EVENT_TYPE_CREATED",
    resourceId: id,
    session: { metadata: { id }, projectId: project, waiting: "0" },
  });
  ended.abort();
  const refused = await sessionHttp("?page=2&order_by=activity");
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({
    violations: [{ field: "page" }, { field: "order_by" }],
  });
});

describe("a service that polls, and allows one watch", () => {
  let service: ServiceProcess;
  let client: RpcClient;
  beforeAll(async () => {
    const env = { LISTEN_DATABASE_URL: "off", HEAD_POLL_INTERVAL_MS: "100" };
    const limits = { WATCHERS_MAX: "1" };
    service = await startService({
      databaseUrl: database.server.url,
      env: { ...env, ...limits },
    });
    client = new RpcClient(service.grpcAddress);
  });
  afterAll(async () => {
    client.close();
    await endService(service);
  });

  test("counts a watch of sessions among its watches", async () => {
    const first = await SessionWatcher.live(client);
    const failure = await failureOf(new SessionWatcher(client).next());
    expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "TOO_MANY_WATCHERS" });
    await first[Symbol.asyncDispose]();
    await expect
      .poll(async () => {
        await using again = new SessionWatcher(client);
        return await again.state(WatchState.LIVE).then(() => "live", String);
      })
      .toBe("live");
  });

  test("keeps its watches when the database is killed, and makes them live again", async () => {
    await using watch = await liveOnce();
    await watch.upTo(await made());
    endProcess(await runningPostmaster(database.dataDir));
    const timesLive = () => watch.states.filter((state) => state === WatchState.LIVE).length;
    while (timesLive() < 2) await watch.next();
    const id = await eventually(made);
    expect(await watch.of(id)).toEqual(["CREATED", 0n, undefined]);
  });

  test("finds changes by its poll, and ends its watches when it stops", async () => {
    await using watch = await liveOnce();
    const id = await made();
    expect(await watch.of(id)).toEqual(["CREATED", 0n, undefined]);
    const [ended] = await Promise.all([
      watch.of("none").catch((error: unknown) => error),
      service.stop(),
    ]);
    expect(ended).toBeInstanceOf(RpcFailure);
    expect(ended).toMatchObject({ code: "UNAVAILABLE", reason: "SHUTTING_DOWN" });
  });

  /** The watch of the test before may still count. */
  function liveOnce(): Promise<SessionWatcher> {
    return eventually(() => SessionWatcher.live(client));
  }
});

test("a caller of a project or of a session gets only its sessions", async () => {
  const issuer = await sharedIssuer("tokens");
  const [mine, foreign] = [newSession(), newSession()];
  const admin = await issuer.signed("admin", ["admin"]);
  const member = await issuer.signed("member", ["viewer"], mine);
  const as = (caller: Caller) => ({ metadata: bearer(caller) });
  const make = async (projectId: string): Promise<string> => {
    const request = { name: "made", projectId };
    const { metadata } = await guarded.unary(createSession, request, as(admin));
    return metadata?.id ?? "";
  };
  const sessionId = await make(foreign);
  const runner = await sessionCaller(guarded, admin, { sessionId, role: "runner" });
  const ofAll = await SessionWatcher.live(guarded, {}, as(admin));
  const ofProject = await SessionWatcher.live(guarded, {}, as(member));
  const ofSession = await SessionWatcher.live(guarded, {}, as(runner));
  await using elsewhere = await SessionWatcher.live(guarded, { projectId: foreign }, as(member));
  const none = elsewhere.next();
  none.catch(() => undefined);
  const [first, second] = [await make(mine), await make(foreign)];
  const message = { sessionId, eventType: "user", payload: "hello" };
  await guarded.unary(pushSessionMessage, message, as(admin));
  const last = await make(mine);
  expect(await ofAll.upTo(last)).toEqual(expect.arrayContaining([first, second, sessionId, last]));
  expect(await ofProject.upTo(last)).toEqual([first, last]);
  expect(new Set(await ofSession.upTo(sessionId))).toEqual(new Set([sessionId]));
  for (const watch of [ofAll, ofProject, ofSession]) await watch[Symbol.asyncDispose]();
  expect(await Promise.race([none, Promise.resolve("nothing")])).toBe("nothing");
});

test("three runners on two services find 100 sessions and claim each of their turns once", async () => {
  const projectId = newSession();
  const sessions = 100;
  const claimed: string[] = [];
  const done = new AbortController();
  const work = async (client: RpcClient, id: string): Promise<void> => {
    const runId = newSession();
    try {
      const turn = await claim(client, { sessionId: id, runId });
      claimed.push(...turn.messages.map(({ payload }) => payload));
      await finish(client, id, runId);
    } catch (error) {
      const isTaken = error instanceof RpcFailure && TAKEN.has(error.reason ?? "");
      if (!isTaken) throw error;
    }
    if (claimed.length === sessions) done.abort();
  };
  const running = [one, other, one].map(async (client) => {
    const signal = done.signal;
    const watch = new SessionWatcher(client, { waiting: true, projectId }, { signal });
    try {
      for (;;) {
        const event = await watch.next();
        if (event.watchState === WatchState.LIVE) {
          const { items } = await client.unary(listSessions, { waiting: true, projectId });
          for (const { metadata } of items) await work(client, metadata?.id ?? "");
        } else if (event.session !== undefined) await work(client, event.resourceId);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  });
  const saying = [one, other].map(async (client, half) => {
    for (let n = half; n < sessions; n += 2) {
      const { metadata } = await client.unary(createSession, { name: String(n), projectId });
      await say(client, metadata?.id ?? "", String(n));
    }
  });
  await Promise.all([...saying, ...running]);
  expect(claimed.toSorted()).toEqual(
    Array.from({ length: sessions }, (_, n) => String(n)).toSorted(),
  );
});

const TAKEN = new Set(["NOTHING_WAITS", "RUN_OPEN", "STALE_EPOCH"]);
