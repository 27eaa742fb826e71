/** Forks as callers have them: by gRPC, HTTP and the command line, with tokens, and for AG-UI clients. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Session, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import type { Issuer } from "../support/callers.ts";
import { runHere } from "../support/command-line.ts";
import { openDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { mergeFragments } from "../support/merging.ts";
import { OpenApi } from "../support/openapi.ts";
import { properties } from "../support/random.ts";
import { createdSession, failureOf, newSession } from "../support/pushing.ts";
import { fragments, PushStreamClient, whole } from "../support/push-stream.ts";
import { endService, startAgain, startService } from "../support/service-process.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { deleteSession, forkSession, getSession, getTranscript, giveFeedback, listRuns } =
  SessionService.method;
const { eraseSession, issueSessionToken, listSessionEvents } = SessionService.method;
const { listSessionMessages, listSessions, pushSessionEvent, pushSessionMessage } =
  SessionService.method;

const { service, client } = useService();

const { service: guarded, client: known } = useService("tokens");

const as = (token: string) => ({ metadata: { authorization: `Bearer ${token}` } });

/** What readers see of a session, without its own id and its own times. */
async function seen(sessionId: string) {
  const { turnSeq, waiting, openRunId, messageSeq, eventSeq, rows, payloadBytes, lastActivityAt } =
    await client.unary(getSession, { id: sessionId });
  const [transcript, runs, messages, events, raw] = await Promise.all([
    client.unary(getTranscript, { sessionId }),
    client.unary(listRuns, { sessionId }),
    client.unary(listSessionMessages, { sessionId, pageSize: 1_000 }),
    client.unary(listSessionEvents, { sessionId, pageSize: 1_000 }),
    client.unary(listSessionEvents, { sessionId, pageSize: 1_000, expand: true }),
  ]);
  const standing = { turnSeq, waiting, openRunId, messageSeq, eventSeq, rows, payloadBytes };
  const all = { standing, lastActivityAt, transcript, runs, messages, events, raw };
  return JSON.parse(
    JSON.stringify(all, (key, value: unknown) =>
      typeof value === "bigint" ? String(value) : key === "sessionId" ? undefined : value,
    ),
  );
}

interface Moment {
  readonly at: { readonly atSeq: bigint } | { readonly atMessageSeq: bigint };
  readonly seen: Awaited<ReturnType<typeof seen>>;
}

const STEPS = ["say", "answer", "start", "claim", "take over", "text", "merged", "tool", "state"];
const step = fc.constantFrom(...STEPS, "say", "claim", "text", "finish", "fail", "think", "cancel");

/** A session that is made step by step, and what readers saw after each row of it. */
class SteppedSession {
  readonly sessionId = newSession();
  readonly moments: Moment[] = [];
  #runs = 0;
  #texts = 0;
  #openRunId: string | undefined;
  #exists = false;

