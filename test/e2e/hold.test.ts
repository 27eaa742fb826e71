/** Holding a session: by gRPC, HTTP and the command line, by whom, and what the log says. */
import { beforeAll, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller } from "../support/callers.ts";
import { runHere } from "../support/command-line.ts";
import type { CallOptions } from "../support/grpc-client.ts";
import { newSession, push } from "../support/pushing.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { deleteSession, eraseSession, getSession, holdSession, listSessions } =
  SessionService.method;

const { service, client } = useService("tokens");
let admin: Caller;
let editor: Caller;
let elsewhere: Caller;

beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  admin = await issuer.signed("root", ["admin"]);
  editor = await issuer.signed("writer", ["editor", "runner"]);
  elsewhere = await issuer.signed("elsewhere", ["admin"], "other");
});

function as(caller: Caller): CallOptions {
  return { metadata: bearer(caller) };
}

function http(method: string, path: string, body?: object): Promise<Response> {
  return fetch(`http://${service.httpAddress}/api/ambient/v1/sessions/${path}`, {
    method,
    headers: {
      authorization: `Bearer ${admin.token}`,
      ...(body && { "content-type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
}

function cli(...args: readonly string[]) {
  const env = { SESSION_LEDGER_ADDRESS: service.grpcAddress, SESSION_LEDGER_TOKEN: admin.token };
  return runHere(args, { env });
}

async function made(): Promise<string> {
  const id = newSession();
  await push(client, "messages", { sessionId: id, payload: "kept" }, as(admin));
  return id;
}

test("an admin holds a session, which everybody sees and nobody deletes, until the hold ends", async () => {
  const id = await made();
  const held = await cli("hold", id, "--reason", "case 7");
  expect(held).toMatchObject({ exitCode: 0, stdout: `session ${id} is held\n` });
  expect(await client.unary(getSession, { id }, as(editor))).toMatchObject({ hold: "case 7" });
  const { items } = await client.unary(listSessions, { query: id }, as(editor));
  expect(items).toMatchObject([{ hold: "case 7" }]);
  expect((await cli("sessions", id, "--output", "table")).stdout).toMatch(/HOLD +case 7/);
  expect(await (await http("GET", id)).json()).toMatchObject({ hold: "case 7" });

  const refusal = {
    code: "FAILED_PRECONDITION",
    reason: "SESSION_HELD",
    message: expect.stringContaining("case 7"),
  };
  await expect(client.unary(deleteSession, { id }, as(admin))).rejects.toMatchObject(refusal);
  await expect(client.unary(eraseSession, { id }, as(admin))).rejects.toMatchObject(refusal);
  const refused = await http("DELETE", id);
  expect(refused.status).toBe(409);
  expect(await refused.json()).toMatchObject({ reason: "SESSION_HELD" });
  expect((await cli("erase", id, "--yes")).stderr).toContain("SESSION_HELD");

  await push(client, "messages", { sessionId: id, payload: "pushes go on" }, as(admin));
  const other = await http("PUT", `${id}/hold`, { reason: "case 8" });
  expect(await other.json()).toMatchObject({ hold: "case 8", messageSeq: "2" });
  const ended = await http("DELETE", `${id}/hold`);
  expect(ended.status).toBe(200);
  expect(await ended.json()).not.toHaveProperty("hold");
  expect(await client.unary(eraseSession, { id }, as(admin))).toMatchObject({ messages: 2n });

  const records = service.log.filter((line) => line.includes(id) && line.includes("session.hold"));
  expect(records.map((line) => JSON.parse(line))).toMatchObject([
    { audit: true, actor: "root", action: "session.hold", reason: "case 7", msg: "done" },
    { reason: "case 8", msg: "done" },
    { released: "true", msg: "done" },
  ]);
});

test("only an admin of the session holds it, and only with a reason", async () => {
  const id = await made();
  const asked = { id, reason: "case 7" };
  await expect(client.unary(holdSession, asked, as(editor))).rejects.toMatchObject({
    code: "PERMISSION_DENIED",
  });
  await expect(client.unary(holdSession, asked, as(elsewhere))).rejects.toMatchObject({
    code: "NOT_FOUND",
  });
  const wrong = [{ reason: "" }, { reason: " " }, { reason: "x".repeat(1_025) }];
  for (const fields of [...wrong, { reason: "case 7", release: true }])
    await expect(client.unary(holdSession, { id, ...fields }, as(admin))).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      violations: [{ field: "reason" }],
    });
  expect((await http("PUT", `${id}/hold`, {})).status).toBe(400);
  expect((await http("PUT", `${newSession()}/hold`, { reason: "case 7" })).status).toBe(404);
  for (const flags of [[], ["--reason", "case 7", "--release"]])
    expect(await cli("hold", id, ...flags)).toMatchObject({ exitCode: 2, stdout: "" });
  expect((await client.unary(getSession, { id }, as(admin))).hold).toBeUndefined();
});
