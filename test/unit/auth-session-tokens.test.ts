/**
 * Tokens that the service issues. Two instances share their keys, as they do through the database.
 */
import { decodeJwt, decodeProtectedHeader, SignJWT } from "jose";
import { describe, expect, test, vi } from "vitest";
import {
  KEY_AHEAD_MS,
  ROTATE_AFTER_MS,
  SESSION_TOKEN_TYPE,
} from "../../src/auth/session-tokens.ts";
import {
  type AuthFixture,
  type AuthGiven,
  handClock,
  keyStore,
  NOW_S,
  startAuth,
} from "../support/auth.ts";
import { eventually } from "../support/eventually.ts";

const HOUR_MS = 3_600_000;
/** How often an instance reads the keys again. */
const READ_MS = 30_000;
const ASKS = { authTokens: '{"tokens":[]}' };

async function start(given: AuthGiven = {}): Promise<AuthFixture> {
  return startAuth({ ...given, options: { ...ASKS, ...given.options } });
}

async function issue(auth: AuthFixture, given: { readonly ttlMs?: number } = {}): Promise<string> {
  const of = { sessionId: "s1", role: "runner", ttlMs: HOUR_MS, ...given } as const;
  return (await auth.authenticator.sessionTokens.issue(of)).token;
}

describe("a session token", () => {
  test("is valid for one session, one role and its stated time", async () => {
    await using auth = await start();
    const { sessionTokens } = auth.authenticator;
    const issued = await sessionTokens.issue({ sessionId: "s1", role: "viewer", ttlMs: 90_000 });
    expect(issued.expiresAtMs).toBe((NOW_S + 90) * 1_000);
    const principal = await auth.ask(issued.token);
    expect(principal).toEqual({
      id: "session:s1:viewer",
      kind: "session",
      roles: ["viewer"],
      projectId: undefined,
      sessionId: "s1",
      expiresAtMs: issued.expiresAtMs,
    });
    auth.clock.advance(89_999);
    expect(await auth.ask(issued.token)).toBe(principal);
    expect(auth.authenticator.refusalOf(principal)).toBeUndefined();
    auth.clock.advance(1);
    expect(await auth.refusalOf(issued.token)).toBe("expired");
    expect(auth.authenticator.refusalOf(principal)?.message).toBe("the bearer token has expired");
  });

  test("has the type, issuer, subject and times that are documented", async () => {
    await using auth = await start();
    const issued = await auth.authenticator.sessionTokens.issue({
      sessionId: "s1",
      role: "runner",
      ttlMs: 1,
    });
    expect(decodeProtectedHeader(issued.token)).toEqual({
      alg: "EdDSA",
      typ: SESSION_TOKEN_TYPE,
      kid: expect.any(String),
    });
    expect(decodeJwt(issued.token)).toEqual({
      iss: "session-ledger",
      sub: "session:s1:runner",
      sid: "s1",
      role: "runner",
      iat: NOW_S,
      exp: NOW_S + 1,
      jti: issued.id,
    });
  });

  test("is refused by a service on another database", async () => {
    await using ours = await start();
    await using theirs = await start();
    expect(await theirs.refusalOf(await issue(ours))).toBe("unknown_key");
  });

  test("is refused with another key, claim, role or issuer", async () => {
    const keys = keyStore();
    await using auth = await start({ keys });
    const own = await issue(auth);
    const { kid = "" } = decodeProtectedHeader(own);
    const { generateKeyPair, importJWK } = await import("jose");
    const [row] = keys.rows;
    const rightKey = await importJWK(JSON.parse(row?.privateJwk ?? ""), "EdDSA");
    const { privateKey: wrongKey } = await generateKeyPair("EdDSA");
    const claims = { sub: "x", sid: "s1", role: "runner", exp: NOW_S + 60, iss: "session-ledger" };
    const make = (
      given: Readonly<Record<string, unknown>>,
      { typ = SESSION_TOKEN_TYPE, key = rightKey } = {},
    ): Promise<string> =>
      new SignJWT({ ...claims, ...given }).setProtectedHeader({ alg: "EdDSA", typ, kid }).sign(key);
    expect(await auth.ask(await make({}))).toMatchObject({ roles: ["runner"] });
    expect(await auth.refusalOf(await make({}, { key: wrongKey }))).toBe("signature");
    for (const [given, expected] of [
      [{ role: "admin" }, "claims"],
      [{ role: ["runner"] }, "claims"],
      [{ sid: "" }, "claims"],
      [{ sid: undefined }, "claims"],
      [{ sub: undefined }, "claims"],
      [{ exp: undefined }, "claims"],
      [{ iss: "https://issuer.example" }, "issuer"],
      [{ iss: undefined }, "issuer"],
      // No tolerance of clocks: the answer to the issue call has the exact end.
      [{ exp: NOW_S }, "expired"],
    ] as const) {
      expect([given, await auth.refusalOf(await make(given))]).toEqual([given, expected]);
    }
    // A token of another type would be an issuer's, and none is configured.
    expect(await auth.refusalOf(await make({}, { typ: "JWT" }))).toBe("unknown");
  });

  test("is refused when its header names another algorithm", async () => {
    await using auth = await start();
    const { kid } = decodeProtectedHeader(await issue(auth));
    const header = (alg: string): string =>
      Buffer.from(JSON.stringify({ alg, typ: SESSION_TOKEN_TYPE, kid })).toString("base64url");
    const payload = Buffer.from("{}").toString("base64url");
    for (const alg of ["none", "HS256", "RS256", "ES256"]) {
      expect(await auth.refusalOf(`${header(alg)}.${payload}.AAAA`)).toBe("algorithm");
    }
  });

  test("is ignored, and no key is read, when the service requires no tokens", async () => {
    const keys = keyStore();
    await using auth = await startAuth({ keys });
    expect(keys.reads).toBe(0);
    expect(await auth.ask(await issue(auth))).toMatchObject({ kind: "anonymous" });
  });
});