  async do(name: string): Promise<void> {
    const { sessionId } = this;
    const threadId = sessionId;
    const open = this.#openRunId;
    const id = `m${(this.#texts += 1)}`;
    switch (name) {
      case "say":
        return this.#said("user", `question ${id}`);
      case "answer":
        return this.#said("assistant", `answer ${id}`);
      case "start":
        if (open !== undefined) return;
        this.#openRunId = `r${(this.#runs += 1)}`;
        return this.#emitted({ type: "RUN_STARTED", threadId, runId: this.#openRunId });
      case "claim":
      case "take over": {
        if ((open !== undefined) !== (name === "take over")) return;
        const runId = `r${(this.#runs += 1)}`;
        const producerEpoch = BigInt(this.#runs) * 10n;
        const claimed = await claim(client, { sessionId, runId, producerEpoch }).catch(() => null);
        if (claimed === null) return;
        this.#openRunId = claimed.runStarted === undefined ? undefined : runId;
        return this.#saw("events");
      }
      case "text": {
        const text = { messageId: id, role: "assistant", delta: `text ${id}` };
        for (const type of ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"])
          await this.#emitted({ type, ...text });
        return;
      }
      case "merged": {
        const texts = Array.from({ length: 5 }, (_, at) => `${at} ü `);
        const raw = fragments(texts).map(({ payload = "" }) => ({
          eventType: "TEXT_MESSAGE_CONTENT",
          payload: JSON.stringify({ ...JSON.parse(payload), messageId: id }),
        }));
        await this.#emitted({ type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" });
        for (const { eventType, payload, eventCount, fragments: index } of mergeFragments(raw))
          await client.unary(pushSessionEvent, {
            sessionId,
            eventType,
            payload,
            eventCount,
            ...(index && { fragments: index }),
          });
        return this.#saw("events");
      }
      case "tool": {
        const call = { toolCallId: `c${id}`, toolCallName: "find", delta: "{}" };
        for (const type of ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"])
          await this.#emitted({ type, ...call });
        return this.#emitted({
          type: "TOOL_CALL_RESULT",
          messageId: `t${id}`,
          toolCallId: `c${id}`,
          content: "found",
        });
      }
      case "state":
        return this.#emitted({ type: "STATE_SNAPSHOT", snapshot: { step: this.#texts } });
      case "finish":
      case "fail": {
        if (open === undefined) return;
        this.#openRunId = undefined;
        const type = name === "fail" ? "RUN_ERROR" : "RUN_FINISHED";
        return this.#emitted({ type, threadId, runId: open, message: "failed" });
      }
      case "think": {
        if (!this.#exists) return;
        const messages: readonly { readonly id: string }[] = z
          .array(z.looseObject({ id: z.string() }))
          .parse(JSON.parse((await client.unary(getTranscript, { sessionId })).messages));
        const messageId = messages.at(-1)?.id;
        if (messageId === undefined) return;
        await client.unary(giveFeedback, { sessionId, messageId, kind: `k${this.#texts}` });
        return this.#saw("events");
      }
      default: {
        if (open === undefined) return;
        const asked = { sessionId, runId: open, reason: "enough" };
        const { deduplicated } = await client.unary(SessionService.method.cancelRun, asked);
        if (!deduplicated) await this.#saw("messages");
      }
    }
  }

  async #said(eventType: string, payload: string): Promise<void> {
    await client.unary(pushSessionMessage, {
      sessionId: this.sessionId,
      eventType,
      payload,
      ...(this.#texts % 2 === 0 && { idempotencyKey: `k${this.#texts}` }),
    });
    await this.#saw("messages");
  }

  async #emitted(event: Parameters<typeof emit>[2]): Promise<void> {
    await emit(client, this.sessionId, event);
    await this.#saw("events");
  }

  async #saw(stream: "events" | "messages"): Promise<void> {
    this.#exists = true;
    const { eventSeq, messageSeq } = await client.unary(getSession, { id: this.sessionId });
    const at = stream === "events" ? { atSeq: eventSeq } : { atMessageSeq: messageSeq };
    this.moments.push({ at, seen: await seen(this.sessionId) });
  }
}

async function forkAt(sessionId: string, at: Moment["at"], by = client): Promise<Session> {
  return by.unary(forkSession, { sessionId, newId: newSession(), ...at });
}

const idOf = ({ metadata }: Session): string => metadata?.id ?? "";

describe("a fork at any row of any session", () => {
  test("is what readers saw when that row was the newest one", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 14 }), async (names) => {
        const stepped = new SteppedSession();
        for (const name of names) await stepped.do(name);
        const before = await seen(stepped.sessionId).catch(() => undefined);
        for (const moment of stepped.moments) {
          const fork = await forkAt(stepped.sessionId, moment.at);
          expect(fork).toMatchObject({ parentSessionId: stepped.sessionId });
          expect(await seen(idOf(fork))).toEqual(moment.seen);
        }
        // The parent is as it was, and knows its forks.
        expect(await seen(stepped.sessionId).catch(() => undefined)).toEqual(before);
        const forks = await client.unary(listSessions, { parentSessionId: stepped.sessionId });
        expect(forks.metadata?.total).toBe(stepped.moments.length);
      }),
      properties({ runs: 40 }),
    );
  });
});

