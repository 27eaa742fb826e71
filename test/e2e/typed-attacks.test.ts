/** What AG-UI clients could break by what they type. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { newSession, push, rowsOf } from "../support/pushing.ts";
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
