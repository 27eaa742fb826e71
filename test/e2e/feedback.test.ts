/** Feedback on messages: over gRPC, HTTP and the command line, and what AG-UI clients show of it. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { RunStatus } from "@session-ledger/proto/ambient/v1/conversation_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import type { Caller } from "../support/callers.ts";
import { runHere } from "../support/command-line.ts";
import { createdSession, failureOf, newSession } from "../support/pushing.ts";
import { eventsOf, PushStreamClient } from "../support/push-stream.ts";
import { emit, say } from "../support/turns.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { deleteSession, getTranscript, giveFeedback, listRuns, pushSessionMessage } =
  SessionService.method;

/** Everybody is one person. */
const { service, client } = useService();
const { client: redacting } = useService("strict");
const { client: small } = useService("limited");
const { service: guarded, client: known } = useService("tokens");

const as = (token: string) => ({ metadata: { authorization: `Bearer ${token}` } });

const messagesSchema = z.array(z.looseObject({ id: z.string(), metadata: z.unknown().optional() }));

async function metadataOf(sessionId: string, id = "m1", of = client): Promise<unknown> {
  const { messages } = await of.unary(getTranscript, { sessionId });
  return messagesSchema.parse(JSON.parse(messages)).find((one) => one.id === id)?.metadata;
}