describe("AG-UI clients", () => {
  /** Runs without a producer are over for them at once. */
  const { service: quick, client: quickly } = useService("strict");

  /** What each client shows of the session, by its own code. */
  const shown = (sessionId: string): Promise<readonly unknown[]> =>
    Promise.all(
      AGUI_CLIENTS.map(async (agui) => {
        const opened = agui.open(quick.httpAddress, sessionId);
        await opened.connect();
        return opened.conversation();
      }),
    );

  test("show of a fork what they showed of the parent then, also in an open text or call", async () => {
    const sessionId = await createdSession(quickly);
    const run = { threadId: sessionId, runId: "r1" };
    const text = { messageId: "m1", role: "assistant" };
    const call = { toolCallId: "c1", toolCallName: "find", delta: "{}" };
    await say(quickly, sessionId, "question");
    const places: { readonly atSeq: bigint; readonly shown: readonly unknown[] }[] = [];
    for (const [at, event] of [
      { type: "RUN_STARTED", ...run },
      { type: "TEXT_MESSAGE_START", ...text },
      { type: "TEXT_MESSAGE_CONTENT", ...text, delta: "half" },
      { type: "TEXT_MESSAGE_END", ...text },
      { type: "STATE_SNAPSHOT", snapshot: { step: 1 } },
      { type: "TOOL_CALL_START", ...call },
      { type: "TOOL_CALL_ARGS", ...call },
      { type: "RUN_FINISHED", ...run },
    ].entries()) {
      await emit(quickly, sessionId, event);
      places.push({ atSeq: BigInt(at + 1), shown: await shown(sessionId) });
      if (at === 3) await say(quickly, sessionId, "meanwhile");
    }
    await say(quickly, sessionId, "next question");
    for (const { atSeq, shown: then } of places) {
      const fork = idOf(await forkAt(sessionId, { atSeq }, quickly));
      expect(await shown(fork), `at ${atSeq}`).toEqual(then);
    }
  });

  test("follow a fork that a person and a runner go on with", async () => {
    const sessionId = await createdSession(quickly);
    await say(quickly, sessionId, "question");
    await claim(quickly, { sessionId, runId: "r1" });
    await emit(quickly, sessionId, {
      type: "TEXT_MESSAGE_START",
      messageId: "m1",
      role: "assistant",
    });
    // In the middle of the run: a claim with an epoch ends it, as that of any lost runner.
    const fork = idOf(await forkAt(sessionId, { atSeq: 2n }, quickly));
    await finish(quickly, sessionId, "r1");
    await say(quickly, fork, "another question");
    expect(await failureOf(claim(quickly, { sessionId: fork, runId: "r2" }))).toMatchObject({
      reason: "RUN_OPEN",
    });
    const taken = await claim(quickly, { sessionId: fork, runId: "r2", producerEpoch: 1n });
    expect(taken).toMatchObject({ lostRunId: "r1" });
    expect(taken.messages.map(({ payload }) => payload)).toEqual(["another question"]);
    const { stream } = await PushStreamClient.open(quickly, { sessionId: fork });
    stream.batch(1, [whole("x")]);
    stream.end();
    while ((await stream.next()) !== undefined);
    await finish(quickly, fork, "r2");
    const opened = AGUI_CLIENTS[0]?.open(quick.httpAddress, fork);
    await opened?.connect();
    expect(opened?.conversation().messages).toMatchObject([
      { content: "question" },
      { id: "m1" },
      { content: "another question" },
    ]);
    expect(await quickly.unary(getSession, { id: sessionId })).toMatchObject({ eventSeq: 3n });
  });
});