describe("the signing keys", () => {
  test("rotate by age; the previous key verifies until its last token ends, and is then deleted", async () => {
    const clock = handClock();
    const keys = keyStore(clock);
    const options = { sessionTokenTtlMaxMs: 4 * HOUR_MS };
    await using auth = await start({ keys, clock, options });
    const kidOf = (token: string) => decodeProtectedHeader(token).kid;
    const first = await issue(auth);
    clock.advance(ROTATE_AFTER_MS - 1);
    expect(kidOf(await issue(auth))).toBe(kidOf(first));
    expect(keys.rows).toHaveLength(1);
    clock.advance(1);
    expect(kidOf(await issue(auth))).toBe(kidOf(first));
    expect(keys.rows).toHaveLength(2);
    clock.advance(KEY_AHEAD_MS - 1);
    const lastOfFirst = await issue(auth, { ttlMs: 4 * HOUR_MS });
    expect(kidOf(lastOfFirst)).toBe(kidOf(first));
    clock.advance(1);
    expect(kidOf(await issue(auth))).not.toBe(kidOf(first));
    // The last moment of the token; new ones are issued meanwhile.
    clock.advance(4 * HOUR_MS - 1_001);
    await issue(auth);
    expect(await auth.refusalOf(lastOfFirst)).toBe("none");
    clock.advance(ROTATE_AFTER_MS);
    await issue(auth);
    expect(keys.rows.map(({ id }) => id)).not.toContain(kidOf(first));
  });

  test.each([1, 24, 720])(
    "are never more than two, with tokens that live %i hours",
    async (hours) => {
      const clock = handClock();
      const keys = keyStore(clock);
      const options = { sessionTokenTtlMaxMs: hours * HOUR_MS };
      await using auth = await start({ keys, clock, options });
      const issued: { readonly token: string; readonly untilMs: number }[] = [];
      const kids = new Set<unknown>();
      for (let n = 0; n < 150; n += 1) {
        const token = await issue(auth, { ttlMs: hours * HOUR_MS });
        kids.add(decodeProtectedHeader(token).kid);
        issued.push({ token, untilMs: clock.monotonicMs() + hours * HOUR_MS });
        expect(keys.rows.length).toBeLessThanOrEqual(2);
        const valid = issued.filter(({ untilMs }) => clock.monotonicMs() < untilMs);
        for (const one of valid) expect(await auth.refusalOf(one.token)).toBe("none");
        clock.advance(24 * HOUR_MS);
      }
      expect(kids.size).toBeGreaterThan(3);
    },
  );

  test("regression: other instances accept the first tokens of a new key despite forged tokens", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const clock = handClock();
      const keys = keyStore(clock);
      await using one = await start({ keys, clock });
      await using other = await start({ keys, clock });
      await using theirs = await start();
      const passes = async (ms: number): Promise<void> => {
        clock.advance(ms);
        await vi.advanceTimersByTimeAsync(ms);
      };
      await issue(one);
      clock.advance(ROTATE_AFTER_MS - 100 * READ_MS);
      const kids = new Set<unknown>();
      for (let n = 1; n <= 200; n += 1) {
        await passes(READ_MS);
        // After this look-up no unknown key is looked up for one second.
        expect(await other.refusalOf(await issue(theirs, { ttlMs: n }))).toBe("unknown_key");
        const token = await issue(one, { ttlMs: n });
        kids.add(decodeProtectedHeader(token).kid);
        expect([n, await other.refusalOf(token)]).toEqual([n, "none"]);
      }
      expect(kids.size).toBe(2);
    } finally {
      vi.useRealTimers();
    }
  });

  test("rotate while no token is requested, so that an old key does not stay valid", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const clock = handClock();
      const keys = keyStore(clock);
      const options = { sessionTokenTtlMaxMs: HOUR_MS };
      await using auth = await start({ keys, clock, options });
      await vi.advanceTimersByTimeAsync(READ_MS);
      expect(keys.rows).toHaveLength(0);
      const kid = decodeProtectedHeader(await issue(auth)).kid;
      clock.advance(ROTATE_AFTER_MS);
      await vi.advanceTimersByTimeAsync(READ_MS);
      await eventually(() => expect(keys.rows).toHaveLength(2));
      clock.advance(2 * HOUR_MS);
      await vi.advanceTimersByTimeAsync(READ_MS);
      await eventually(() => expect(keys.rows.map(({ id }) => id)).not.toContain(kid));
    } finally {
      vi.useRealTimers();
    }
  });

  test("are created once for many first tokens at the same time", async () => {
    const keys = keyStore();
    await using auth = await start({ keys });
    await Promise.all(Array.from({ length: 20 }, () => issue(auth)));
    expect(keys.rows).toHaveLength(1);
  });

  test("are looked up at most once a second when a token's key is unknown", async () => {
    const keys = keyStore();
    await using auth = await start({ keys });
    await using theirs = await start();
    auth.clock.advance(1_000);
    const before = keys.reads;
    for (let n = 0; n < 50; n += 1) {
      expect(await auth.refusalOf(await issue(theirs, { ttlMs: n + 1 }))).toBe("unknown_key");
    }
    expect(keys.reads).toBe(before + 1);
  });

  test("are refused after they were deleted and read again, and their streams end", async () => {
    const keys = keyStore();
    await using auth = await start({ keys });
    const token = await issue(auth);
    const principal = await auth.ask(token);
    keys.rows.pop();
    auth.clock.advance(1_000);
    await using theirs = await start();
    await auth.refusalOf(await issue(theirs)); // An unknown key causes a new look-up.
    expect(await auth.refusalOf(token)).toBe("unknown_key");
    expect(auth.authenticator.refusalOf(principal)?.code).toBe("unauthenticated");
  });

  test("that cannot be parsed are skipped and logged", async () => {
    const keys = keyStore();
    await using auth = await start({ keys });
    const token = await issue(auth);
    for (const [id, privateJwk] of [
      ["text", "{"],
      ["secret", '{"kty":"oct","k":"AAAA"}'],
      ["short", '{"kty":"OKP","crv":"Ed25519","x":"AA","d":"AA"}'],
    ] as const) {
      keys.rows.push({ id, privateJwk, madeMs: -1 });
    }
    await using after = await start({ keys });
    expect(await after.ask(token)).toMatchObject({ sessionId: "s1" });
    const unread = after.records.filter(({ msg }) => msg.endsWith("cannot be read"));
    expect(unread.map(({ keyId }) => String(keyId)).toSorted()).toEqual([
      "secret",
      "short",
      "text",
    ]);
    expect(JSON.stringify(after.records)).not.toContain("AAAA");
  });

  test("that cannot be read from the database give DATABASE_UNAVAILABLE, not a bad token", async () => {
    const keys = keyStore();
    await using theirs = await start();
    await using auth = await start({ keys });
    const { ServiceError } = await import("@session-ledger/base/errors");
    keys.readKeys = () =>
      Promise.reject(new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "down"));
    auth.clock.advance(1_000);
    expect(await auth.refusalOf(await issue(theirs))).toBe("DATABASE_UNAVAILABLE");
  });
});
