/**
 * Numbers that no double holds, and numbers that are spelled otherwise than JavaScript prints them: each
 * way out has the digits that came in. The texts are compared, because a JavaScript client would hide it.
 */
import { HttpAgent } from "@ag-ui/client";
import { expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { newSession, push } from "../support/pushing.ts";
import { emit, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

/** Each with a sign of its place. */
const number = (place: number): string => `100000000000000000${place}`;
const object = (place: number): string => `{"n":${number(place)},"price":${place}.10}`;

async function event(sessionId: string, eventType: string, members: string): Promise<void> {
  const payload = `{"type":"${eventType}"${members}}`;
  await push(client, "events", { sessionId, eventType, payload });
}

async function textOf(path: string, init?: RequestInit): Promise<string> {
  const answer = await fetch(`http://${service.httpAddress}${path}`, init);
  expect(answer.status).toBe(200);
  return answer.text();
}

function joinOf(sessionId: string, query = ""): Promise<string> {
  const input = { threadId: sessionId, runId: "r", messages: [], tools: [], context: [] };
  const body = JSON.stringify({ ...input, state: {}, forwardedProps: {}, protocolVersion: "1.0" });
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  return textOf(`/agui/sessions/${sessionId}${query}`, { method: "POST", headers, body });
}

/** The places of the objects in a text. */
function placesIn(text: string): readonly number[] {
  const found = text.matchAll(/\{"n":100000000000000000(\d+),"price":(\d+)\.10\}/g);
  const places = Array.from(found, ([, first, second]) => (first === second ? Number(first) : -1));
  return [...new Set(places)].toSorted((one, other) => one - other);
}

test("the digits of states, activities, metadata, results, questions and files stay", async () => {
  const sessionId = newSession();
  await push(client, "messages", {
    sessionId,
    payload: `{"messages":[{"id":"u","role":"user","content":[{"type":"text","text":"hi","metadata":${object(1)}}]}]}`,
  });
  await event(sessionId, "RUN_STARTED", `,"threadId":"t","runId":"r1"`);
  await event(sessionId, "STATE_SNAPSHOT", `,"snapshot":{"a":${object(2)},"b":0,"c":[]}`);
  const patch = `[{"op":"replace","path":"/b","value":${object(3)}},{"op":"test","path":"/a","value":${object(2)}},{"op":"copy","from":"/a","path":"/c/-"}]`;
  await event(sessionId, "STATE_DELTA", `,"delta":${patch}`);
  const activity = `,"messageId":"act","activityType":"plan"`;
  await event(sessionId, "ACTIVITY_SNAPSHOT", `${activity},"content":{"x":${object(4)},"y":0}`);
  const change = `[{"op":"add","path":"/y","value":${object(5)}}]`;
  await event(sessionId, "ACTIVITY_DELTA", `${activity},"patch":${change}`);
  await event(sessionId, "TEXT_MESSAGE_START", `,"messageId":"m","metadata":{"k":${object(6)}}`);
  await event(sessionId, "TEXT_MESSAGE_CONTENT", `,"messageId":"m","delta":"so"`);
  await event(sessionId, "TEXT_MESSAGE_END", `,"messageId":"m"`);
  await event(sessionId, "TOOL_CALL_START", `,"toolCallId":"c","toolCallName":"f"`);
  await event(sessionId, "TOOL_CALL_END", `,"toolCallId":"c"`);
  const part = `{"type":"text","text":"2","metadata":${object(7)}}`;
  await event(
    sessionId,
    "TOOL_CALL_RESULT",
    `,"messageId":"res","toolCallId":"c","content":[${part}]`,
  );
  const interrupt = `{"id":"i","reason":"ask","metadata":${object(8)}}`;
  const outcome = `{"type":"interrupt","interrupts":[${interrupt}]}`;
  await event(sessionId, "RUN_FINISHED", `,"threadId":"t","runId":"r1","outcome":${outcome}`);

  const all = [1, 2, 3, 4, 5, 6, 7, 8];
  const transcript = await client.unary(SessionService.method.getTranscript, { sessionId });
  const { messages, state = "", interrupts } = transcript;
  expect(placesIn(messages + state + interrupts)).toEqual(all);
  expect(placesIn(await textOf(`/api/ambient/v1/sessions/${sessionId}/transcript`))).toEqual(all);
  expect(placesIn(await joinOf(sessionId))).toEqual(all);
  expect(placesIn(await joinOf(sessionId, "?replay=events"))).toEqual(all);
});

test("the digits of the messages of a snapshot stay, also where the agent's runner makes it", async () => {
  const sessionId = newSession();
  const message = `{"id":"m","role":"assistant","content":"so","metadata":${object(1)}}`;
  await event(sessionId, "RUN_STARTED", `,"threadId":"t","runId":"r1"`);
  await event(sessionId, "MESSAGES_SNAPSHOT", `,"messages":[${message}]`);
  await event(sessionId, "CUSTOM", `,"name":"n","value":${object(2)}`);
  await emit(client, sessionId, { type: "RUN_FINISHED", threadId: "t", runId: "r1" });
  expect(placesIn(await joinOf(sessionId))).toEqual([1]);
  expect(placesIn(await joinOf(sessionId, "?replay=events"))).toEqual([1, 2]);
});

test("the digits of an input sent over AG-UI are stored", async () => {
  const sessionId = newSession();
  await emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId: "r1" });
  await emit(client, sessionId, { type: "RUN_FINISHED", threadId: sessionId, runId: "r1" });
  const message = `{"id":"u","role":"user","content":"hi","metadata":{"k":${object(1)}}}`;
  const members = `"state":{"a":${object(2)}},"messages":[${message}],"tools":[],"context":[]`;
  const body = `{"threadId":"${sessionId}","runId":"r",${members},"forwardedProps":${object(3)}}`;
  const leaving = new AbortController();
  const asked = fetch(`http://${service.httpAddress}/agui/sessions/${sessionId}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body,
    signal: leaving.signal,
  });
  const stored = async () => {
    const { items } = await client.unary(SessionService.method.listSessionMessages, { sessionId });
    return placesIn(items.map(({ payload }) => payload).join());
  };
  await expect.poll(stored).toEqual([1, 2, 3]);
  leaving.abort();
  await asked.then((answer) => answer.text()).catch(() => undefined);
  const transcript = await client.unary(SessionService.method.getTranscript, { sessionId });
  expect(placesIn(transcript.messages)).toEqual([1]);
});

test("a client of JavaScript still gets numbers", async () => {
  const sessionId = newSession();
  await say(client, sessionId, "hi");
  await event(sessionId, "RUN_STARTED", `,"threadId":"t","runId":"r1","timestamp":1700000000000.0`);
  await event(sessionId, "STATE_SNAPSHOT", `,"snapshot":${object(1)}`);
  const usage = `[{"provider":"p","model":"m","inputTokens":1.0,"outputTokens":2}]`;
  await event(sessionId, "RUN_FINISHED", `,"threadId":"t","runId":"r1","usage":${usage}`);
  const agent = new HttpAgent({ url: `http://${service.httpAddress}/agui/sessions/${sessionId}` });
  await agent.runAgent();
  expect(agent.state).toEqual({ n: 1e18, price: 1.1 });
});