describe("a request of gRPC", () => {
  /** An admin, and an editor of each of two projects. */
  async function callers() {
    const issuer = await sharedIssuer("tokens");
    const of = async (...caller: Parameters<Issuer["signed"]>) =>
      as((await issuer.signed(...caller)).token);
    const root = await of("root", ["admin"]);
    const [ann, eve] = [await of("ann", ["editor"], "alpha"), await of("eve", ["editor"], "beta")];
    return { root, ann, eve, of };
  }

  const bad: readonly (readonly [object, string])[] = [
    [{ sessionId: "same", newId: "same" }, "new_id"],
    [{ idempotencyKey: "k" }, "idempotency_key"],
  ];
  test.each(bad)("with %o is refused by the field %s", async (more, field) => {
    const request = { sessionId: "s", newId: newSession(), atSeq: 1n, ...more };
    expect(await failureOf(client.unary(forkSession, request))).toMatchObject({
      code: "INVALID_ARGUMENT",
      violations: [{ field }],
    });
  });

  test("names the wrong session or number, and another request takes no taken id", async () => {
    const sessionId = newSession();
    await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
    const asked = (more: object) =>
      client.unary(forkSession, { sessionId, newId: newSession(), atSeq: 1n, ...more });
    const failure = async (more: object) => failureOf(asked(more));
    expect(await failure({ sessionId: newSession() })).toMatchObject({
      code: "NOT_FOUND",
      reason: "SESSION_NOT_FOUND",
    });
    expect(await failure({ atSeq: 2n })).toMatchObject({
      code: "OUT_OF_RANGE",
      reason: "CURSOR_BEYOND_HEAD",
      violations: [{ field: "at_seq" }],
    });
    const newId = newSession();
    const first = await asked({ newId });
    expect(await asked({ newId })).toEqual(first);
    for (const taken of [newId, sessionId].map((id) => ({ newId: id })))
      await emit(client, taken.newId, { type: "CUSTOM", name: "n", value: 2 });
    expect(await failure({ newId, atSeq: 2n })).toMatchObject({
      code: "ALREADY_EXISTS",
      reason: "SESSION_EXISTS",
      violations: [{ field: "new_id" }],
    });
    const parent = await client.unary(getSession, { id: sessionId });
    expect(parent.forks).toEqual([newId]);
    await client.unary(eraseSession, { id: sessionId });
    expect(await asked({ newId })).toMatchObject({ parentSessionId: sessionId, forkedAtSeq: 1n });
    expect(await failure({})).toMatchObject({ reason: "SESSION_DELETED" });
    await client.unary(deleteSession, { id: newId });
    expect(await failure({ newId })).toMatchObject({ code: "ALREADY_EXISTS" });
  });

  test("is for editors of the project, and leaves an audit record", async () => {
    const { root, ann, eve, of } = await callers();
    const bob = await of("bob", ["viewer"], "alpha");
    const { metadata } = await known.unary(
      SessionService.method.createSession,
      { name: "of alpha", projectId: "alpha", labels: '{"team":"x"}' },
      root,
    );
    const sessionId = metadata?.id ?? "";
    const said = { sessionId, eventType: "user", payload: "hi" };
    await known.unary(pushSessionMessage, said, root);
    const ask = (by: object) => known.unary(forkSession, { sessionId, atMessageSeq: 1n }, by);
    const fork = await ask(ann);
    expect(fork).toMatchObject({ projectId: "alpha", createdByUserId: "ann", name: "of alpha" });
    expect(fork.labels).toBe('{"team":"x"}');
    expect(await failureOf(ask(bob))).toMatchObject({ code: "PERMISSION_DENIED" });
    expect(await failureOf(ask(eve))).toMatchObject({ code: "NOT_FOUND" });
    const bound = { sessionId, role: "editor" };
    const { token } = await known.unary(issueSessionToken, bound, root);
    expect(await failureOf(ask(as(token)))).toMatchObject({ code: "PERMISSION_DENIED" });
    const forksFor = async (by: object) =>
      (await known.unary(getSession, { id: sessionId }, by)).forks;
    expect(await forksFor(bob)).toEqual([idOf(fork)]);
    expect(await forksFor(as(token))).toEqual([]);
    const record = guarded.log
      .map((line) => z.record(z.string(), z.unknown()).parse(JSON.parse(line)))
      .find(
        ({ action, msg, newId }) =>
          action === "session.fork" && newId === idOf(fork) && msg === "done",
      );
    expect(record).toMatchObject({ audit: true, sessionId, atMessageSeq: "1" });
  });

  test("of a caller with a scope takes no id, learns of no id, and with a key gives one fork", async () => {
    const { root, ann, eve, of } = await callers();
    const ben = await of("ben", ["editor"], "alpha");
    const parentOf = async (projectId: string) => {
      const request = { name: "parent", projectId };
      const made = await known.unary(SessionService.method.createSession, request, root);
      const sessionId = idOf(made);
      const said = { eventType: "user", payload: "hi" };
      await known.unary(pushSessionMessage, { sessionId, ...said }, root);
      await known.unary(pushSessionMessage, { sessionId, ...said }, root);
      return sessionId;
    };
    const [alpha, beta] = [await parentOf("alpha"), await parentOf("beta")];
    const ask = (by: object, more: object) =>
      known.unary(forkSession, { sessionId: alpha, atMessageSeq: 1n, ...more }, by);
    // A free id, one of the own project, and one of another project are refused in the same words.
    const refusals = await Promise.all(
      [newSession(), alpha, beta, "a b"].map((newId) => failureOf(ask(ann, { newId }))),
    );
    const { message, violations } = refusals[0] ?? {};
    for (const refusal of refusals)
      expect(refusal).toMatchObject({ code: "PERMISSION_DENIED", message, violations });
    expect(violations).toMatchObject([{ field: "new_id" }]);
    const chosen = newSession();
    expect(await failureOf(ask(eve, { newId: chosen }))).toMatchObject({ code: "NOT_FOUND" });
    const parent = await known.unary(getSession, { id: alpha }, root);
    expect(parent.forks).toEqual([]);

    // Without a key each request makes a fork; with a key there is one, also of two at once.
    const [one, other] = [await ask(ann, {}), await ask(ann, {})];
    expect(idOf(one)).not.toBe(idOf(other));
    const idempotencyKey = "k1";
    const again = await Promise.all(
      [ann, ben, ann].map((by) => ask(by, { idempotencyKey }).then(idOf)),
    );
    expect(new Set(again).size).toBe(1);
    expect(await failureOf(ask(ben, { idempotencyKey, atMessageSeq: 2n }))).toMatchObject({
      code: "ALREADY_EXISTS",
      reason: "KEY_REUSED",
      violations: [{ field: "idempotency_key" }],
    });
    // The key of another project, or of another parent, is another key.
    const ofBeta = await ask(eve, { sessionId: beta, idempotencyKey });
    expect(again).not.toContain(idOf(ofBeta));
    expect(ofBeta.projectId).toBe("beta");
    const second = await ask(ann, { sessionId: again[0], idempotencyKey });
    expect(again).not.toContain(idOf(second));
    // A caller who sees every session may choose, and may use a key of its own.
    expect(idOf(await ask(root, { newId: chosen }))).toBe(chosen);
    const ofRoot = [await ask(root, { idempotencyKey }), await ask(root, { idempotencyKey })];
    expect(ofRoot[0]).toEqual(ofRoot[1]);
    expect(again).not.toContain(idOf(ofRoot[0] ?? one));
  });
});

