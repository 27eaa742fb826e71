/**
 * What got through the doors once: a project claim that cannot be read and was taken for none, a log
 * that anybody could fill by HTTP, an erasure that left no record because its caller did not wait.
 */
import { describe, expect, test } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { bearer, type Caller, Doors } from "../support/callers.ts";
import { type CallOptions } from "../support/grpc-client.ts";
import { newSession, push } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { eraseSession, watchSessionMessages } = SessionService.method;
const SESSIONS = "/api/ambient/v1/sessions";
/** As src/auth/authorizer.ts has it. */
const RECORDS_PER_SECOND_MAX = 20;

let doors: Doors;
let root: Caller;

const { service, client } = useService(async () => {
  doors = await Doors.make();
  root = doors.add("root", ["admin"]);
  await doors.save();
  return { env: { ...doors.env, OIDC_PROJECT_CLAIM: "project.name" } };
});

const list = (token: string): Promise<Response> =>
  fetch(`http://${service.httpAddress}${SESSIONS}`, {
    headers: { authorization: `Bearer ${token}` },
  });

describe("a project claim", () => {
  test.each([
    ["null", null],
    ["null in its place", { name: null }],
    ["a text where an object is expected", "alpha"],
    ["a list where an object is expected", [{ name: "alpha" }]],
    ["empty", { name: "" }],
  ])("regression: that is %s opened every project", async (_what, project) => {
    const token = await doors.sign({ roles: ["viewer"], project });
    expect((await list(token)).status).toBe(401);
  });

  test.each([
    ["is not there", undefined],
    ["is not in its object", {}],
    ["can be read", { name: "alpha" }],
  ])("that %s is taken", async (_what, project) => {
    const token = await doors.sign({ roles: ["viewer"], project });
    expect((await list(token)).status).toBe(200);
  });
});

test("regression: every request with a bad token was a line in the log", async () => {
  const before = service.log.length;
  const beganMs = performance.now();
  const asked = 300;
  for (let count = 0; count < asked; count += 1) {
    const answer = await list(`nobody-has-this-${count}`);
    expect(answer.status).toBe(401);
    await answer.arrayBuffer();
  }
  const seconds = Math.ceil((performance.now() - beganMs) / 1_000);
  // A later line, so that all before it are here.
  await push(client, "events", { sessionId: newSession(), payload: "" }, as(root)).catch(() => {});
  await expect.poll(() => service.log.slice(before).join()).toContain('"PushSessionEvent"');
  const lines = service.log.slice(before).filter((line) => !line.includes('"PushSessionEvent"'));
  expect(lines.length).toBeGreaterThan(0);
  // The budget of each second, and one line that says how many were left out of it.
  expect(lines.length).toBeLessThanOrEqual((RECORDS_PER_SECOND_MAX + 1) * (seconds + 1));
  expect(lines.length).toBeLessThan(asked);
});

test("regression: an interrupted erasure left no audit record, though it deleted", async () => {
  const sessionId = newSession();
  for (let part = 0; part < 30; part += 1) {
    const rows = Array.from({ length: 100 }, () =>
      push(client, "messages", { sessionId }, as(root)),
    );
    await Promise.all(rows);
  }
  const afterSeq = 3_000n;
  const caller = new AbortController();
  const { signal } = caller;
  const watch = client.serverStream(watchSessionMessages, { sessionId, afterSeq }, as(root));
  await watch.attached;
  const erasing = client
    .unary(eraseSession, { id: sessionId }, { ...as(root), signal })
    .catch(({ code }) => code);
  // The watch ends with the mark; the rows, and the pauses between their batches, take longer.
  await expect(untilEnd(watch)).rejects.toMatchObject({ reason: "SESSION_DELETED" });
  caller.abort();
  expect(await erasing).toBe("CANCELLED");
  await expect
    .poll(() => service.log.filter((line) => line.includes(sessionId) && line.includes('"audit"')))
    .toHaveLength(1);
  const line = service.log.find((one) => one.includes(sessionId) && one.includes('"audit"')) ?? "";
  expect(JSON.parse(line)).toMatchObject({
    actor: "root",
    action: "session.erase",
    unfinished: "CANCELLED",
    msg: "done",
  });
});

async function untilEnd(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream) continue;
}

function as(caller: Caller): CallOptions {
  return { metadata: bearer(caller) };
}
