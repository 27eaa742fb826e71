/** Search as callers have it: over gRPC, HTTP and the command line, with tokens, and after a restart. */
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { bearer, type Caller, sessionCaller } from "../support/callers.ts";
import { runHere } from "../support/command-line.ts";
import { OpenApi } from "../support/openapi.ts";
import { newSession } from "../support/pushing.ts";
import { runCommand } from "../support/service-process.ts";
import { sharedIssuer, useService } from "../support/use-service.ts";

const { createSession, deleteSession, eraseSession, pushSessionMessage, searchTexts } =
  SessionService.method;

const pageSchema = z.object({ items: z.array(z.unknown()), next_cursor: z.string() });
const problemSchema = z.object({ violations: z.array(z.object({ field: z.string() })) });

const { service, client } = useService("tokens");
/** Without tokens. */
const { service: own, client: ownClient } = useService({});
const { service: off } = useService("limited");
const [alpha, beta] = [newSession(), newSession()];
let root: Caller;
let alice: Caller;
beforeAll(async () => {
  const issuer = await sharedIssuer("tokens");
  root = await issuer.signed("root", ["admin"]);
  alice = await issuer.signed("alice", ["viewer"], alpha);
});

async function sessionWith(projectId: string, payload: string, of = client): Promise<string> {
  const as = { metadata: bearer(root) };
  const { metadata } = await of.unary(createSession, { name: projectId, projectId }, as);
  const sessionId = metadata?.id ?? "";
  await of.unary(pushSessionMessage, { sessionId, eventType: "user", payload }, as);
  return sessionId;
}

async function sessionsFor(query: string, caller = root, more: object = {}, of = client) {
  const as = { metadata: bearer(caller) };
  const { items } = await of.unary(searchTexts, { query, ...more }, as);
  return items.map(({ sessionId }) => sessionId).toSorted();
}

const ask = (path: string, caller = root) =>
  fetch(`http://${service.httpAddress}/api/ambient/v1/search?${path}`, {
    headers: { authorization: `Bearer ${caller.token}` },
  });

test("callers find the texts of the sessions that they may read, and no others", async () => {
  const [a, b] = [await sessionWith(alpha, "a capybara"), await sessionWith(beta, "the capybara")];
  await expect.poll(() => sessionsFor("capybara")).toEqual([a, b].toSorted());
  expect(await sessionsFor("capybara", alice)).toEqual([a]);
  expect(await sessionsFor("capybara", alice, { projectId: beta })).toEqual([]);
  expect(await sessionsFor("capybara", alice, { sessionId: b })).toEqual([]);
  const runner = await sessionCaller(client, root, { sessionId: b, role: "runner" });
  expect(await sessionsFor("capybara", runner)).toEqual([b]);
  const as = { metadata: bearer(root) };
  await client.unary(deleteSession, { id: a }, as);
  expect(await sessionsFor("capybara")).toEqual([b]);
  await client.unary(eraseSession, { id: b }, as);
  expect(await sessionsFor("capybara")).toEqual([]);
});

test("HTTP answers as its document describes, and names wrong parameters", async () => {
  const document = await fetch(`http://${service.httpAddress}/openapi.json`, {
    headers: { authorization: `Bearer ${root.token}` },
  });
  const openApi = new OpenApi(await document.json());
  const asked = { method: "GET", path: "/api/ambient/v1/search" };
  const ids = [
    await sessionWith(alpha, "pangolin <b>one</b>"),
    await sessionWith(alpha, "pangolin two"),
  ];
  await expect.poll(() => sessionsFor("pangolin")).toHaveLength(2);
  const first = await ask("q=pangolin&limit=1");
  expect(await openApi.fault(asked, first.clone())).toBeUndefined();
  const page = pageSchema.parse(await first.json());
  expect(page.items).toMatchObject([
    {
      session_id: ids[1],
      session_name: alpha,
      project_id: alpha,
      stream: "messages",
      seq: 1,
      role: "user",
      event_type: "user",
      excerpt: [
        { text: "pangolin", is_match: true },
        { text: " two", is_match: false },
      ],
    },
  ]);
  const second = await ask(`q=pangolin&limit=1&cursor=${encodeURIComponent(page.next_cursor)}`);
  expect(await second.json()).toEqual({
    kind: "FoundTextList",
    items: [expect.objectContaining({ session_id: ids[0] })],
    indexed_until: expect.stringMatching(/^\d{4}-.*Z$/),
  });
  for (const [query, field] of [
    ["", "q"],
    ["q=the", "q"],
    ["q=-x", "q"],
    ["q=a%00b", "q"],
    ["q=x&role=wizard", "role"],
    ["q=x&limit=0", "limit"],
    ["q=x&cursor=x", "cursor"],
    ["q=x&cursor=best-3", "cursor"],
    ["q=x&order=best&cursor=1.0.00000000-0000-0000-0000-000000000000.s", "cursor"],
    ["q=x&after=yesterday", "after"],
    ["q=x&order=oldest", "order"],
    ["q=x&page=2", "page"],
  ] as const) {
    const refused = await ask(query);
    const fault = await openApi.fault(asked, refused.clone());
    const { violations } = problemSchema.parse(await refused.json());
    const answer = { query, fault, status: refused.status, field: violations[0]?.field };
    expect(answer).toEqual({ query, fault: undefined, status: 400, field });
  }
});

test("the command prints what it finds, also after a restart and after reindex", async () => {
  const id = await sessionWith(alpha, "An armadillo rolls.", ownClient);
  const env = () => ({ SESSION_LEDGER_ADDRESS: own.grpcAddress });
  const found = () => sessionsFor("armadillo", root, {}, ownClient);
  await expect.poll(found).toEqual([id]);
  await own.stop();
  await own.restart();
  const later = await sessionWith(alpha, "Another armadillo rolled.", ownClient);
  await expect.poll(found).toEqual([id, later].toSorted());
  const table = await runHere(["search", "armadillo", "rolling", "-s", id, "-o", "table"], {
    env: env(),
  });
  expect(table.stdout).toMatch(/message 1 +user +An \[armadillo\] \[rolls\]\.\n$/);
  const json = await runHere(["search", "armadillo", "-s", id, "--after", "1h"], { env: env() });
  expect(JSON.parse(json.stdout)).toMatchObject({ sessionId: id, seq: "1" });
  expect(await runHere(["search", "armadillo", "--before", "1h"], { env: env() })).toMatchObject({
    stdout: "",
    exitCode: 0,
  });
  expect(await runHere(["search", "the"], { env: env() })).toMatchObject({ exitCode: 4 });
  const again = await runCommand(["reindex"], { env: { DATABASE_URL: own.databaseUrl } });
  expect(again).toMatchObject({
    exitCode: 0,
    stdout: "a running service stores the texts and runs again\n",
  });
  await expect.poll(found).toEqual([id, later].toSorted());
});

test("SEARCH_LANGUAGE=off refuses, and a language that the database does not have ends the start", async () => {
  const answer = await fetch(`http://${off.httpAddress}/api/ambient/v1/search?q=x`);
  expect(await answer.json()).toMatchObject({ reason: "SEARCH_OFF" });
  const { exitCode, stderr } = await runCommand(["reindex"], {
    env: { DATABASE_URL: service.databaseUrl, SEARCH_LANGUAGE: "klingon" },
  });
  expect([exitCode, stderr]).toEqual([
    2,
    expect.stringContaining("SEARCH_LANGUAGE: expected a text search configuration"),
  ]);
});
