/** A byte order mark is skipped at the beginning of a file and of a body, and is wrong anywhere else. */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { runHere } from "../support/command-line.ts";
import { createdSession, failureOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

const MARK = "\uFEFF";
const EVENT = '{"type":"CUSTOM","name":"n","value":1}';
const LINES = `${EVENT}\n${EVENT}\n`;
const LATER = `${EVENT}\n${MARK}${EVENT}\n`;

const payloadsOf = async (sessionId: string): Promise<readonly string[]> => {
  const { items } = await client.unary(SessionService.method.listSessionEvents, { sessionId });
  return items.map(({ payload }) => payload);
};

describe("over HTTP", () => {
  const post = async (path: string, body: string, headers = {}): Promise<Response> =>
    fetch(`http://${service.httpAddress}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      // A text would lose its mark.
      body: Buffer.from(body),
    });
  const toLines = { "content-type": "application/x-ndjson" };

  test.each([
    ["an event", EVENT, {}, 1],
    ["a list of events", `[${EVENT},${EVENT}]`, {}, 2],
    ["lines", LINES, toLines, 2],
  ])("%s may begin with one, and is stored without it", async (_, body, headers, count) => {
    const sessionId = await createdSession(client);
    const path = `/api/ambient/v1/sessions/${sessionId}/events`;
    const { status } = await post(path, `${MARK}${body}`, headers);
    expect(status).toBeLessThan(300);
    expect(await payloadsOf(sessionId)).toEqual(Array.from({ length: count }, () => EVENT));
    const twice = await post(path, `${MARK}${MARK}${body}`, headers);
    expect(twice.status).toBe(400);
    expect(await payloadsOf(sessionId)).toHaveLength(count);
  });

  test("a later line with one is refused by its number", async () => {
    const sessionId = await createdSession(client);
    const path = `/api/ambient/v1/sessions/${sessionId}/events`;
    const refused = await post(path, LATER, toLines);
    expect(await refused.json()).toMatchObject({ status: 400, violations: [{ field: "[1]" }] });
    expect(await payloadsOf(sessionId)).toEqual([]);
  });

  test("any other body may begin with one", async () => {
    const made = await post("/api/ambient/v1/sessions", `${MARK}{"name":"marked"}`);
    expect(made.status).toBe(201);
    const sessionId = await createdSession(client);
    const input = {
      threadId: sessionId,
      runId: "r",
      state: {},
      messages: [],
      tools: [],
      context: [],
    };
    const body = `${MARK}${JSON.stringify({ ...input, forwardedProps: {} })}`;
    const joined = await post(`/agui/sessions/${sessionId}`, body);
    expect(joined.status).toBe(200);
    await joined.body?.cancel();
  });
});

test("over gRPC a payload is neither a file nor a body, and may not have one", async () => {
  const sessionId = await createdSession(client);
  const event = { sessionId, eventType: "CUSTOM", payload: `${MARK}${EVENT}` };
  const { pushSessionEvent } = SessionService.method;
  expect(await failureOf(client.unary(pushSessionEvent, event))).toMatchObject({
    code: "INVALID_ARGUMENT",
    violations: [{ field: "payload" }],
  });
});

test.each([["push"], ["push", "--stream"], ["import", "-", "--format", "jsonl", "--session"]])(
  "on the command line %s %s takes one before the first line only",
  async (...command) => {
    const sessionId = await createdSession(client);
    const argv = [...command, sessionId, "--address", service.grpcAddress];
    const good = await runHere(argv, { input: `${MARK}${LINES}` });
    expect(good).toMatchObject({ exitCode: 0 });
    expect(await payloadsOf(sessionId)).toEqual([EVENT, EVENT]);
    const bad = await runHere(argv, { input: `${LATER}${EVENT}\n` });
    expect(bad.exitCode).toBe(1);
    expect(bad.stderr).toContain("line 2 refused");
  },
);
