/** The command `mcp` as an assistant has it: the client of the official SDK, over stdin and over HTTP. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller } from "../support/callers.ts";
import { newSession } from "../support/pushing.ts";
import { MAIN, runCommand, startCommand } from "../support/service-process.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { createSession, listSessionMessages } = SessionService.method;

const READS = ["search_texts", "list_sessions", "get_transcript", "get_run", "list_inbox"];
const WRITES = ["send_message", "answer_question"];
const INTERRUPT = { id: "ask-1", reason: "tool_approval", message: "May I?", toolCallId: "call-1" };

/** Its own: a test ends it, and the tests list the inbox of all sessions. */
const { service, client } = useService({});
const { service: guarded, client: guardedClient } = useService("tokens");
const project = newSession();
let editor: Caller;
let viewer: Caller;
beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  editor = await issuer.signed("editor", ["editor"], project);
  viewer = await issuer.signed("viewer", ["viewer"], project);
});

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

const resultSchema = z.object({
  content: z.tuple([z.object({ text: z.string() })]),
  structuredContent: z.record(z.string(), z.unknown()).optional(),
  isError: z.boolean().optional(),
});

/** Text and JSON of an answer; the JSON of an error is undefined. */
async function use(mcp: Client, name: string, args: Readonly<Record<string, unknown>> = {}) {
  const result = resultSchema.parse(await mcp.callTool({ name, arguments: args }));
  const [{ text }] = result.content;
  return { text, json: result.structuredContent, isError: result.isError === true };
}

/** `auto` asks for the newest protocol first, `legacy` is the one of most assistants. */
const clientOf = (mode: "auto" | "legacy") =>
  new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });

async function overStdio(
  address: string,
  flags: readonly string[] = [],
  mode: "auto" | "legacy" = "legacy",
): Promise<Client> {
  const args = [MAIN, "mcp", "--address", address, "--retry-for", "1s", ...flags];
  const mcp = clientOf(mode);
  await mcp.connect(
    new StdioClientTransport({ command: process.execPath, args, stderr: "ignore" }),
  );
  opened.push(mcp);
  return mcp;
}

/** The URL that the command prints. */
async function startHttp(address: string, flags: readonly string[] = [], token = "") {
  const env = token === "" ? {} : { SESSION_LEDGER_TOKEN: token };
  const args = ["mcp", "--http", "127.0.0.1:0", "--address", address, ...flags];
  const command = startCommand(args, env);
  const end = async () => {
    command.kill("SIGTERM");
    return (await command.result).exitCode;
  };
  opened.push({ close: async () => void (await end()) });
  for await (const url of command.stdout) return { url, end };
  throw new Error(`mcp ended: ${JSON.stringify(await command.result)}`);
}

async function overHttp(
  url: string,
  token?: string,
  mode: "auto" | "legacy" = "legacy",
): Promise<Client> {
  const mcp = clientOf(mode);
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  await mcp.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  opened.push(mcp);
  return mcp;
}

async function toolsOf(mcp: Client): Promise<readonly string[]> {
  return (await mcp.listTools()).tools.map(({ name }) => name);
}

/** A run that calls a tool and ends with a question about the call. */
async function asking(name: string): Promise<string> {
  const labels = '{"team":"blue"}';
  const request = { name, projectId: project, agentId: "agent-7", labels };
  const { metadata } = await client.unary(createSession, request);
  const id = metadata?.id ?? "";
  await say(client, id, "Delete the wombat table");
  await claim(client, { sessionId: id, runId: "run-1" });
  const call = { toolCallId: "call-1" };
  await emit(client, id, { type: "TOOL_CALL_START", ...call, toolCallName: "drop_table" });
  await emit(client, id, { type: "TOOL_CALL_ARGS", ...call, delta: '{"table":' });
  await emit(client, id, { type: "TOOL_CALL_ARGS", ...call, delta: '"wombats"}' });
  await emit(client, id, { type: "TOOL_CALL_END", ...call });
  const result = { ...call, messageId: "m-1", content: "x".repeat(5_000), role: "tool" };
  await emit(client, id, { type: "TOOL_CALL_RESULT", ...result });
  const outcome = { type: "interrupt", interrupts: [INTERRUPT] };
  const usage = [{ model: "m1", inputTokens: 12, outputTokens: 3 }];
  await emit(client, id, { type: "RUN_FINISHED", threadId: id, runId: "run-1", outcome, usage });
  return id;
}