describe("over HTTP and the command line", () => {
  test("a fork is made, shown and listed as documented", async () => {
    const sessionId = newSession();
    await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
    const openApi = new OpenApi(
      await (await fetch(`http://${service.httpAddress}/openapi.json`)).json(),
    );
    const base = `http://${service.httpAddress}/api/ambient/v1/sessions`;
    const post = (body: object) =>
      fetch(`${base}/${sessionId}/fork`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const asked = { method: "POST", path: "/api/ambient/v1/sessions/{id}/fork" };
    const newId = newSession();
    for (const atSeq of [1, "1"]) {
      const made = await post({ newId, atSeq });
      expect(made.status).toBe(201);
      expect(made.headers.get("location")).toBe(`/api/ambient/v1/sessions/${newId}`);
      expect(await openApi.fault(asked, made.clone())).toBeUndefined();
      expect(await made.json()).toMatchObject({ parentSessionId: sessionId, forkedAtSeq: "1" });
    }
    const keyed = async (atSeq: number): Promise<Response> =>
      fetch(`${base}/${sessionId}/fork`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": "k" },
        body: JSON.stringify({ atSeq }),
      });
    const [first, again] = [await keyed(1), await keyed(1)];
    expect(await openApi.fault(asked, first.clone())).toBeUndefined();
    expect(first.status).toBe(201);
    expect(await again.json()).toEqual(await first.json());
    for (const [body, status, field] of [
      [{ newId, atSeq: 2 }, 409, "newId"],
      [{ newId: "", atSeq: 1 }, 400, "newId"],
      [{ newId: newSession(), atSeq: 2 }, 400, "atSeq"],
      [{ newId: newSession() }, 400, "atSeq"],
      [{ newId: newSession(), atSeq: "1.5" }, 400, "atSeq"],
      [{ newId: newSession(), atMessageSeq: 1 }, 400, "atMessageSeq"],
    ] as const) {
      const refused = await post(body);
      expect(await openApi.fault(asked, refused.clone())).toBeUndefined();
      expect([refused.status, await refused.json()]).toMatchObject([
        status,
        { violations: [{ field }] },
      ]);
    }
    const parent = await (await fetch(`${base}/${sessionId}`)).json();
    expect(parent).toMatchObject({ forks: [expect.any(String), newId] });
    const listed = await (await fetch(`${base}?parent_session_id=${sessionId}`)).json();
    expect(listed).toMatchObject({ metadata: { total: 2 } });
    expect(JSON.stringify(listed)).toContain(newId);
  });

  test("session-ledger fork prints the id, and sessions names both", async () => {
    const sessionId = newSession();
    await say(client, sessionId, "hi");
    await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
    const env = { LEDGER_ADDRESS: service.grpcAddress };
    const run = (...args: readonly string[]) =>
      runHere([...args, "--address", service.grpcAddress], { env });
    const made = await run("fork", sessionId, "--at", "1");
    expect(made).toMatchObject({ exitCode: 0, stderr: "" });
    const id = made.stdout.trim();
    expect(await client.unary(getSession, { id })).toMatchObject({ messageSeq: 1n, eventSeq: 1n });
    const named = ["--at-message", "1", "--id", `${sessionId}-b`, "--json"];
    const other = await run("fork", sessionId, ...named);
    expect(JSON.parse(other.stdout)).toMatchObject({ forkedAtMessageSeq: "1" });
    expect((await run("sessions", id, "--output", "table")).stdout).toMatch(/FORKED AT\s+event 1/);
    expect((await run("sessions", sessionId, "--output", "table")).stdout).toContain(
      `${sessionId}-b ${id}`,
    );
    const listed = await run("sessions", "--parent", sessionId, "--output", "json");
    expect(listed.stdout.trim().split("\n")).toHaveLength(2);
    const keyed = ["--at", "1", "--key", "k1"];
    const first = await run("fork", sessionId, ...keyed);
    expect(await run("fork", sessionId, ...keyed)).toEqual(first);
    expect(first.stdout.trim()).not.toBe(id);
    const both = ["--at", "1", "--id", "a", "--key", "k1"];
    for (const wrong of [[], ["--at", "1", "--at-message", "1"], ["--at", "0"], both])
      expect(await run("fork", sessionId, ...wrong)).toMatchObject({ exitCode: 2 });
    expect((await run("fork", sessionId, "--at", "7")).stderr).toContain("at_seq");
  });
});

