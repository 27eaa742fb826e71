import { mkdtempSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { digestOf, parseStaticTokens } from "../../src/auth/static-tokens.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { type AuthFixture, startAuth } from "../support/auth.ts";
import { eventually } from "../support/eventually.ts";

const SECRET = "correct-horse-battery";
const OTHER = "another-horse-battery";

function json(...tokens: readonly object[]): string {
  return JSON.stringify({ tokens });
}

function entry(given: object = {}): object {
  return { id: "ci", token: SECRET, roles: ["runner"], ...given };
}

function problemOf(text: string): string {
  try {
    parseStaticTokens(text);
  } catch (error) {
    if (error instanceof ServiceError) return error.message;
    throw error;
  }
  return "none";
}

describe("the form of a list of tokens", () => {
  test("has a token or its digest, roles, and an optional project", () => {
    const digest = digestOf(SECRET);
    expect(
      parseStaticTokens(
        json(entry({ roles: ["runner", "viewer", "runner"] }), {
          id: "ops@x",
          tokenSha256: digestOf(OTHER).toUpperCase(),
          roles: ["admin"],
          project: "p",
        }),
      ),
    ).toEqual([
      { id: "ci", digest, roles: ["runner", "viewer"], projectId: undefined },
      { id: "ops@x", digest: digestOf(OTHER), roles: ["admin"], projectId: "p" },
    ]);
    expect(parseStaticTokens('{"tokens":[]}')).toEqual([]);
  });

  test.each([
    ["not JSON", `{"tokens": ${SECRET}}`, "expected JSON"],
    ["another shape", "[]", 'expected an object {"tokens":[…]}, and nothing else'],
    ["no list", '{"tokens":{}}', "tokens: expected a list"],
    ["no object", '{"tokens":["x"]}', "tokens[0]: expected an object of id"],
    ["no id", json(entry({ id: undefined })), "tokens[0].id: expected 1 to 128 of"],
    ["an id with a colon", json(entry({ id: "session:1" })), "tokens[0].id: expected"],
    ["a short token", json(entry({ token: "x".repeat(15) })), "tokens[0].token: expected 16 to"],
    [
      "a token with a space",
      json(entry({ token: `${SECRET} x` })),
      "tokens[0].token: expected 16 to",
    ],
    [
      "a token that is not ASCII",
      json(entry({ token: `${SECRET}é` })),
      "tokens[0].token: expected",
    ],
    [
      "no token",
      json(entry({ token: undefined })),
      "tokens[0]: expected either token or tokenSha256",
    ],
    ["both", json(entry({ tokenSha256: digestOf(OTHER) })), "tokens[0]: expected either token or"],
    [
      "half a digest",
      json({ id: "x", tokenSha256: "00", roles: ["admin"] }),
      "tokens[0].tokenSha256: expected 64",
    ],
    ["no roles", json(entry({ roles: [] })), "tokens[0].roles: expected at least one role"],
    ["roles as text", json(entry({ roles: "admin" })), "tokens[0].roles: expected a list of roles"],
    [
      "an unknown role",
      json(entry(), entry({ id: "b", token: OTHER, roles: ["viewer", "root"] })),
      "tokens[1].roles[1]: expected one of admin, editor, viewer, runner",
    ],
    [
      "an empty project, which could mean all or none",
      json(entry({ project: "" })),
      "tokens[0].project: expected",
    ],
    ["a project with U+0000", json(entry({ project: "a\0" })), "tokens[0].project: expected"],
    [
      "a misspelled member, which would widen the scope",
      json(entry({ projects: "p" })),
      "tokens[0]: expected an object of id, token or tokenSha256, roles, project, and nothing else",
    ],
    [
      "an id twice",
      json(entry(), entry({ token: OTHER })),
      "tokens[1].id: expected another than that of tokens[0]",
    ],
    [
      "a token twice, once as its digest",
      json(entry(), { id: "b", tokenSha256: digestOf(SECRET), roles: ["admin"] }),
      "tokens[1].token: expected another than that of tokens[0]",
    ],
  ])("is refused with its place for %s, and quotes nothing", (_what, text, expected) => {
    const problem = problemOf(text);
    expect(problem).toContain(expected);
    expect(problem).not.toMatch(/horse|corr|batt/);
  });

  test("allows a token of 16 characters, and a limited number of faults is reported", () => {
    expect(problemOf(json(entry({ token: "x".repeat(16) })))).toBe("none");
    const many = problemOf(json(...Array.from({ length: 30 }, (_, n) => entry({ id: `i ${n}` }))));
    expect(many).toContain("tokens[0].id");
    expect(many).toContain("tokens[9].id");
    expect(many).toMatch(/; and 20 more$/);
  });
});

describe("a token of the environment", () => {
  test("authenticates its caller, and any other token is unknown", async () => {
    await using auth = await startAuth({ options: { authTokens: json(entry({ project: "p" })) } });
    expect(await auth.ask(SECRET)).toEqual({
      id: "ci",
      kind: "static",
      roles: ["runner"],
      projectId: "p",
      sessionId: undefined,
      expiresAtMs: undefined,
    });
    for (const wrong of [SECRET.slice(0, -1), `${SECRET}x`, SECRET.toUpperCase(), OTHER]) {
      expect(await auth.refusalOf(wrong)).toBe("unknown");
    }
  });

  test("is checked without a promise", async () => {
    await using auth = await startAuth({ options: { authTokens: json(entry()) } });
    const answer = auth.authenticator.authenticate([`Bearer ${SECRET}`]);
    expect(answer).not.toBeInstanceOf(Promise);
  });

  test("keeps the service from starting when its list is wrong", async () => {
    const started = startAuth({ options: { authTokens: json(entry({ roles: ["root"] })) } });
    await expect(started).rejects.toThrow("AUTH_TOKENS: tokens[0].roles[0]: expected one of");
  });
});

test("an empty list of tokens is logged as a warning, as no caller has access", async () => {
  await using auth = await startAuth({ options: { authTokens: json() } });
  expect(auth.records).toContainEqual(
    expect.objectContaining({ level: "warn", msg: expect.stringContaining("nobody can come in") }),
  );
  await using other = await startAuth({ options: { authTokens: json(entry()) } });
  expect(other.records.map(({ msg }) => msg).join()).not.toContain("nobody");
});

describe("a file of tokens", () => {
  const folder = mkdtempSync(join(tmpdir(), "tokens-"));
  let count = 0;
  const newPath = (): string => join(folder, `tokens-${(count += 1)}.json`);
  afterEach(() => vi.useRealTimers());

  async function startWith(path: string, authTokens?: string): Promise<AuthFixture> {
    return startAuth({ options: { authTokensFile: path, authTokens } });
  }

  test.each([
    ["is missing", undefined, /AUTH_TOKENS_FILE: ".*tokens-\d+\.json" cannot be read \(ENOENT\)/],
    ["is not JSON", "{", /AUTH_TOKENS_FILE: expected JSON/],
    [
      "has a wrong role",
      json(entry({ roles: [1] })),
      /AUTH_TOKENS_FILE: tokens\[0\]\.roles\[0\]: expected/,
    ],
    [
      "is too large",
      json(entry({ token: "x".repeat(1_100_000) })),
      /AUTH_TOKENS_FILE: expected at most/,
    ],
  ])("that %s keeps the service from starting", async (_what, text, expected) => {
    const path = newPath();
    if (text !== undefined) writeFileSync(path, text);
    await expect(startWith(path)).rejects.toThrow(expected);
  });

  test("may begin with a byte order mark", async () => {
    const path = newPath();
    writeFileSync(path, `\uFEFF${json(entry())}`);
    await using auth = await startWith(path);
    expect(await auth.ask(SECRET)).toMatchObject({ id: "ci" });
  });

  test("ends the streams of a token with changed roles or a changed secret", async () => {
    const path = newPath();
    writeFileSync(path, json(entry({ roles: ["admin"] }), entry({ id: "ops", token: OTHER })));
    await using auth = await startWith(path);
    const [ci, ops] = [await auth.ask(SECRET), await auth.ask(OTHER)];
    writeFileSync(
      path,
      json(entry({ roles: ["viewer"] }), entry({ id: "ops", token: `${OTHER}!` })),
    );
    await eventually(() => expect(auth.authenticator.refusalOf(ci)).toBeDefined());
    expect(auth.authenticator.refusalOf(ops)).toBeDefined();
    expect(await auth.ask(SECRET)).toMatchObject({ roles: ["viewer"] });
  });

  test("changes nothing when it is wrong, cut or missing, and this is logged and counted", async () => {
    const path = newPath();
    writeFileSync(path, json(entry()));
    await using auth = await startWith(path);
    const refusals = () => auth.records.filter(({ msg }) => msg.startsWith("file refused"));
    for (const [index, bad] of [
      '{"tokens":[{"id":"ci","tok',
      json(entry({ roles: [] })),
    ].entries()) {
      writeFileSync(path, bad);
      await eventually(() => expect(refusals()).toHaveLength(index + 1));
    }
    unlinkSync(path);
    await eventually(() => expect(refusals()).toHaveLength(3));
    expect(refusals().map(({ problem }) => problem)).toEqual([
      expect.stringContaining("expected JSON"),
      "tokens[0].roles: expected at least one role",
      "cannot be read (ENOENT)",
    ]);
    expect(JSON.stringify(auth.records)).not.toContain("horse");
    expect(await auth.ask(SECRET)).toMatchObject({ id: "ci" });
    expect(await auth.metricsText()).toContain(
      'session_ledger_auth_file_reloads_total{file="tokens",outcome="failed"} 3',
    );
    writeFileSync(path, json(entry({ id: "new" })));
    await eventually(async () => expect(await auth.ask(SECRET)).toMatchObject({ id: "new" }));
  });

  test("shares no id and no token with the environment", async () => {
    const path = newPath();
    writeFileSync(path, json(entry({ token: OTHER })));
    const started = startWith(path, json(entry()));
    await expect(started).rejects.toThrow("tokens[0].id: expected another than one of AUTH_TOKENS");
    writeFileSync(path, json(entry({ id: "b" })));
    await expect(startWith(path, json(entry()))).rejects.toThrow(
      "tokens[0].token: expected another",
    );
    writeFileSync(path, json(entry({ id: "b", token: OTHER })));
    await using auth = await startWith(path, json(entry()));
    expect([(await auth.ask(SECRET)).id, (await auth.ask(OTHER)).id]).toEqual(["ci", "b"]);
    // A change of the file does not affect the tokens of the environment.
    writeFileSync(path, json());
    await eventually(async () => expect(await auth.refusalOf(OTHER)).toBe("unknown"));
    expect(await auth.ask(SECRET)).toMatchObject({ id: "ci" });
    rmSync(folder, { recursive: true });
  });
});