async function payloadsOf(sessionId: string): Promise<readonly string[]> {
  const { items } = await client.unary(listSessionMessages, { sessionId });
  return items.map(({ payload }) => payload);
}

test("each tool that reads gives JSON and a text, and no tool writes without --write", async () => {
  const id = await asking("wombats");
  const mcp = await overStdio(service.grpcAddress, [], "auto");
  expect(mcp.getProtocolEra()).toBe("modern");
  expect(await toolsOf(mcp)).toEqual(READS);
  const found = async () =>
    (await use(mcp, "search_texts", { query: "wombat", labels: { team: "blue" }, after: "1h" }))
      .json;
  const entry = { session_id: id, role: "user", text: "Delete the wombat table" };
  await expect.poll(found).toMatchObject({ texts: [entry] });
  const listed = await use(mcp, "list_sessions", {
    state: "waiting_for_person",
    project,
    agent: "agent-7",
    query: "womb",
  });
  expect(listed.json).toMatchObject({ sessions: [{ id, agent: "agent-7", event_seq: "7" }] });
  expect(listed.text).toContain(`${id} (waiting_for_person`);
  const read = await use(mcp, "get_transcript", { session_id: id });
  expect(read.text).toMatch(/^User:\n {4}Delete the wombat table\n/);
  expect(read.json).toMatchObject({ up_to_seq: "7", offset: 0, text: expect.any(String) });
  const run = await use(mcp, "get_run", { session_id: id });
  expect(run.json).toMatchObject({
    run_id: "run-1",
    status: "interrupted",
    started: expect.stringMatching(/Z$/),
    ended: expect.stringMatching(/Z$/),
    tools: [
      { tool: "drop_table", arguments: '{"table":"wombats"}', result: `${"x".repeat(2_000)}…` },
    ],
    usage: [{ model: "m1", input: 12, output: 3 }],
  });
  expect(run.text).toContain('drop_table({"table":"wombats"}) -> xxx');
  const inbox = await use(mcp, "list_inbox", { project, labels: { team: "blue" } });
  const question = { session_id: id, interrupt_id: "ask-1", tool: "drop_table", message: "May I?" };
  expect(inbox.json).toMatchObject({ questions: [question] });
  expect(inbox.json).not.toHaveProperty("next_page_token");
  expect(inbox.text).toContain("ask-1");
  const red = await use(mcp, "list_inbox", { project, labels: { team: "red" } });
  expect(red.json).toMatchObject({ questions: [] });
  expect(await use(mcp, "list_inbox", { project: "none" })).toMatchObject({
    text: "Nothing was found.",
    json: { questions: [] },
  });
});

test("a long transcript comes in parts", async () => {
  const id = newSession();
  await say(client, id, `begin ${"long ".repeat(9_000)}end`);
  const mcp = await overStdio(service.grpcAddress);
  let whole = "";
  let next: unknown = 0;
  for (let part = 0; next !== undefined; part += 1) {
    const read = await use(mcp, "get_transcript", { session_id: id, offset: next });
    expect(String(read.json?.["text"]).length).toBeLessThanOrEqual(20_000);
    expect(read.text).toContain("characters ");
    whole += String(read.json?.["text"]);
    next = read.json?.["next_offset"];
    expect(part).toBeLessThan(4);
  }
  expect(whole).toMatch(/^User:\n {4}begin (?:long ){9000}end\n$/);
  const end = await use(mcp, "get_transcript", { session_id: id, offset: -10 });
  expect(end.json?.["text"]).toBe("long end\n".padStart(10));
});