test("a service that is killed in the middle of a copy leaves nothing of it", async () => {
  const database = await openDatabase();
  const { sql } = database;
  const patient = new URL(database.url);
  patient.searchParams.set("lock_timeout", "60000");
  const killed = await startService({ databaseUrl: patient.href });
  const calls = new RpcClient(() => killed.grpcAddress);
  const [sessionId, newId] = [newSession(), newSession()];
  const request = { sessionId, newId, atSeq: 2n };
  const free = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  try {
    for (const value of [1, 2]) await emit(calls, sessionId, { type: "CUSTOM", name: "n", value });
    // The copy has its rows, and waits for the table of sessions.
    const holding = sql.begin(async (on) => {
      await on`lock table sessions in share mode`;
      locked.resolve();
      await free.promise;
    });
    await locked.promise;
    const asked = calls.unary(forkSession, request).catch(() => undefined);
    const waits = () => sql<{ pid: number }[]>`
      select pid from pg_stat_activity where query like '%ledger_fork%' and wait_event_type = 'Lock'
        and datname = current_database() and pid <> pg_backend_pid()`;
    const pid = await eventually(async () => {
      const [waiting] = await waits();
      if (waiting === undefined) throw new Error("the copy does not wait yet");
      return waiting.pid;
    });
    await killed.kill("SIGKILL");
    await sql`select pg_terminate_backend(${pid})`;
    await eventually(async () => expect(await waits()).toEqual([]));
    free.resolve();
    await holding;
    await asked;
    const left = await sql`select session_id as id from session_events where session_id = ${newId}
      union all select id from sessions where id = ${newId}`;
    expect(left).toEqual([]);
    const again = await startAgain(killed);
    const client2 = new RpcClient(() => again.grpcAddress);
    try {
      expect(await client2.unary(forkSession, request)).toMatchObject({ eventSeq: 2n });
    } finally {
      client2.close();
      await endService(again);
    }
  } finally {
    free.resolve();
    calls.close();
    await database.stop();
  }
});
