/** What callers who do not see every session are listed, and whose a session is. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  createSession,
  deleteSession,
  listSessions,
  type NewSession,
  ownerOf,
  type SessionScope,
} from "../../src/store/sessions.ts";
import { createLedger, type TestLedger } from "../support/ledger.ts";

let ledger: TestLedger;

beforeAll(async () => {
  ledger = await createLedger();
  for (const [id, projectId] of [
    ["alpha-1", "alpha"],
    ["beta-1", "beta"],
    ["free-1", undefined],
    ["alpha-2", "alpha"],
    ["alpha-gone", "alpha"],
    ["alpha-3", "alpha"],
  ] as const) {
    await createSession(ledger.database, { ...NAMED, id, projectId });
  }
  await deleteSession(ledger.database, "alpha-gone");
});

afterAll(() => ledger[Symbol.asyncDispose]());

const NAMED: NewSession = {
  id: "",
  name: "n",
  prompt: undefined,
  llmModel: undefined,
  parentSessionId: undefined,
  labels: undefined,
  annotations: undefined,
  projectId: undefined,
  createdByUserId: "ann",
};

const ANY: SessionScope = { projectId: undefined, sessionId: undefined };

describe("a list", () => {
  test.each([
    ["of everything", ANY, ["alpha-3", "alpha-2", "free-1", "beta-1", "alpha-1"]],
    ["of a project", { ...ANY, projectId: "alpha" }, ["alpha-3", "alpha-2", "alpha-1"]],
    ["of a project that has none", { ...ANY, projectId: "gamma" }, []],
    ["of one session", { ...ANY, sessionId: "free-1" }, ["free-1"]],
    ["of one session in its project", { projectId: "alpha", sessionId: "alpha-2" }, ["alpha-2"]],
    ["of one session in another", { projectId: "beta", sessionId: "alpha-2" }, []],
    ["of one session that is deleted", { ...ANY, sessionId: "alpha-gone" }, []],
  ])("%s holds that and counts that", async (_name, scope, ids) => {
    const { items, total } = await listSessions(ledger.database, { page: 1, size: 10, scope });
    expect(items.map(({ id }) => id)).toEqual(ids);
    expect(total).toBe(ids.length);
  });

  test("has its pages within the scope", async () => {
    const scope = { ...ANY, projectId: "alpha" };
    const { items, total } = await listSessions(ledger.database, { page: 2, size: 2, scope });
    expect(items.map(({ id }) => id)).toEqual(["alpha-1"]);
    expect(total).toBe(3);
  });

  test("says who made a session", async () => {
    const scope = { ...ANY, sessionId: "beta-1" };
    const { items } = await listSessions(ledger.database, { page: 1, size: 1, scope });
    expect(items).toMatchObject([{ createdByUserId: "ann" }]);
  });
});

describe("the owner of a session", () => {
  test.each([
    ["is its project", "alpha-1", { projectId: "alpha" }],
    ["is still there when it is deleted", "alpha-gone", { projectId: "alpha" }],
    ["is nobody where it has no project", "free-1", { projectId: undefined }],
    ["is not there when it never was", "never", undefined],
  ])("%s", async (_name, id, owner) => {
    expect(await ownerOf(ledger.database, id)).toEqual(owner);
  });
});
