/** The state of a session: in its record, lists, watches, HTTP and commands, with questions and facts. */
import { expect, test } from "vitest";
import { z } from "zod";
import {
  SessionOrder,
  SessionService,
  SessionState,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { runHere } from "../support/command-line.ts";
import { failureOf, newSession } from "../support/pushing.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { createSession, forkSession, getSession, listSessions, searchTexts, updateSessionStatus } =
  SessionService.method;

/** Its own: the tests list all sessions of a state. */
const { service, client } = useService({});

const { RUNNING, WAITING_FOR_RUNNER, WAITING_FOR_PERSON, FAILED, CANCELLED, IDLE } = SessionState;

const stateOf = async (id: string): Promise<SessionState> =>
  (await client.unary(getSession, { id })).state;

async function idsIn(state: SessionState, more: object = {}): Promise<readonly string[]> {
  const { items } = await client.unary(listSessions, { state, ...more });
  return items.map(({ metadata }) => metadata?.id ?? "");
}

const INTERRUPT = {
  id: "ask-1",
  reason: "tool_approval",
  message: "May I delete the table?",
  toolCallId: "call-1",
};

/** A run that ends with a question about a call of a tool. */
async function askIn(sessionId: string, runId = "run-1"): Promise<void> {
  await emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId });
  const call = { toolCallId: "call-1" };
  const start = { type: "TOOL_CALL_START", ...call, toolCallName: "drop_table" };
  await emit(client, sessionId, start);
  await emit(client, sessionId, { type: "TOOL_CALL_ARGS", ...call, delta: '{"table":' });
  await emit(client, sessionId, { type: "TOOL_CALL_ARGS", ...call, delta: '"users"}' });
  await emit(client, sessionId, { type: "TOOL_CALL_END", ...call });
  const outcome = { type: "interrupt", interrupts: [INTERRUPT] };
  await emit(client, sessionId, { type: "RUN_FINISHED", threadId: sessionId, runId, outcome });
}

test("a session has one state at a time, from its first message to its answer", async () => {
  const id = newSession();
  await say(client, id, "Delete the table");
  expect(await stateOf(id)).toBe(WAITING_FOR_RUNNER);
  expect(await idsIn(WAITING_FOR_RUNNER, { orderBy: SessionOrder.WAITING })).toContain(id);
  await claim(client, { sessionId: id, runId: "run-1" });
  expect(await stateOf(id)).toBe(RUNNING);
  expect(await idsIn(RUNNING)).toContain(id);
  const outcome = { type: "interrupt", interrupts: [INTERRUPT] };
  await emit(client, id, { type: "RUN_FINISHED", threadId: id, runId: "run-1", outcome });
  const asking = await client.unary(getSession, { id });
  expect(asking.state).toBe(WAITING_FOR_PERSON);
  expect(asking.stateSince).toEqual(asking.lastActivityAt);
  expect(asking.questions).toEqual([]); // Only lists have them.
  await say(client, id, "Yes");
  expect(await stateOf(id)).toBe(WAITING_FOR_RUNNER);
  expect(await idsIn(WAITING_FOR_PERSON)).not.toContain(id);
  await claim(client, { sessionId: id, runId: "run-2" });
  await finish(client, id, "run-2");
  expect(await stateOf(id)).toBe(IDLE);
  for (const state of [RUNNING, WAITING_FOR_RUNNER, WAITING_FOR_PERSON, FAILED, CANCELLED])
    expect(await idsIn(state)).not.toContain(id);
  expect(await idsIn(IDLE)).toContain(id);
});

test("a failed and a cancelled run give the session their state, until the next run", async () => {
  const [failed, cancelled] = [newSession(), newSession()];
  for (const id of [failed, cancelled])
    await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-1" });
  await emit(client, failed, { type: "RUN_ERROR", message: "no model" });
  const outcome = { type: "cancelled" };
  await emit(client, cancelled, {
    type: "RUN_FINISHED",
    threadId: cancelled,
    runId: "run-1",
    outcome,
  });
  expect(await stateOf(cancelled)).toBe(CANCELLED);
  expect(await stateOf(failed)).toBe(FAILED);
  expect(await idsIn(FAILED)).toEqual([failed]);
  expect(await idsIn(CANCELLED)).toEqual([cancelled]);
  await emit(client, failed, { type: "RUN_STARTED", threadId: failed, runId: "run-2" });
  expect(await stateOf(failed)).toBe(RUNNING);
  await finish(client, failed, "run-2");
  expect(await stateOf(failed)).toBe(IDLE);
});