/** A session whose only run said something, and has ended unless told otherwise. */
async function answered({ isOpen = false, of = client } = {}): Promise<string> {
  const sessionId = await createdSession(of);
  const run = { threadId: "t", runId: "r1" };
  await emit(of, sessionId, { type: "RUN_STARTED", ...run });
  const text = { messageId: "m1", role: "assistant", delta: "42" };
  for (const type of ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"])
    await emit(of, sessionId, { type, ...text });
  if (!isOpen) await emit(of, sessionId, { type: "RUN_FINISHED", ...run });
  return sessionId;
}

function post(sessionId: string, messageId: string, body: object): Promise<Response> {
  const id = encodeURIComponent(messageId);
  const path = `/api/ambient/v1/sessions/${sessionId}/messages/${id}/feedback`;
  const headers = { "content-type": "application/json" };
  return fetch(`http://${service.httpAddress}${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
  });
}

describe("feedback", () => {
  test("is a META event, and in the metadata of its message, after the run is over", async () => {
    const sessionId = await answered();
    const more = { comment: "exactly", traceId: "trace-1" };
    const given = await client.unary(giveFeedback, {
      sessionId,
      messageId: "m1",
      kind: "thumbs_up",
      ...more,
    });
    expect(given).toMatchObject({ sessionId, seq: 6n, eventType: "META", runId: "" });
    expect(JSON.parse(given.payload)).toMatchObject({
      type: "META",
      metaType: "thumbs_up",
      payload: { messageId: "m1", ...more },
    });
    const feedback = [{ by: "anonymous", kind: "thumbs_up", at: expect.any(String), ...more }];
    expect(await metadataOf(sessionId)).toEqual({ session: { feedback } });
  });

  test("has its secrets masked, and is the same feedback when it comes again", async () => {
    const sessionId = await answered({ of: redacting });
    const comment = `my key is ghp_${"a".repeat(36)}`;
    const request = { sessionId, messageId: "m1", kind: "thumbs_down", comment };
    const first = await redacting.unary(giveFeedback, request);
    expect(await redacting.unary(giveFeedback, request)).toEqual({ ...first, deduplicated: true });
    expect(await metadataOf(sessionId, "m1", redacting)).toMatchObject({
      session: { feedback: [{ comment: `my key is ghp_${"*".repeat(36)}` }] },
    });
  });

  test("stays through a snapshot of the agent, and with the sender of a user message", async () => {
    const sessionId = await answered();
    const { id, seq } = await client.unary(pushSessionMessage, {
      sessionId,
      eventType: "user",
      payload: "Why?",
      sender: { id: "u1" },
    });
    expect(seq).toBe(1n);
    for (const messageId of ["m1", id])
      await client.unary(giveFeedback, { sessionId, messageId, kind: "thumbs_up" });
    const m1 = { id: "m1", role: "assistant", content: "43", metadata: { model: "m" } };
    await emit(client, sessionId, { type: "MESSAGES_SNAPSHOT", messages: [m1] });
    expect(await metadataOf(sessionId)).toMatchObject({
      model: "m",
      session: { feedback: [{ kind: "thumbs_up" }] },
    });
    expect(await metadataOf(sessionId, id)).toMatchObject({
      session: { sender: { id: "u1" }, feedback: [{ kind: "thumbs_up" }] },
    });
  });

  test("names a message by its row, when the message of the row has its own id", async () => {
    const sessionId = newSession();
    const messages = [{ id: "from-page", role: "user", content: "hello" }];
    const row = await client.unary(pushSessionMessage, {
      sessionId,
      eventType: "user",
      payload: JSON.stringify({ messages }),
    });
    await client.unary(giveFeedback, { sessionId, messageId: row.id, kind: "seen" });
    expect(await metadataOf(sessionId, "from-page")).toMatchObject({
      session: { feedback: [{ kind: "seen" }] },
    });
  });

  test("ends neither the run nor a push stream, and takes no number of the stream", async () => {
    const sessionId = await answered({ isOpen: true });
    const { stream } = await PushStreamClient.open(client, { sessionId, producerEpoch: 3n });
    const delta = (text: string) => ({
      payload: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: text }),
    });
    stream.batch(1, [
      { payload: '{"type":"TEXT_MESSAGE_START","messageId":"m2","role":"assistant"}' },
      delta("a"),
    ]);
    const given = await client.unary(giveFeedback, { sessionId, messageId: "m1", kind: "note" });
    expect(given).toMatchObject({ eventType: "META", runId: "r1" });
    stream.batch(3, [delta("b")]);
    stream.end();
    const frames = await stream.rest();
    expect(frames.at(-1)).toMatchObject({ case: "committed", value: { lastClientSeq: 3n } });
    const rows = await eventsOf(client, sessionId, { expand: true });
    expect(rows.filter(({ eventType }) => eventType === "META")).toHaveLength(1);
    expect(rows.at(-1)?.payload).toContain('"b"');
    const { runs } = await client.unary(listRuns, { sessionId });
    expect(runs).toMatchObject([{ runId: "r1", status: RunStatus.RUNNING }]);
  });

  test.each([
    { title: "an unknown message", request: { messageId: "m2" }, reason: "MESSAGE_NOT_FOUND" },
    { title: "an unknown session", request: { sessionId: "none" }, reason: "SESSION_NOT_FOUND" },
  ])("is NOT_FOUND on $title", async ({ request, reason }) => {
    const sessionId = await answered();
    const asked = { sessionId, messageId: "m1", kind: "thumbs_up", ...request };
    const failure = await failureOf(client.unary(giveFeedback, asked));
    expect(failure).toMatchObject({ code: "NOT_FOUND", reason });
    expect(await eventsOf(client, sessionId)).toHaveLength(5);
  });

  test("is NOT_FOUND in a deleted session", async () => {
    const sessionId = await answered();
    await client.unary(deleteSession, { id: sessionId });
    const asked = { sessionId, messageId: "m1", kind: "thumbs_up" };
    const failure = await failureOf(client.unary(giveFeedback, asked));
    expect(failure).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
  });

  test("is given over HTTP, also on an id that a path must encode", async () => {
    const sessionId = newSession();
    const messageId = "a/b c?é";
    await emit(client, sessionId, { type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    const body = { kind: "thumbs_up", comment: "yes", trace_id: "t1" };
    const first = await post(sessionId, messageId, body);
    expect([first.status, first.headers.get("idempotent-replayed")]).toEqual([201, null]);
    const event: unknown = await first.json();
    expect(event).toMatchObject({ seq: 2, event_type: "META" });
    const again = await post(sessionId, messageId, body);
    expect([again.status, again.headers.get("idempotent-replayed")]).toEqual([201, "true"]);
    expect(await again.json()).toEqual(event);
    const transcript = await fetch(
      `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/transcript`,
    );
    expect(await transcript.json()).toMatchObject({
      messages: [{ metadata: { session: { feedback: [{ kind: "thumbs_up", comment: "yes" }] } } }],
    });
    const missing = await post(sessionId, "m2", { kind: "thumbs_up" });
    expect([missing.status, await missing.json()]).toMatchObject([
      404,
      { reason: "MESSAGE_NOT_FOUND" },
    ]);
    const wrong = await post(sessionId, messageId, { kind: "thumbs_up", note: "x" });
    expect([wrong.status, await wrong.json()]).toMatchObject([
      400,
      { violations: [{ field: "note" }] },
    ]);
  });

  test("is given on the command line, which prints the number of the event", async () => {
    const sessionId = await answered();
    const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress };
    const give = (...args: readonly string[]) => runHere(["feedback", sessionId, ...args], { env });
    const given = await give("m1", "thumbs_down", "--comment", "no", "--trace-id", "t1");
    expect(given).toEqual({ exitCode: 0, stdout: "6\n", stderr: "" });
    expect(await metadataOf(sessionId)).toMatchObject({
      session: { feedback: [{ kind: "thumbs_down", comment: "no", traceId: "t1" }] },
    });
    const json = await give("m1", "thumbs_up", "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({ seq: "7", eventType: "META" });
    const missing = await give("m2", "thumbs_up");
    expect(missing).toMatchObject({ exitCode: 4, stderr: expect.stringContaining("MESSAGE_NOT") });
  });

  test("takes no room of the agent in a session that is nearly full, or full", async () => {
    const sessionId = await answered({ isOpen: true, of: small });
    const give = (at: number) =>
      small.unary(giveFeedback, {
        sessionId,
        messageId: "m1",
        kind: `kind${at}`,
        // Two of these are more than the session may have.
        comment: "x".repeat(4_096),
      });
    for (let at = 1; at <= 8; at += 1) await give(at);
    const { getSession } = SessionService.method;
    const before = await small.unary(getSession, { id: sessionId });
    expect(before).toMatchObject({ rows: 4n, eventSeq: 12n });
    const value = { type: "CUSTOM", name: "n", value: 1 };
    for (let at = 4; at < 10; at += 1) await emit(small, sessionId, value);
    const full = { code: "FAILED_PRECONDITION", reason: "SESSION_FULL" };
    expect(await failureOf(emit(small, sessionId, value))).toMatchObject(full);
    // A full session takes feedback, and a fork of it has the same room.
    await give(9);
    const fork = await small.unary(SessionService.method.forkSession, { sessionId, atSeq: 19n });
    const { rows, payloadBytes } = await small.unary(getSession, { id: sessionId });
    expect(fork).toMatchObject({ rows, payloadBytes, eventSeq: 19n });
    expect(await metadataOf(fork.metadata?.id ?? "", "m1", small)).toMatchObject({
      session: { feedback: [{ kind: "kind9" }] },
    });
  });

  test("has a limit of changes, which the error names, and a key of its form is refused", async () => {
    const sessionId = await answered();
    const give = (kind: string) => client.unary(giveFeedback, { sessionId, messageId: "m1", kind });
    for (let at = 1; at <= 20; at += 1) await give(`kind${at}`);
    const refused = await failureOf(give("other"));
    expect(refused).toMatchObject({ code: "FAILED_PRECONDITION", reason: "FEEDBACK_FULL" });
    expect(refused.message).toContain("20 changes");
    // The last one stands, and is no change.
    expect(await give("kind20")).toMatchObject({ deduplicated: true });
    const key = `feedbackp${"0".repeat(32)}m${"0".repeat(32)}n${"0".repeat(10)}`;
    const { pushSessionEvent } = SessionService.method;
    const pushed = { sessionId, eventType: "CUSTOM", payload: "{}", idempotencyKey: key };
    expect(await failureOf(client.unary(pushSessionEvent, pushed))).toMatchObject({
      code: "INVALID_ARGUMENT",
      violations: [{ field: "idempotency_key" }],
    });
  });

  test("is counted by kind, and once", async () => {
    const sessionId = await answered();
    const count = async (): Promise<number> => {
      const text = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
      return Number(/feedback_total\{kind="other"\} (\d+)/.exec(text)?.[1] ?? 0);
    };
    const before = await count();
    const request = { sessionId, messageId: "m1", kind: "a_kind_of_its_own" };
    for (let times = 0; times < 2; times += 1) await client.unary(giveFeedback, request);
    expect(await count()).toBe(before + 1);
  });
});

describe("with tokens", () => {
  test("each person has feedback of their own, and a runner has none", async () => {
    const issuer = await sharedIssuer("tokens");
    const root = as((await issuer.signed("root", ["admin"])).token);
    const [ann, bob, agent] = [
      await issuer.signed("ann", ["viewer"]),
      await issuer.signed("bob", ["editor"]),
      await issuer.signed("agent", ["runner"]),
    ];
    const sessionId = newSession();
    const { id: messageId } = await known.unary(
      pushSessionMessage,
      { sessionId, eventType: "user", payload: "hello" },
      root,
    );
    const give = ({ token }: Caller, kind: string) =>
      known.unary(giveFeedback, { sessionId, messageId, kind }, as(token));
    await give(ann, "thumbs_up");
    await give(bob, "thumbs_down");
    const { payload } = await give(ann, "thumbs_down");
    expect(JSON.parse(payload)).toMatchObject({ payload: { userId: "ann" } });
    const { messages } = await known.unary(getTranscript, { sessionId }, root);
    expect(JSON.parse(messages)).toMatchObject([
      {
        metadata: {
          session: {
            feedback: [
              { by: "oidc:bob", kind: "thumbs_down" },
              { by: "oidc:ann", kind: "thumbs_down" },
            ],
          },
        },
      },
    ]);
    const refused = await failureOf(give(agent, "thumbs_up"));
    expect(refused).toMatchObject({ code: "PERMISSION_DENIED" });
    const denied = () =>
      guarded.log
        .filter((line) => line.includes("feedback.give") && line.includes(sessionId))
        .map((line): unknown => JSON.parse(line));
    await expect
      .poll(denied)
      .toMatchObject([{ audit: true, action: "feedback.give", actor: "agent", reason: "role" }]);
  });
});

describe.each(AGUI_CLIENTS)("$name", (agui) => {
  useQuietConsole();

  const feedback = [{ by: "anonymous", kind: "thumbs_up", at: expect.any(String) }];
  const shown = [{ id: "m1", metadata: { session: { feedback } } }];

  test("shows the feedback when it joins after the run is over, and again when it returns", async () => {
    const sessionId = await answered();
    const opened = agui.open(service.httpAddress, sessionId);
    await opened.connect();
    await client.unary(giveFeedback, { sessionId, messageId: "m1", kind: "thumbs_up" });
    await opened.connect();
    expect(opened.conversation().messages).toMatchObject(shown);
    const later = agui.open(service.httpAddress, sessionId);
    await later.connect();
    expect(later.conversation().messages).toMatchObject(shown);
  });

  test("continues in an open run, where feedback comes as CUSTOM", async () => {
    const sessionId = await answered({ isOpen: true });
    const opened = agui.open(service.httpAddress, sessionId);
    const told: object[] = [];
    const joined = opened.connect({
      onEvent(type, event) {
        if (type === "MESSAGES_SNAPSHOT")
          void client.unary(giveFeedback, { sessionId, messageId: "m1", kind: "thumbs_up" });
        if (type !== "CUSTOM") return;
        told.push(event);
        void emit(client, sessionId, { type: "RUN_FINISHED", threadId: "t", runId: "r1" });
      },
    });
    await joined;
    expect(told).toMatchObject([{ name: "META", value: { metaType: "thumbs_up" } }]);
    expect(opened.conversation().messages).toMatchObject([{ id: "m1", content: "42" }]);
  });

  test("shows feedback on a message of a session without a run", async () => {
    const sessionId = newSession();
    await say(client, sessionId, "hello");
    const { messages } = await client.unary(getTranscript, { sessionId });
    const [message] = messagesSchema.parse(JSON.parse(messages));
    const messageId = message?.id ?? "";
    await client.unary(giveFeedback, { sessionId, messageId, kind: "thumbs_up" });
    const opened = agui.open(service.httpAddress, sessionId);
    await opened.connect();
    expect(opened.conversation().messages).toMatchObject([
      { id: messageId, content: "hello", metadata: { session: { feedback } } },
    ]);
  });
});
