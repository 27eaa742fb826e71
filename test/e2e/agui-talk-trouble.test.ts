/**
 * Talk over AG-UI where something is in the way: a caller without the right, a wrong input, requests
 * at the same time, a killed service, a runner that does not claim.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { assistant, user } from "../support/agui-events.ts";
import { nextTurn, PAGE_CLIENTS, type PageClient, plain, shows } from "../support/agui-pages.ts";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { withSql } from "../support/embedded-fixture.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { eventually } from "../support/eventually.ts";
import { type RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { createdSession, newSession, push, rowsOf } from "../support/pushing.ts";
import { emit, finish } from "../support/turns.ts";
import { sharedIssuer, type UsedService, useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { service, client: rpc } = useService({});
/** With few waiting messages. */
const { service: limited, client: limitedRpc } = useService("limited");
const guarded = useService("tokens");
/** Waits for a second at most. */
const { service: strict, client: strictly } = useService("strict");
useQuietConsole();

const problemSchema = z.object({
  status: z.number(),
  reason: z.string(),
  detail: z.string(),
  violations: z.array(z.object({ field: z.string() })).default([]),
});

interface Posted {
  readonly to?: string;
  readonly at?: string;
  readonly token?: string;
}

/** `to` is a path; by default the AG-UI route of the session. */
function post(sessionId: string, input: object, { to, at, token }: Posted = {}): Promise<Response> {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
  return fetch(`http://${at ?? service.httpAddress}${to ?? `/agui/sessions/${sessionId}`}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...authorization },
    body: JSON.stringify(input),
  });
}

async function problemOf(response: Response): Promise<z.infer<typeof problemSchema>> {
  return problemSchema.parse(await response.json());
}

/** Reads until the answer has this text. */
async function reads(response: Response, text: string): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let seen = "";
  while (!seen.includes(text)) {
    const chunk = await reader?.read();
    if (chunk?.value === undefined) throw new Error(`the answer ended with ${seen}`);
    seen += chunk.value;
  }
  await reader?.cancel();
}

/** Empty for a session that does not exist. */
async function payloadsOf(sessionId: string, of: RpcClient = rpc): Promise<readonly string[]> {
  const rows = await rowsOf(of, "messages", sessionId).catch((error: unknown) => {
    if (error instanceof RpcFailure && error.reason === "SESSION_NOT_FOUND") return [];
    throw error;
  });
  return rows.filter(({ eventType }) => eventType === "user").map(({ payload }) => payload);
}

async function metric({ opsAddress }: UsedService, name: string): Promise<number> {
  const text = await (await fetch(`http://${opsAddress}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(`session_ledger_${name} `));
  return Number(line?.split(" ")[1]);
}

function clientNamed(name: string): PageClient {
  const found = PAGE_CLIENTS.find((one) => one.name === name);
  if (found === undefined) throw new Error(`${name} is no client`);
  return found;
}

const ROUTES: readonly (readonly [
  string,
  (sessionId: string, input: object) => [string, object],
])[] = [
  ["AG-UI", (id, input) => [`/agui/sessions/${id}`, input]],
  ["CopilotKit", (id, input) => ["/copilotkit/agent/any/run", { threadId: id, ...input }]],
  [
    "CopilotKit's envelope",
    (id, input) => ["/copilotkit", { method: "agent/run", body: { threadId: id, ...input } }],
  ],
];

describe.each(ROUTES)("over %s", (name, requestOf) => {
  const send = (sessionId: string, input: object, posted: Posted = {}): Promise<Response> => {
    const [to, body] = requestOf(sessionId, input);
    return post(sessionId, body, { ...posted, to });
  };
  const path = name === "CopilotKit's envelope" ? "body." : "";

  test("a typed message is stored, and its answer comes", async () => {
    const sessionId = newSession();
    const answer = send(sessionId, { messages: [user("u1", "hi")] });
    const turn = await nextTurn(service.grpcAddress, sessionId, "r1");
    expect(turn.payloads).toEqual([
      JSON.stringify({ threadId: sessionId, messages: [user("u1", "hi")] }),
    ]);
    turn.end("a1", "hello");
    await turn.finish();
    await reads(await answer, '"hello"');
  });

  test.each([
    ["no id", { messages: [{ role: "user", content: "x" }] }, "messages[0].id"],
    ["an empty id", { messages: [user("", "x")] }, "messages[0].id"],
    ["a long id", { messages: [user("i".repeat(129), "x")] }, "messages[0].id"],
    ["half a character as id", { messages: [user("\ud800", "x")] }, "messages[0].id"],
    [
      "no content",
      {
        messages: [
          { id: "a", role: "assistant" },
          { id: "b", role: "user" },
        ],
      },
      "messages[1].content",
    ],
    ["no call", { messages: [{ id: "t", role: "tool", content: "x" }] }, "messages[0].toolCallId"],
    ["messages that are no list", { messages: {} }, "messages"],
    ["answers that are no list", { resume: {} }, "resume"],
  ])("%s is 400 and names the field, and nothing is stored", async (_name, input, field) => {
    const sessionId = newSession();
    const problem = await problemOf(await send(sessionId, input));
    expect(problem).toMatchObject({ status: 400, reason: "INVALID_REQUEST" });
    expect(problem.violations.map((one) => one.field)).toEqual([`${path}${field}`]);
    expect(await payloadsOf(sessionId)).toEqual([]);
  });

  test("a message above the limit of payloads is 413, and one above the limit of waiting messages 429", async () => {
    const sessionId = newSession();
    const large = await problemOf(
      await send(sessionId, { messages: [user("u1", "x".repeat(4_170_000))] }),
    );
    expect(large).toMatchObject({ status: 413, reason: "PAYLOAD_TOO_LARGE" });
    expect(large.violations.map(({ field }) => field)).toEqual([`${path}messages`]);
    await push(limitedRpc, "messages", { sessionId });
    await (await nextTurn(limited.grpcAddress, sessionId, "r1")).finish();
    for (const _ of [1, 2, 3]) await push(limitedRpc, "messages", { sessionId });
    const at = limited.httpAddress;
    const many = await problemOf(await send(sessionId, { messages: [user("u1", "x")] }, { at }));
    expect(many).toMatchObject({ status: 429, reason: "TOO_MANY_PENDING" });
    expect(await payloadsOf(sessionId, limitedRpc)).toHaveLength(4);
  });
});

test("an answer to an interrupt that the session has, and that is none, is refused by its field", async () => {
  const sessionId = newSession();
  const outcome = { type: "interrupt", interrupts: [{ id: "i1", reason: "ask" }] };
  await emit(rpc, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r1" });
  await emit(rpc, sessionId, { type: "RUN_FINISHED", threadId: "t", runId: "r1", outcome });
  const resume = [{ interruptId: "i1", status: "maybe" }];
  const problem = await problemOf(await post(sessionId, { resume }));
  expect(problem.violations.map(({ field }) => field)).toEqual(["resume[0].status"]);
  expect(await payloadsOf(sessionId)).toEqual([]);
});

test("inputs that are on their way at once are stored once, also with one more message", async () => {
  const sessionId = newSession();
  await push(rpc, "messages", { sessionId });
  await withSql(service.databaseUrl, async (sql) => {
    await using held = await holdSession(sql, sessionId);
    const [one, two] = [user("u1", "one"), user("u2", "two")];
    const send = (...messages: readonly object[]) => post(sessionId, { messages });
    const sent = [send(one)];
    await eventually(async () =>
      expect(await withSql(service.databaseUrl, waitingForLocks)).toBeGreaterThan(0),
    );
    sent.push(send(one, two));
    // Both have read the log, and none is stored.
    await eventually(async () => expect(await metric(service, "queue_rows")).toBe(1));
    sent.push(send(one), send(one, two)); // These may come before or after the release.
    await held.release();
    const answers = await Promise.all(sent);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    for (const answer of answers) await answer.body?.cancel();
  });
  const [, ...typed] = await payloadsOf(sessionId);
  expect(typed.map((payload) => JSON.parse(payload))).toEqual([
    { threadId: sessionId, messages: [user("u1", "one")] },
    { threadId: sessionId, messages: [user("u2", "two")] },
  ]);
});

test("an interrupt that two pages answer at once is answered once", async () => {
  const sessionId = newSession();
  const outcome = { type: "interrupt", interrupts: [{ id: "i1", reason: "ask" }] };
  await emit(rpc, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r1" });
  await emit(rpc, sessionId, { type: "RUN_FINISHED", threadId: "t", runId: "r1", outcome });
  const sent = ["resolved", "cancelled"].map((status) =>
    post(sessionId, { resume: [{ interruptId: "i1", status }] }),
  );
  const answers = await Promise.all(sent);
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  for (const answer of answers) await answer.body?.cancel();
  expect(await payloadsOf(sessionId)).toHaveLength(1);
});

test.each(["?replay=events", "?follow=true"])(
  "a message typed with %s is stored, and stays in the client",
  async (query) => {
    const sessionId = newSession();
    await emit(rpc, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r0" });
    await emit(rpc, sessionId, { type: "TEXT_MESSAGE_CHUNK", messageId: "a0", delta: "Hello." });
    await finish(rpc, sessionId, "r0");
    const page = clientNamed("@ag-ui/client 1.0.0").open(service.httpAddress, sessionId + query);
    page.type(user("u1", "question"));
    const answered = page.run();
    const turn = await nextTurn(service.grpcAddress, sessionId, "r1");
    turn.end("a1", "answer");
    await turn.finish();
    await shows(page, "Hello.", "question", "answer");
    await page.leave();
    await answered;
    expect(await payloadsOf(sessionId)).toHaveLength(1);
  },
);

test.each(PAGE_CLIENTS)("$name gets the answer of a runner that does not claim", async (client) => {
  const sessionId = newSession();
  const page = client.open(service.httpAddress, sessionId);
  for (const at of [1, 2]) {
    page.type(user(`u${at}`, "question"));
    const answered = page.run();
    await eventually(async () => expect(await payloadsOf(sessionId)).toHaveLength(at));
    const runId = `r${at}`;
    await emit(rpc, sessionId, { type: "RUN_STARTED", threadId: "t", runId });
    await emit(rpc, sessionId, { type: "TEXT_MESSAGE_CHUNK", messageId: `a${at}`, delta: "hi" });
    await finish(rpc, sessionId, runId);
    await answered;
  }
  expect(page.messages.map(({ id }) => id)).toEqual(["u1", "a1", "u2", "a2"]);
});

test("a caller who may only read gets 403, stores nothing, and can join", async () => {
  const issuer = await sharedIssuer("tokens");
  const [root, viewer, editor] = [
    await issuer.signed("root", ["admin"]),
    await issuer.signed("viewer", ["viewer"]),
    await issuer.signed("editor", ["editor"]),
  ];
  const { service: own, client } = guarded;
  const as = { metadata: { authorization: `Bearer ${root.token}` } };
  const sessionId = newSession();
  const payload = JSON.stringify({ messages: [user("u0", "hi")] });
  await push(client, "messages", { sessionId, payload }, as);
  const messages = [user("u0", "hi"), user("u1", "question")];
  const at = own.httpAddress;
  const refused = await problemOf(await post(sessionId, { messages }, { at, ...viewer }));
  expect(refused).toMatchObject({ status: 403, reason: "PERMISSION_DENIED" });
  expect(refused.detail).toBe(
    "the token does not allow message.push.user: it may read the session, and what was typed is not stored",
  );
  const denied = () =>
    own.log.filter((line) => line.includes("message.push.user") && line.includes(sessionId)).join();
  await expect.poll(denied).toContain('"audit":true');
  const joined = await post(sessionId, { messages: [] }, { at, ...viewer });
  await reads(joined, '"u0"');
  const typed = await post(sessionId, { messages }, { at, ...editor });
  expect(typed.status).toBe(200);
  await typed.body?.cancel();
  const { listSessionMessages } = SessionService.method;
  const { items } = await client.unary(listSessionMessages, { sessionId }, as);
  expect(items.map((row) => ({ payload: row.payload }))).toEqual([
    { payload },
    { payload: JSON.stringify({ threadId: sessionId, messages: [user("u1", "question")] }) },
  ]);
});

test("a message typed into a session that does not exist makes it, or is 404 with SESSION_POLICY=strict", async () => {
  const input = { messages: [user("u1", "hi")] };
  for (const [, requestOf] of ROUTES) {
    const sessionId = newSession();
    const [to, body] = requestOf(sessionId, input);
    const refused = await problemOf(await post(sessionId, body, { at: strict.httpAddress, to }));
    expect(refused).toMatchObject({ status: 404, reason: "SESSION_NOT_FOUND" });
    await (await post(sessionId, body, { to })).body?.cancel();
    expect(await payloadsOf(sessionId)).toHaveLength(1);
  }
});

test.each(PAGE_CLIENTS)(
  "$name asks again after a SIGKILL between its message and the answer, and gets the answer once",
  async (client) => {
    const sessionId = newSession();
    const answer = await post(sessionId, { messages: [user("u1", "question")] });
    const broken = answer.text().catch(() => "broken");
    expect(await payloadsOf(sessionId)).toHaveLength(1);
    await service.kill("SIGKILL");
    expect(await broken).toBe("broken");
    await service.restart();
    const again = client.open(service.httpAddress, sessionId);
    again.type(user("u1", "question"));
    const answered = again.run();
    const turn = await nextTurn(service.grpcAddress, sessionId, "r1");
    turn.start("a1", "one ");
    await shows(again, "question", "one ");
    turn.end("a1", "two");
    await turn.finish();
    await answered;
    expect(plain(again.messages)).toEqual([user("u1", "question"), assistant("a1", "one two")]);
    expect(await payloadsOf(sessionId)).toHaveLength(1);
  },
);

test.each(
  PAGE_CLIENTS.flatMap(({ name }) => ["RUN_FINISHED", "RUN_ERROR"].map((end) => ({ name, end }))),
)(
  "$name that types in an open run is told NO_RUNNER when no run follows its $end",
  async ({ name, end }) => {
    const sessionId = await createdSession(strictly);
    await emit(strictly, sessionId, { type: "RUN_STARTED", threadId: "t", runId: "r1" });
    await emit(strictly, sessionId, {
      type: "TEXT_MESSAGE_CHUNK",
      messageId: "a1",
      delta: "Hello.",
    });
    const page = clientNamed(name).open(strict.httpAddress, sessionId);
    page.type(user("u1", "question"));
    const answered = page.run().catch(() => undefined);
    await shows(page, "Hello.", "question");
    const ids = { threadId: "t", runId: "r1", message: "lost", code: "LOST" };
    await emit(strictly, sessionId, { type: end, ...ids });
    await answered;
    expect(page.codes).toEqual(end === "RUN_ERROR" ? ["LOST", "NO_RUNNER"] : ["NO_RUNNER"]);
    expect(page.messages.map(({ content }) => content)).toEqual(["Hello.", "question"]);
  },
);

test("the metric counts stored inputs, and answers without a runner", async () => {
  const sessionId = newSession();
  const input = { messages: [user("u1", "hi")] };
  const counted = (of: UsedService, outcome: string) =>
    metric(of, `agui_typed_total{outcome="${outcome}"}`).then((count) => count || 0);
  const stored = await counted(service, "stored");
  for (const _ of [1, 2]) await (await post(sessionId, input)).body?.cancel();
  expect(await counted(service, "stored")).toBe(stored + 1);
  // Of a service that other files use too.
  const unanswered = await counted(limited, "no_runner");
  const at = limited.httpAddress;
  for (const _ of [1, 2]) await reads(await post(sessionId, input, { at }), "NO_RUNNER");
  expect(await counted(limited, "no_runner")).toBeGreaterThanOrEqual(unanswered + 2);
});