test("a list of what waits for a person has the questions, the longest wait first", async () => {
  const projectId = newSession();
  const ids: string[] = [];
  for (const name of ["first", "second"]) {
    const { metadata } = await client.unary(createSession, { name, projectId });
    ids.push(metadata?.id ?? "");
    await askIn(ids.at(-1) ?? "");
  }
  const request = { state: WAITING_FOR_PERSON, orderBy: SessionOrder.WAITING, projectId };
  const { items, nextPageToken } = await client.unary(listSessions, { ...request, size: 1 });
  expect(items.map(({ metadata }) => metadata?.id)).toEqual([ids[0]]);
  expect(items[0]?.questions).toMatchObject([
    {
      id: "ask-1",
      runId: "run-1",
      seq: 6n,
      message: "May I delete the table?",
      reason: "tool_approval",
      toolName: "drop_table",
      toolArguments: '{"table":"users"}',
      interrupt: JSON.stringify(INTERRUPT),
    },
  ]);
  const next = await client.unary(listSessions, { ...request, pageToken: nextPageToken });
  expect(next.items.map(({ metadata }) => metadata?.id)).toEqual([ids[1]]);
  const inbox = await runHere(["inbox", "--json", "--project", projectId], {
    env: { SESSION_LEDGER_ADDRESS: service.grpcAddress },
  });
  const lines = inbox.stdout.trim().split("\n");
  expect(
    lines.map((line) => z.object({ sessionId: z.string() }).parse(JSON.parse(line)).sessionId),
  ).toEqual(ids);
  expect(inbox.stdout).toContain("May I delete the table?");
});

/** As an adapter of LangGraph before AG-UI 1.0 asks: the run ends as if it had finished. */
async function askByGraph(sessionId: string, values: readonly unknown[], runId = "run-1") {
  await emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId });
  for (const value of values)
    await emit(client, sessionId, { type: "CUSTOM", name: "on_interrupt", value });
  await emit(client, sessionId, { type: "STATE_SNAPSHOT", snapshot: { a: 1 } });
  await finish(client, sessionId, runId);
}

test("a question of a graph waits for a person like an interrupt, until the next run", async () => {
  const projectId = newSession();
  const { metadata } = await client.unary(createSession, { name: "graph", projectId });
  const id = metadata?.id ?? "";
  await askByGraph(id, [JSON.stringify({ question: "Delete it?", rows: 3 })]);
  expect(await stateOf(id)).toBe(WAITING_FOR_PERSON);
  const listed = { state: WAITING_FOR_PERSON, projectId };
  const { items } = await client.unary(listSessions, listed);
  expect(items.map(({ questions }) => questions)).toMatchObject([
    [{ id: "on_interrupt", runId: "run-1", seq: 4n, message: "Delete it?", toolName: "" }],
  ]);
  expect(JSON.parse(items[0]?.questions[0]?.interrupt ?? "")).toEqual({
    id: "on_interrupt",
    message: "Delete it?",
    metadata: { value: { question: "Delete it?", rows: 3 } },
  });
  const fork = await client.unary(forkSession, { sessionId: id, atSeq: 4n });
  expect(fork.state).toBe(WAITING_FOR_PERSON);
  await askByGraph(id, ["Sure?", "Really?"], "run-2");
  const { items: later } = await client.unary(listSessions, listed);
  const again = later.find((session) => session.metadata?.id === id);
  expect(again?.questions.map(({ message }) => message)).toEqual(["Sure?\nReally?"]);
  await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-3" });
  await finish(client, id, "run-3");
  expect(await stateOf(id)).toBe(IDLE);
  // Of no run, and of a run that failed afterwards.
  await emit(client, id, { type: "CUSTOM", name: "on_interrupt", value: "Late?" });
  expect(await stateOf(id)).toBe(IDLE);
  await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-4" });
  await emit(client, id, { type: "CUSTOM", name: "on_interrupt", value: "Sure?" });
  await emit(client, id, { type: "RUN_ERROR", message: "no model" });
  expect(await stateOf(id)).toBe(FAILED);
});

test("a run that asks a hundred questions has them all, each with its call", async () => {
  const projectId = newSession();
  const { metadata } = await client.unary(createSession, { name: "many", projectId });
  const id = metadata?.id ?? "";
  const run = { threadId: id, runId: "run-1" };
  await emit(client, id, { type: "RUN_STARTED", ...run });
  const interrupts = Array.from({ length: 100 }, (_, n) => ({
    ...INTERRUPT,
    id: `ask-${n}`,
    toolCallId: `c${n}`,
  }));
  for (const [n, { toolCallId }] of interrupts.entries()) {
    await emit(client, id, { type: "TOOL_CALL_START", toolCallId, toolCallName: `tool-${n}` });
    await emit(client, id, { type: "TOOL_CALL_END", toolCallId });
  }
  await emit(client, id, {
    type: "RUN_FINISHED",
    ...run,
    outcome: { type: "interrupt", interrupts },
  });
  const { items } = await client.unary(listSessions, { state: WAITING_FOR_PERSON, projectId });
  const names = items[0]?.questions.map(({ toolName }) => toolName);
  expect(names).toEqual(interrupts.map((_, n) => `tool-${n}`));
});

