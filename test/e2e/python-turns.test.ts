/** The Python runner after a cancel that it did not follow in time. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { Driver } from "../conformance/driver.ts";
import { createdSession } from "../support/pushing.ts";
import { cancel, say } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const FOLDER = fileURLToPath(new URL("../../clients/python", import.meta.url));
const PYTHON = join(FOLDER, ".venv/bin/python");

const { service, client } = useService("strict");

test("a run that the service has ended after a cancel does not end the loop of turns", async ({
  onTestFinished,
  skip,
}) => {
  if (!existsSync(PYTHON)) {
    const advice = "there is no clients/python/.venv: run clients/python/generate.sh";
    if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
    skip(advice);
  }
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
