/** The Python runner after a cancel that it did not follow in time. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { Driver } from "../conformance/driver.ts";
import { createdSession } from "../support/pushing.ts";
import { cancel, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const run = promisify(execFile);
const FOLDER = fileURLToPath(new URL("../../clients/python", import.meta.url));
const PYTHON = join(FOLDER, ".venv/bin/python");

const { service, client } = useService("strict");

function needPython(skip: (advice: string) => void): void {
  if (existsSync(PYTHON)) return;
  const advice = "there is no clients/python/.venv: run clients/python/generate.sh";
  if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
  skip(advice);
}

const TAKEN = `
import json, sys
from session_ledger import Turns, connect
with connect(sys.argv[1]) as channel, Turns(channel, sys.argv[2]) as turns:
    turn = turns.next(30)
    print(json.dumps([turn.user_messages, turn.texts]))
    turn.finish()
`;

test("files reach the agent as they were typed, and texts are not joined", async ({ skip }) => {
  // Bug: a turn had nothing but texts, joined by line feeds that nobody typed.
  needPython(skip);
  const sessionId = await createdSession(client);
  const source = { type: "data", value: "UERG", mimeType: "application/pdf" };
  const content = [
    { type: "text", text: "text A" },
    { type: "document", source, metadata: { filename: "a.pdf" } },
    { type: "text", text: "text B" },
    { type: "binary", mimeType: "image/png", data: "AAAA" },
  ];
  const messages = [
    { id: "old", role: "user", content: "known" },
    { id: "answer", role: "assistant", content: "known too" },
    { id: "m1", role: "user", content },
    { role: "user", content: "" },
  ];
  await say(client, sessionId, JSON.stringify({ threadId: sessionId, messages }));
  await say(client, sessionId, "plain\n");
  const { stdout } = await run(PYTHON, ["-c", TAKEN, service.grpcAddress, sessionId], {
    cwd: FOLDER,
  });
  const { items } = await client.unary(SessionService.method.listSessionMessages, { sessionId });
  const [typed, plain] = items.map(({ id }) => id);
  expect(JSON.parse(stdout)).toEqual([
    [
      { id: "m1", role: "user", content },
      { id: `${typed}-1`, role: "user", content: "" },
      { id: plain, role: "user", content: "plain\n" },
    ],
    ["text A", "text B", "", "plain\n"],
  ]);
});

test("a run that the service has ended after a cancel does not end the loop of turns", async ({
  onTestFinished,
  skip,
}) => {
  needPython(skip);
  const driver = new Driver([PYTHON, join(FOLDER, "conformance.py")]);
  onTestFinished(() => driver.kill());
  const sessionId = await createdSession(client);
  await driver.hello(service.grpcAddress, sessionId);
  await say(client, sessionId, "one");
  await driver.do("turns.open");
  await driver.do("turns.next", { timeout_ms: 30_000 });
  const { openRunId: runId = "" } = await client.unary(SessionService.method.getSession, {
    id: sessionId,
  });
  await cancel(client, { sessionId, runId, reason: "enough" });
  const ended = async () => {
    const { items } = await client.unary(SessionService.method.listSessionEvents, { sessionId });
    return items.map(({ eventType }) => eventType);
  };
  await expect.poll(ended).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
  await driver.do("turns.event", { event: { type: "CUSTOM", name: "late", value: 1 } });
  await driver.do("turns.finish");
  await say(client, sessionId, "two");
  const next = await driver.do("turns.next", { timeout_ms: 30_000 });
  expect(next).toMatchObject({ turn: { messages: ["two"], lost_run_id: "" } });
  await driver.do("turns.finish");
  expect(await ended()).toEqual(["RUN_STARTED", "RUN_FINISHED", "RUN_STARTED", "RUN_FINISHED"]);
});

// Bug: a person who sent such a message ended the runner with a RecursionError.
test("a message that is nested 100,000 deep is a text", async ({ skip }) => {
  needPython(skip);
  const sessionId = await createdSession(client);
  const payload = `{"messages":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
  await say(client, sessionId, payload);
  const { stdout } = await run(PYTHON, ["-c", TAKEN, service.grpcAddress, sessionId], {
    cwd: FOLDER,
  });
  expect(JSON.parse(stdout)).toMatchObject([[{ role: "user", content: payload }], [payload]]);
});