test("a fork stands where its parent stood", async () => {
  const id = newSession();
  await askIn(id);
  const asking = await client.unary(forkSession, { sessionId: id, atSeq: 6n });
  expect(asking.state).toBe(WAITING_FOR_PERSON);
  const open = await client.unary(forkSession, { sessionId: id, atSeq: 5n });
  expect(open.state).toBe(RUNNING);
});

test("a list has the facts of its sessions", async () => {
  const projectId = newSession();
  const { metadata } = await client.unary(createSession, { name: "facts", projectId });
  const id = metadata?.id ?? "";
  await say(client, id, "Count the rows");
  await askIn(id);
  await emit(client, id, { type: "RUN_STARTED", threadId: id, runId: "run-2" });
  const text = { messageId: "m1" };
  await emit(client, id, { type: "TEXT_MESSAGE_START", ...text, role: "assistant" });
  await emit(client, id, { type: "TEXT_MESSAGE_CONTENT", ...text, delta: "There are 42 rows." });
  await emit(client, id, { type: "TEXT_MESSAGE_END", ...text });
  const usage = [{ model: "gpt-x", inputTokens: 1_200, outputTokens: 40 }];
  await emit(client, id, { type: "RUN_FINISHED", threadId: id, runId: "run-2", usage });
  const facts = async () =>
    (await client.unary(listSessions, { projectId, facts: true })).items[0]?.facts;
  await expect.poll(facts).toMatchObject({
    lastText: "There are 42 rows.",
    lastRole: "assistant",
    runs: 2,
    inputTokens: 1_200n,
    outputTokens: 40n,
    models: ["gpt-x"],
    toolCalls: 1,
    failedToolCalls: 0,
    tools: ["drop_table"],
  });
  expect((await client.unary(listSessions, { projectId })).items[0]?.facts).toBeUndefined();
});

test("lists and searches filter by agent, labels and the time of the newest row", async () => {
  const projectId = newSession();
  const labels = { team: projectId };
  const made = { projectId, agentId: "planner", labels: JSON.stringify(labels) };
  const planned = (await client.unary(createSession, { name: "a", ...made })).metadata?.id ?? "";
  const other = (await client.unary(createSession, { name: "b", projectId })).metadata?.id ?? "";
  for (const id of [planned, other]) await say(client, id, `the wombat of ${projectId}`);
  const listed = async (filter: object) =>
    (await client.unary(listSessions, { projectId, ...filter })).items.map(
      ({ metadata }) => metadata?.id,
    );
  expect(await listed({ agentId: "planner" })).toEqual([planned]);
  await client.unary(updateSessionStatus, { id: other, agentId: "writer" });
  expect(await listed({ agentId: "writer" })).toEqual([other]);
  const { lastActivityAt } = await client.unary(getSession, { id: other });
  if (lastActivityAt === undefined) throw new Error("no activity");
  expect(await listed({ activeAfter: lastActivityAt })).toEqual([other]);
  expect(await listed({ activeBefore: lastActivityAt })).toEqual([planned]);
  const found = async (filter: object) =>
    (await client.unary(searchTexts, { query: "wombat", projectId, ...filter })).items.map(
      ({ sessionId }) => sessionId,
    );
  await expect.poll(() => found({})).toHaveLength(2);
  expect(await found({ agentId: "planner" })).toEqual([planned]);
  expect(await found({ labels })).toEqual([planned]);
  expect(await found({ agentId: "nobody" })).toEqual([]);
});

test("wrong filters are refused by name, over gRPC and HTTP", async () => {
  const orderBy = SessionOrder.WAITING;
  expect(await failureOf(client.unary(listSessions, { orderBy, state: FAILED }))).toMatchObject({
    code: "INVALID_ARGUMENT",
    violations: [{ field: "order_by" }],
  });
  // @ts-expect-error -- No such state.
  expect(await failureOf(client.unary(listSessions, { state: 77 }))).toMatchObject({
    violations: [{ field: "state" }],
  });
  const ask = async (query: string) => {
    const response = await fetch(`http://${service.httpAddress}/api/ambient/v1/sessions?${query}`);
    return [response.status, await response.text()] as const;
  };
  expect(await ask("state=asleep")).toEqual([
    400,
    expect.stringContaining(
      "must be one of running, waiting_for_runner, waiting_for_person, failed, cancelled, idle",
    ),
  ]);
  expect(await ask("active_after=yesterday")).toEqual([
    400,
    expect.stringContaining("active_after"),
  ]);
  const [status, text] = await ask("state=waiting_for_person&facts=true&order_by=waiting");
  expect([status, text.includes("SESSION_STATE_WAITING_FOR_PERSON")]).toEqual([200, true]);
});
