/** Lists for callers who may not see every session, and the owner of a session. */
import { create, toBinary } from "@bufbuild/protobuf";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import {
  ListSessionsRequestSchema,
  ListSessionsResponseSchema,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { createSessionHandlers } from "../../src/handlers/sessions.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { listSessions } from "../../src/store/session-list.ts";
import {
  createSession,
  type NewSession,
  ownerOf,
  type SessionScope,
} from "../../src/store/sessions.ts";
import { useLedger } from "../support/ledger.ts";

const ledger = await useLedger();

beforeAll(async () => {
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

describe("a list of sessions", () => {
  test.each([
    ["of everything", ANY, ["alpha-3", "alpha-2", "free-1", "beta-1", "alpha-1"]],
    ["of a project", { ...ANY, projectId: "alpha" }, ["alpha-3", "alpha-2", "alpha-1"]],
    ["of a project that has none", { ...ANY, projectId: "gamma" }, []],
    ["of one session", { ...ANY, sessionId: "free-1" }, ["free-1"]],
    ["of one session in its project", { projectId: "alpha", sessionId: "alpha-2" }, ["alpha-2"]],
    ["of one session in another", { projectId: "beta", sessionId: "alpha-2" }, []],
    ["of one session that is deleted", { ...ANY, sessionId: "alpha-gone" }, []],
  ])("%s holds and counts only those sessions", async (_name, scope, ids) => {
    const { items, total } = await listSessions(ledger.database, { from: 0, size: 10, scope });
    expect(items.map(({ id }) => id)).toEqual(ids);
    expect(total).toEqual({ count: ids.length, isLowerBound: false });
  });

  test("has the pages of its scope", async () => {
    const scope = { ...ANY, projectId: "alpha" };
    const { items, total } = await listSessions(ledger.database, { from: 2, size: 2, scope });
    expect(items.map(({ id }) => id)).toEqual(["alpha-1"]);
    expect(total).toEqual({ count: 3, isLowerBound: false });
  });

  test("has the creator of each session", async () => {
    const scope = { ...ANY, sessionId: "beta-1" };
    const { items } = await listSessions(ledger.database, { from: 0, size: 1, scope });
    expect(items).toMatchObject([{ createdByUserId: "ann" }]);
  });
});

describe("a page", () => {
  const PAGE_BYTES_MAX = 3 * 1_048_576;

  /** 1,000 sessions of a project of their own: the whole page of them, and one of the first ten. */
  async function pagesOf(texts: {
    readonly project: string;
    readonly name: string;
    readonly labels: string;
    readonly prompt: string;
  }) {
    const { name, labels, prompt } = texts;
    const projectId = `${texts.project}-${name}`;
    await ledger.database.run(sql`
      insert into sessions (id, name, project_id, created_by_user_id, llm_model, parent_session_id,
        prompt, labels, created_at, updated_at, phase, start_time)
      select ${texts.project} || repeat('i', 100) || n, n || ${name}, ${projectId}, ${name}, ${name},
        repeat('p', 128), ${prompt}, ${labels}, now(), now(), 'Running', now()
      from generate_series(1, 1000) n`);
    const { listSessions: list } = createSessionHandlers(ledger.database, {
      onChange: () => undefined,
      onDelete: () => undefined,
    });
    const context = {
      principal: { ...ANONYMOUS, projectId },
      signal: AbortSignal.abort(),
      hasEnded: false,
    };
    const read = (size: number) => list(create(ListSessionsRequestSchema, { size }), context);
    const [whole, few] = [await read(1_000), await read(10)];
    expect(whole).toMatchObject({ metadata: { size: 1_000, total: 1_000 } });
    expect(few.items[0]).toMatchObject({ llmModel: name, labels, prompt });
    return { bytes: toBinary(ListSessionsResponseSchema, whole).length, first: whole.items[0] };
  }

  const x = (length: number): string => "x".repeat(length);
  test.each([
    {
      left: "its prompts",
      prompt: x(3_000),
      labels: "",
      name: x(580),
      kept: ["labels", "llmModel", "projectId"],
    },
    {
      left: "its prompts and labels",
      prompt: "",
      labels: x(3_000),
      name: x(10),
      kept: ["llmModel", "projectId"],
    },
    {
      left: "all but ids, phases, times and the beginning of names",
      prompt: "",
      labels: "",
      name: x(1_000),
      kept: [],
    },
  ])("a page of sessions above 3 MiB comes without $left", async ({ left, kept, ...texts }) => {
    const { bytes, first } = await pagesOf({ ...texts, project: left });
    expect(bytes).toBeLessThanOrEqual(PAGE_BYTES_MAX);
    expect(first).toMatchObject({ phase: "Running", name: expect.stringMatching(/^\d+x{10}/) });
    const large = ["prompt", "labels", "llmModel", "projectId"] as const;
    expect(large.filter((field) => first?.[field] !== undefined)).toEqual(kept);
  });
});

describe("the owner of a session", () => {
  test.each([
    ["is its project", "alpha-1", { projectId: "alpha" }],
    ["is still stored after its deletion", "alpha-gone", { projectId: "alpha" }],
    ["is absent for a session without a project", "free-1", { projectId: undefined }],
    ["is absent for a session that never existed", "never", undefined],
  ])("%s", async (_name, id, owner) => {
    expect(await ownerOf(ledger.database, id)).toEqual(owner);
  });
});