test("lists, texts and questions come page by page, each once", async () => {
  const within = newSession();
  const ids: string[] = [];
  for (const n of [1, 2, 3]) {
    const { metadata } = await client.unary(createSession, {
      name: `quokka ${n}`,
      projectId: within,
    });
    const id = metadata?.id ?? "";
    ids.push(id);
    await say(client, id, `quokka ${n}`);
    const of = { threadId: id, runId: "run-1" };
    await emit(client, id, { type: "RUN_STARTED", ...of });
    const interrupts = [INTERRUPT, { ...INTERRUPT, id: "ask-2" }];
    const outcome = { type: "interrupt", interrupts };
    await emit(client, id, { type: "RUN_FINISHED", ...of, outcome });
  }
  const mcp = await overStdio(service.grpcAddress);
  const walk = async (tool: string, args: object): Promise<readonly unknown[][]> => {
    const pages: unknown[][] = [];
    let token: unknown = "";
    while (token !== undefined) {
      const read = await use(mcp, tool, { project: within, limit: 1, page_token: token, ...args });
      const [list = []] = Object.values(read.json ?? {}).filter((value) => Array.isArray(value));
      pages.push(list.map((one) => one["session_id"] ?? one["id"]));
      token = read.json?.["next_page_token"];
      expect(read.text.includes("call again with page_token")).toBe(token !== undefined);
      expect(pages.length).toBeLessThan(6);
    }
    return pages.filter((page) => page.length > 0);
  };
  const each = ids.map((id) => [id]);
  expect(await walk("list_sessions", {})).toEqual(each.toReversed());
  expect(await walk("list_inbox", {})).toEqual(ids.map((id) => [id, id]));
  await expect.poll(() => walk("search_texts", { query: "quokka" })).toEqual(each.toReversed());
  expect(await use(mcp, "list_sessions", { page_token: "1" })).toMatchObject({
    isError: true,
    text: expect.stringContaining("page_token"),
  });
});

