/**
 * JSON that is nested 100,000 deep: JSON.parse reads it, and JSON.stringify, and every walk of our own, runs out of
 * stack. Every reader refuses it by its name or number, and goes on.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { runHere } from "../support/command-line.ts";
import { ROUTES } from "../support/every-call.ts";
import { createdSession, failureOf } from "../support/pushing.ts";
import { emit, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();
const { claimTurn, getTranscript, pushSessionEvent, pushSessionMessage, updateSessionStatus } =
  SessionService.method;

const LEVELS = 100_000;
const LISTS = `${"[".repeat(LEVELS)}${"]".repeat(LEVELS)}`;
const OBJECTS = `${'{"a":'.repeat(LEVELS)}1${"}".repeat(LEVELS)}`;

describe("over HTTP", () => {
  const routes = Object.entries(ROUTES).flatMap(([name, { path, body, headers = {} }]) =>
    body === undefined ? [] : [{ name, path, body, headers }],
  );

  test.each(routes)("$name answers that the request is wrong", async (route) => {
    const sessionId = await createdSession(client);
    const [method = ""] = route.name.split(" ", 1);
    const whole = { ...Object(route.body(sessionId)), capabilities: {}, messages: [], state: {} };
    const texts = [LISTS, OBJECTS].flatMap((deep) => [
      deep,
      ...Object.keys(whole).map((key) =>
        JSON.stringify({ ...Object(route.body(sessionId)), [key]: "DEEP" }).replace('"DEEP"', deep),
      ),
    ]);
    for (const body of texts) {
      const { status } = await fetch(`http://${service.httpAddress}${route.path(sessionId)}`, {
        method,
        headers: { "content-type": "application/json", ...route.headers },
        body,
      });
      // A push stream names the number of the event in its answer.
      expect(status === 200 ? route.name : status).toBe(
        status === 200 ? "POST /api/ambient/v1/sessions/:id/events  stream" : 400,
      );
    }
  });
});

test("over gRPC it is refused where it is JSON, and kept as a text where it is a text", async () => {
  const sessionId = await createdSession(client);
  const wrong = { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" };
  const event = { sessionId, eventType: "RAW", payload: `{"type":"RAW","event":${LISTS}}` };
  expect(await failureOf(client.unary(pushSessionEvent, event))).toMatchObject(wrong);
  const turn = { sessionId, runStarted: `{"runId":"r","input":${OBJECTS}}`, wait: { nanos: 1 } };
  expect(await failureOf(client.unary(claimTurn, turn))).toMatchObject(wrong);
  const capabilities = `{"a":${LISTS.slice(LEVELS - 30_000, LEVELS + 30_000)}}`;
  const status = { id: sessionId, capabilities };
  expect(await failureOf(client.unary(updateSessionStatus, status))).toMatchObject(wrong);

  // Ten of these fit in an answer.
  const deepTexts = [
    `${"[".repeat(20_000)}${"]".repeat(20_000)}`,
    `${'{"a":'.repeat(20_000)}1${"}".repeat(20_000)}`,
  ];
  for (const deep of deepTexts)
    for (const payload of [
      deep,
      `{"id":"m","role":"user","content":${deep}}`,
      `{"messages":[{"id":"m","role":"user","content":${deep}}]}`,
      `{"content":[{"type":"text","text":"x"}],"more":${deep}}`,
      `[{"type":"text","text":"x","more":${deep}}]`,
    ])
      await say(client, sessionId, payload);
  await emit(client, sessionId, { type: "CUSTOM", name: "n", value: 1 });
  const metadata = {
    sessionId,
    eventType: "lifecycle",
    payload: `{"runId":"r","x":${deepTexts[0]}}`,
  };
  await client.unary(pushSessionMessage, metadata);
  const { messages } = await client.unary(getTranscript, { sessionId });
  expect(JSON.parse(messages)).toHaveLength(10);
  const base = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}`;
  for (const path of [
    "/messages",
    "/export?stream=messages",
    "/history?format=text",
    "/transcript",
  ])
    expect((await fetch(`${base}${path}`)).status).toBe(200);
  const opened = AGUI_CLIENTS[0]?.open(service.httpAddress, sessionId);
  await opened?.connect();
  expect(opened?.conversation().messages).toHaveLength(10);
});

describe("in a file", () => {
  const keys = ["type", "id", "content", "data", "input", "eventType", "sender", "rawEvent"];
  const lines = [
    LISTS,
    OBJECTS,
    ...keys.map(
      (key) => `{"type":"CUSTOM","name":"n","${key}":${key.length % 2 === 0 ? LISTS : OBJECTS}}`,
    ),
    '{"type":"CUSTOM","name":"n","value":1}',
    "no JSON",
  ];

  const commands: readonly (readonly string[])[] = [
    ...["lc4j", "spring", "history", "jsonl"].map((format) => [
      "import",
      "-",
      "--run-id",
      "r",
      "--format",
      format,
      "--session",
    ]),
    ...["events", "messages"].map((form) => ["push", "--as", form]),
    ["push", "--stream"],
  ];

  test.each(commands)(
    "%s %s is refused by its line, and the command continues",
    async (...command) => {
      const sessionId = await createdSession(client);
      const argv = [...command, sessionId, "--address", service.grpcAddress];
      const { exitCode, stderr } = await runHere(argv, { input: `${lines.join("\n")}\n` });
      expect(stderr).not.toContain("    at ");
      expect(exitCode).toBe(1);
      expect(stderr.match(/line \d+ refused/g)).toEqual(
        expect.arrayContaining([
          "line 1 refused",
          "line 2 refused",
          `line ${lines.length} refused`,
        ]),
      );
    },
  );
});
