import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { IssueSessionTokenRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Audit } from "../../src/auth/authorizer.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { createIssueSessionToken } from "../../src/handlers/tokens.ts";

const HOUR_MS = 3_600_000;
const EXPIRES_AT_MS = 1_780_272_060_000;

interface Issued {
  readonly sessionId: string;
  readonly role: string;
  readonly ttlMs: number;
}

function fixture(ttlMaxMs = 24 * HOUR_MS) {
  const issued: Issued[] = [];
  const done: {
    readonly act: Parameters<Audit["done"]>[0];
    readonly fields: object | undefined;
  }[] = [];
  const audit: Audit = {
    denied: () => undefined,
    unauthenticated: () => undefined,
    done: (act, fields) => done.push({ act, fields }),
  };
  const tokens = {
    async issue(of: Issued) {
      issued.push(of);
      return { id: "jti", token: "secret", expiresAtMs: EXPIRES_AT_MS };
    },
  };
  const record = {
    id: "s1",
    name: "",
    projectId: null,
    phase: null,
    prompt: null,
    createdByUserId: null,
    llmModel: null,
    agentId: null,
    parentSessionId: null,
    forkedAtSeq: null,
    forkedAtMessageSeq: null,
    labels: null,
    annotations: null,
    capabilities: null,
    startTimeMicros: null,
    completionTimeMicros: null,
    createdAtMicros: 0n,
    updatedAtMicros: 0n,
    lastActivityAtMicros: null,
    messageSeq: 0n,
    eventSeq: 0n,
    rowCount: 0n,
    payloadBytes: 0n,
    openRunId: null,
    runOutcome: null,
    runEndedAtMicros: null,
    waitingSinceMicros: null,
    turnSeq: 0n,
    pendingCount: 0n,
    hold: null,
  };
  const getSession = async (id: string) => (id === "s1" ? record : undefined);
  const issue = createIssueSessionToken(
    { tokens, getSession, audit },
    { sessionTokenTtlMaxMs: ttlMaxMs },
  );
  const context = { principal: ANONYMOUS, signal: new AbortController().signal, hasEnded: false };
  const ask = (given: {
    readonly sessionId?: string;
    readonly role?: string;
    readonly ttl?: { readonly seconds?: bigint; readonly nanos?: number };
  }) => {
    const request = create(IssueSessionTokenRequestSchema, { sessionId: "s1", ...given });
    return issue(request, context);
  };
  return { ask, issued, done };
}

async function violationsOf(answer: Promise<unknown>): Promise<readonly string[]> {
  try {
    await answer;
  } catch (error) {
    const { code, violations } = ServiceError.from(error);
    return code === "invalid_argument" ? violations.map(({ field }) => field) : [code];
  }
  return [];
}

describe("IssueSessionToken", () => {
  test("issues for one hour and the role runner by default", async () => {
    const { ask, issued } = fixture();
    expect(await ask({})).toMatchObject({
      token: "secret",
      expiresAt: { seconds: BigInt(EXPIRES_AT_MS / 1_000), nanos: 0 },
    });
    await ask({ role: "viewer", ttl: { seconds: 90n, nanos: 500_000_000 } });
    expect(issued).toEqual([
      { sessionId: "s1", role: "runner", ttlMs: HOUR_MS },
      { sessionId: "s1", role: "viewer", ttlMs: 90_500 },
    ]);
  });

  test("issues for the maximum life when that is below one hour", async () => {
    const { ask, issued } = fixture(60_000);
    await ask({});
    expect(issued).toMatchObject([{ ttlMs: 60_000 }]);
  });

  test.each([
    ["zero", {}],
    ["negative seconds", { seconds: -1n }],
    ["negative nanoseconds", { nanos: -1 }],
    ["a nanosecond over the longest", { seconds: 86_400n, nanos: 1_000_000 }],
    ["the largest number of seconds", { seconds: 2n ** 63n - 1n }],
  ])("refuses a life of %s", async (_what, ttl) => {
    const { ask } = fixture();
    expect(await violationsOf(ask({ ttl }))).toEqual(["ttl"]);
  });

  test("allows the longest and the shortest life", async () => {
    const { ask, issued } = fixture();
    await ask({ ttl: { seconds: 86_400n } });
    await ask({ ttl: { nanos: 1 } });
    expect(issued.map(({ ttlMs }) => ttlMs)).toEqual([24 * HOUR_MS, 0.000_001]);
  });

  test("reports all faults at once", async () => {
    const { ask } = fixture();
    const answer = ask({ sessionId: "", role: "admin", ttl: {} });
    expect(await violationsOf(answer)).toEqual(["session_id", "role", "ttl"]);
  });

  test("issues no token for an unknown session", async () => {
    const { ask, issued, done } = fixture();
    await expect(ask({ sessionId: "s2" })).rejects.toMatchObject({ reason: "SESSION_NOT_FOUND" });
    expect([issued, done]).toEqual([[], []]);
  });

  test("audits the token's id, and never the token", async () => {
    const { ask, done } = fixture();
    await ask({});
    expect(done).toEqual([
      {
        act: { principal: ANONYMOUS, action: "token.issue", sessionId: "s1" },
        fields: {
          tokenId: "jti",
          role: "runner",
          expiresAt: new Date(EXPIRES_AT_MS).toISOString(),
        },
      },
    ]);
    expect(JSON.stringify(done)).not.toContain("secret");
  });
});