test("with --write a message is stored once, and a question is answered as the page answers it", async () => {
  const id = await asking("numbats");
  const mcp = await overStdio(service.grpcAddress, ["--write"]);
  expect(await toolsOf(mcp)).toEqual([...READS, ...WRITES]);
  const answers = [{ interrupt_id: "ask-1", approved: true }];
  const other = await use(mcp, "answer_question", {
    session_id: id,
    answers: [{ interrupt_id: "ask-2", text: "yes" }],
  });
  expect(other).toMatchObject({
    isError: true,
    text: expect.stringContaining("these wait: ask-1"),
  });
  // The first answer is of the page. Its repetition is the same message, so the keys are the same.
  const resume = [{ interruptId: "ask-1", status: "resolved", payload: { approved: true } }];
  const input = {
    threadId: id,
    runId: "",
    state: {},
    messages: [],
    tools: [],
    context: [],
    resume,
  };
  const leaving = new AbortController();
  const page = await fetch(`http://${service.httpAddress}/agui/sessions/${id}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...input, forwardedProps: {} }),
    signal: leaving.signal,
  });
  expect(page.status).toBe(200);
  leaving.abort();
  await expect.poll(() => payloadsOf(id)).toHaveLength(2);
  const again = await use(mcp, "answer_question", { session_id: id, answers });
  expect(again.json).toMatchObject({ seq: "2", already_stored: true });
  expect(await payloadsOf(id)).toHaveLength(2);
  const refusal = [{ interrupt_id: "ask-1", approved: false }];
  const late = await use(mcp, "answer_question", { session_id: id, answers: refusal });
  expect(late).toMatchObject({ isError: true, text: expect.stringContaining("KEY_REUSED") });
  const taken = await claim(client, { sessionId: id, runId: "run-2" });
  expect(taken.messages).toHaveLength(1);
  await finish(client, id, "run-2");
  const none = await use(mcp, "answer_question", { session_id: id, answers });
  expect(none).toMatchObject({ isError: true, text: expect.stringContaining("no question waits") });
  const sent = { session_id: id, text: '{"a": "thanks"}' };
  expect((await use(mcp, "send_message", sent)).json).toMatchObject({ seq: "3" });
  const repeated = await use(mcp, "send_message", sent);
  expect(repeated.json).toMatchObject({ seq: "3", already_stored: true });
  const more = await use(mcp, "send_message", { ...sent, idempotency_key: "k2" });
  expect(more.json).toMatchObject({ seq: "4", already_stored: false });
  expect((await payloadsOf(id)).slice(2)).toEqual(
    Array(2).fill('{"text":"{\\"a\\": \\"thanks\\"}"}'),
  );
});

test("a question of a graph is listed and answered, and nothing else is stored as its answer", async () => {
  const id = newSession();
  const mcp = await overStdio(service.grpcAddress, ["--write"]);
  const answers = [{ interrupt_id: "on_interrupt", value: { rows: [1] } }];
  const ask = () => use(mcp, "answer_question", { session_id: id, answers });
  await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-1" });
  await emit(client, id, { type: "CUSTOM", name: "on_interrupt", value: "Which rows?" });
  expect((await ask()).text).toContain("no question waits");
  await finish(client, id, "run-1");
  expect((await use(mcp, "list_inbox")).text).toContain("on_interrupt");
  expect((await ask()).json).toMatchObject({ seq: "1", already_stored: false });
  expect(JSON.parse((await payloadsOf(id))[0] ?? "")).toEqual({
    threadId: id,
    messages: [],
    forwardedProps: { command: { resume: { rows: [1] } } },
  });
  expect((await ask()).text).toContain("no question waits");
});

test("the questions of a run are answered in one call, each in the form that it asks for", async () => {
  const id = newSession();
  const boolean = { id: "a", reason: "input", responseSchema: { type: "boolean" } };
  const properties = { sure: { type: "boolean" } };
  const member = { id: "b", reason: "input", responseSchema: { type: "object", properties } };
  const interrupts = [boolean, member, { id: "c", reason: "input" }, { id: "d", reason: "input" }];
  await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-1" });
  const outcome = { type: "interrupt", interrupts };
  await emit(client, id, { type: "RUN_FINISHED", threadId: id, runId: "run-1", outcome });
  const answers = [
    { interrupt_id: "a", approved: false },
    { interrupt_id: "b", approved: true },
    { interrupt_id: "c", text: "blue" },
    { interrupt_id: "d", value: { size: 2 } },
  ];
  const mcp = await overStdio(service.grpcAddress, ["--write"]);
  const few = await use(mcp, "answer_question", { session_id: id, answers: answers.slice(1) });
  expect(few).toMatchObject({ isError: true, text: expect.stringContaining("these wait: a, b") });
  expect(await payloadsOf(id)).toEqual([]);
  expect((await use(mcp, "answer_question", { session_id: id, answers })).isError).toBe(false);
  const [stored = ""] = await payloadsOf(id);
  expect(JSON.parse(stored).resume).toEqual([
    { interruptId: "a", status: "resolved", payload: false },
    { interruptId: "b", status: "resolved", payload: { sure: true } },
    { interruptId: "c", status: "resolved", payload: "blue" },
    { interruptId: "d", status: "resolved", payload: { size: 2 } },
  ]);
});

test("wrong input names its field, and a refusal of the service is an error of the tool", async () => {
  const mcp = await overStdio(service.grpcAddress, ["--write"]);
  const id = newSession();
  for (const [tool, args, field] of [
    ["search_texts", {}, "query"],
    ["search_texts", { query: "the" }, "query"],
    ["search_texts", { query: "x", after: "yesterday" }, "after"],
    ["search_texts", { query: "x", limit: 0 }, "limit"],
    ["list_sessions", { state: "asleep" }, "state"],
    ["list_sessions", { limit: 101 }, "limit"],
    ["list_sessions", { labels: { team: 1 } }, "labels.team"],
    ["list_sessions", { page: 2 }, "page"],
    ["get_transcript", { session_id: id, up_to_seq: -1 }, "up_to_seq"],
    ["get_transcript", { session_id: id }, "SESSION_NOT_FOUND"],
    ["get_run", { session_id: id }, "SESSION_NOT_FOUND"],
    ["get_run", {}, "session_id"],
    ["send_message", { session_id: id, text: "" }, "text"],
    ["answer_question", { session_id: id, answers: [{ interrupt_id: "a" }] }, "answers.0"],
    ["answer_question", { session_id: id, answers: [] }, "answers"],
  ] as const) {
    const { isError, text } = await use(mcp, tool, args);
    expect({ tool, args, isError, text }).toMatchObject({
      isError: true,
      text: expect.stringContaining(field),
    });
  }
});

describe("over HTTP", () => {
  test("the token of each request decides", async () => {
    const as = { metadata: bearer(editor) };
    const made = await guardedClient.unary(createSession, { name: "n", projectId: project }, as);
    const session_id = made.metadata?.id ?? "";
    const { url, end } = await startHttp(guarded.grpcAddress, ["--write"]);
    const [edits, views, nobody] = [
      await overHttp(url, editor.token, "auto"),
      await overHttp(url, viewer.token),
      await overHttp(url),
    ];
    expect(await toolsOf(views)).toEqual([...READS, ...WRITES]);
    const sent = await use(edits, "send_message", { session_id, text: "hello" });
    expect(sent.json).toMatchObject({ seq: "1" });
    const read = await use(views, "get_transcript", { session_id });
    expect(read.text).toContain("hello");
    expect(await use(views, "send_message", { session_id, text: "no" })).toMatchObject({
      isError: true,
      text: expect.stringContaining("PERMISSION_DENIED"),
    });
    expect(await use(nobody, "get_transcript", { session_id })).toMatchObject({
      isError: true,
      text: expect.stringContaining("UNAUTHENTICATED"),
    });
    expect(await end()).toBe(0);
  });

  test("without a header the token of the command is used, and tools only read without --write", async () => {
    const { url } = await startHttp(guarded.grpcAddress, [], viewer.token);
    const mcp = await overHttp(url);
    expect(await toolsOf(mcp)).toEqual(READS);
    const { isError } = await use(mcp, "list_sessions", { project });
    expect(isError).toBe(false);
    const wrong = await overHttp(url, "wrong");
    expect(await use(wrong, "list_sessions")).toMatchObject({
      isError: true,
      text: expect.stringContaining("UNAUTHENTICATED"),
    });
  });

  test("foreign origins, foreign hosts, other paths and other schemes of tokens are refused", async () => {
    const { url } = await startHttp(guarded.grpcAddress, [], viewer.token);
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    const statusOf = async (headers: Readonly<Record<string, string>>, at = url) => {
      const accept = "application/json, text/event-stream";
      const all = { "content-type": "application/json", accept, ...headers };
      return (await fetch(at, { method: "POST", body, headers: all })).status;
    };
    expect(await statusOf({})).toBe(200);
    expect(await statusOf({ origin: "http://localhost:3000" })).toBe(200);
    expect(await statusOf({ origin: "https://evil.example" })).toBe(403);
    expect(await statusOf({ origin: "null" })).toBe(403);
    expect(await statusOf({ authorization: "Basic abc" })).toBe(401);
    expect(await statusOf({}, url.replace("/mcp", "/other"))).toBe(404);
    const asEvil = httpRequest(url, { method: "POST", headers: { host: "evil.example" } }).end(
      body,
    );
    const [answer] = await once(asEvil, "response");
    expect(answer.resume().statusCode).toBe(403);
  });

  test("beyond loopback a service with tokens is required, and then a header", async () => {
    const args = (address: string) => ["mcp", "--http", "0.0.0.0:0", "--address", address];
    const refused = await runCommand(args(service.grpcAddress));
    expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
    expect(refused.stderr).toContain("--http: expected a loopback address");
    const { url } = await startHttp(guarded.grpcAddress, ["--http", "0.0.0.0:0"], viewer.token);
    const near = url.replace("0.0.0.0", "127.0.0.1");
    const bare = await fetch(near, { method: "POST", body: "{}" });
    expect(bare.status).toBe(401);
    expect(bare.headers.get("www-authenticate")).toBe("Bearer");
    const { isError } = await use(await overHttp(near, viewer.token), "list_sessions");
    expect(isError).toBe(false);
  });
});

test("stdout has only the protocol, and the end of stdin and SIGINT end the command with 0", async () => {
  const initialize = {
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "test", version: "1" },
    },
  };
  for (const ending of ["end", "SIGINT"] as const) {
    const args = ["mcp", "--address", service.grpcAddress];
    const command = startCommand(args, {}, { isInputOpen: true });
    command.stdin.write(`no protocol\n${JSON.stringify(initialize)}\n`);
    const lines: unknown[] = [];
    for await (const line of command.stdout) {
      lines.push(JSON.parse(line));
      if (ending === "end") command.stdin.end();
      else command.kill(ending);
    }
    expect(lines).toMatchObject([{ id: 1, result: { serverInfo: { name: "session-ledger" } } }]);
    expect((await command.result).exitCode).toBe(0);
  }
});

test("while the service is away a call is an error, and the next call works again", async () => {
  const mcp = await overStdio(service.grpcAddress);
  await service.kill("SIGKILL");
  const away = await use(mcp, "list_sessions");
  expect(away).toMatchObject({ isError: true, text: expect.stringContaining("UNAVAILABLE") });
  expect(await toolsOf(mcp)).toEqual(READS);
  await service.restart();
  await expect.poll(async () => (await use(mcp, "list_sessions")).isError).toBe(false);
});
