/** What AG-UI clients could break by what they type. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { newSession, push, rowsOf } from "../support/pushing.ts";
import { claim, emit } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

const problemSchema = z.object({
  status: z.number(),
  violations: z.array(z.object({ field: z.string(), description: z.string() })).default([]),
});

function ask(path: string, body: string): Promise<Response> {
  const init = { method: "POST", body, headers: { "content-type": "application/json" } };
  return fetch(`http://${service.httpAddress}${path}`, init);
}

/** The refusal of an input; nothing of it may be stored. */
async function refusal(sessionId: string, input: string): Promise<readonly unknown[]> {
  const answer = await ask(`/agui/sessions/${sessionId}`, input);
  const { status, violations } = problemSchema.parse(await answer.json());
  return [status, ...violations.map(({ field, description }) => [field, description])];
}

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);

describe("regression: deep nesting was an internal error", () => {
  const user = '{"id":"1","role":"user","content":"hi"}';
  test.each([
    ["a message", `{"messages":[{"id":"1","role":"user","content":"","x":${nested(62)}}]}`],
    ["a state", `{"messages":[${user}],"state":{"x":${nested(62)}}}`],
  ])("in %s, and names it now", async (_name, input) => {
    const sessionId = newSession();
    const field = input.includes("state") ? "state" : "messages[0]";
    const description = `${field} must be at most 62 levels deep`;
    expect(await refusal(sessionId, input)).toEqual([400, [field, description]]);
  });

  test.each([
    ["a message", `{"messages":[{"id":"1","role":"user","content":${nested(100_000)}}]}`],
    ["an answer", `{"messages":[],"resume":[{"interruptId":"i","payload":${nested(100_000)}}]}`],
    ["a state", `{"messages":[${user}],"state":{"x":${nested(100_000)}}}`],
  ])("in %s, and the body is refused now", async (_name, input) => {
    const description = "the body must be at most 512 levels deep";
    expect(await refusal(newSession(), input)).toEqual([400, ["", description]]);
  });

  test("for every reader of a session, after one pushed message", async () => {
    const sessionId = newSession();
    const payload = `{"messages":[{"id":"1","role":"user","content":${nested(100_000)}}]}`;
    await push(client, "messages", { sessionId, payload });
    const path = `/api/ambient/v1/sessions/${sessionId}/transcript`;
    const answer = await fetch(`http://${service.httpAddress}${path}`);
    expect(await answer.json()).toMatchObject({ messages: [{ role: "user", content: payload }] });
    const body = JSON.stringify({ threadId: sessionId, messages: [] });
    const joined = await ask("/copilotkit/agent/any/connect", body);
    expect(await joined.text()).toContain("MESSAGES_SNAPSHOT");
    expect(await rowsOf(client, "messages", sessionId)).toHaveLength(1);
  });
});

test("regression: of two typed messages with one id, the second was dropped without a word", async () => {
  const sessionId = newSession();
  const of = (content: string) => ({ id: "u", role: "user", content });
  const field = "messages[1].id";
  const twice = [field, `${field} occurs twice, with different content`];
  const input = (...messages: readonly object[]) => JSON.stringify({ messages });
  expect(await refusal(sessionId, input(of("one"), of("two")))).toEqual([400, twice]);
  const [answer, other] = [{ interruptId: 5 }, "x"];
  expect(await refusal(sessionId, JSON.stringify({ resume: [answer, other] }))).toEqual([
    400,
    ["resume[0].interruptId", "resume[0].interruptId must be a text"],
    ["resume[0].status", "resume[0].status must be resolved or cancelled"],
    ["resume[1]", "resume[1] must be an object"],
  ]);
});

test("regression: two tabs of a page, which both ran its tool, gave the agent two results", async () => {
  const sessionId = newSession();
  const events = [
    { type: "RUN_STARTED", threadId: sessionId, runId: "r1" },
    { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "pick" },
    { type: "TOOL_CALL_END", toolCallId: "c1" },
    { type: "RUN_FINISHED", threadId: sessionId, runId: "r1" },
  ];
  for (const event of events) await emit(client, sessionId, event);
  const ids = Array.from({ length: 6 }, (_, tab) => `t${tab}`);
  const answers = ids.map(async (id) => {
    const results = [{ id, role: "tool", toolCallId: "c1", content: id }];
    const body = JSON.stringify({ threadId: sessionId, messages: results });
    return (await ask(`/agui/sessions/${sessionId}`, body)).text();
  });
  const wait = { seconds: 30n };
  const turn = await claim(client, { sessionId, runId: "r2", producerEpoch: 1n, wait });
  await emit(client, sessionId, { type: "RUN_FINISHED", threadId: sessionId, runId: "r2" }, 1n);
  // Every tab gets the answer of the run that took the result.
  for (const answer of await Promise.all(answers)) expect(answer).toContain('"runId":"r2"');
  expect(turn.messages).toHaveLength(1);
  expect(await rowsOf(client, "messages", sessionId)).toHaveLength(1);
});
