/**
 * What got through the doors once: a project claim that cannot be read and was taken for none, and an
 * erasure that left no record because its caller did not wait.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller, type Issuer } from "../support/callers.ts";
import type { CallOptions, RpcClient } from "../support/grpc-client.ts";
import { newSession, push } from "../support/pushing.ts";
import { sharedClient, sharedIssuer, useService } from "../support/use-service.ts";

const { eraseSession, listSessions, watchSessionMessages } = SessionService.method;

const { service, client } = useService("tokens");
let root: Caller;
beforeAll(async () => {
  root = await (await sharedIssuer("tokens")).signed("root", ["admin"]);
});

describe("a project claim in an object", () => {
  let issuer: Issuer;
  let guarded: RpcClient;
  beforeAll(async () => {
    issuer = await sharedIssuer("tls");
    guarded = await sharedClient("tls");
  });
  afterAll(() => guarded.close());

  const list = async (project: unknown): Promise<string> => {
    const token = await issuer.sign({ roles: ["viewer"], project });
    const listed = guarded.unary(listSessions, { size: 1 }, as({ token }));
    return listed.then(
      () => "OK",
      ({ code }) => code,
    );
  };

  test.each([
    ["null", null],
    ["null in its place", { name: null }],
    ["a text where an object is expected", "alpha"],
    ["a list where an object is expected", [{ name: "alpha" }]],
    ["empty", { name: "" }],
  ])("regression: that is %s opened every project", async (_what, project) => {
    expect(await list(project)).toBe("UNAUTHENTICATED");
  });

  test.each([
    ["is missing", undefined],
    ["is not in its object", {}],
    ["can be read", { name: "alpha" }],
  ])("that %s is taken", async (_what, project) => {
    expect(await list(project)).toBe("OK");
  });
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

function as(caller: Pick<Caller, "token">): CallOptions {
  return { metadata: bearer(caller) };
}
