/** Tokens of an issuer with one fault each, checked with the keys that it publishes in a file. */
import { createHmac, generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportSPKI } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type AuthFixture,
  AUDIENCE,
  ISSUER,
  NOW_S,
  startAuth,
  TestIssuer,
} from "../support/auth.ts";
import { eventually } from "../support/eventually.ts";

const folder = mkdtempSync(join(tmpdir(), "jwks-"));
const path = join(folder, "jwks.json");
const OPTIONS = { oidcIssuer: ISSUER, oidcAudience: AUDIENCE, oidcJwksFile: path };

let issuer: TestIssuer;
let publicPem: string;
let auth: AuthFixture;
beforeAll(async () => {
  issuer = await TestIssuer.create("one", "RS256");
  publicPem = await exportSPKI(await issuer.addKey("ec", "ES256"));
  await issuer.addKey("ed", "EdDSA");
  await issuer.addKey("ps", "PS256");
  writeFileSync(path, issuer.jwks);
  auth = await startAuth({ options: OPTIONS });
});
afterAll(async () => {
  await auth[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

const text = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
const CLAIMS = { iss: ISSUER, aud: AUDIENCE, sub: "ada", exp: NOW_S + 300, roles: ["admin"] };

test.each(["one", "ec", "ed", "ps"])(
  "a token signed with the key %s authenticates its subject",
  async (kid) => {
    expect(await auth.ask(await issuer.token({}, { kid }))).toEqual({
      id: "ada",
      kind: "oidc",
      roles: ["editor"],
      projectId: undefined,
      sessionId: undefined,
      expiresAtMs: (NOW_S + 300 + 30) * 1_000,
    });
  },
);

describe("a token is refused for", () => {
  test.each<[string, Readonly<Record<string, unknown>>, string]>([
    ["another issuer", { iss: `${ISSUER}/` }, "issuer"],
    ["the issuer of session tokens", { iss: "session-ledger" }, "issuer"],
    ["no issuer", { iss: undefined }, "issuer"],
    ["another audience", { aud: "somebody-else" }, "audience"],
    ["no audience", { aud: undefined }, "audience"],
    ["an expiry in the past", { exp: NOW_S - 31 }, "expired"],
    ["an expiry at this second", { exp: NOW_S - 30 }, "expired"],
    ["no expiry", { exp: undefined }, "claims"],
    ["an expiry that is text", { exp: String(NOW_S + 300) }, "claims"],
    ["a start in the future", { nbf: NOW_S + 31 }, "not_yet_valid"],
    ["no subject", { sub: undefined }, "claims"],
    ["an empty subject", { sub: "" }, "claims"],
    ["a subject that is a number", { sub: 7 }, "claims"],
    ["a subject that PostgreSQL cannot hold", { sub: "a\0b" }, "claims"],
    ["a long subject", { sub: "a".repeat(256) }, "claims"],
    ["a project that is a list", { project: ["p"] }, "claims"],
    ["an empty project", { project: "" }, "claims"],
  ])("%s", async (_what, claims, expected) => {
    expect(await auth.refusalOf(await issuer.token(claims))).toBe(expected);
  });

  test.each<[string, Readonly<Record<string, unknown>>]>([
    ["the clocks are 29 s apart at the end", { exp: NOW_S - 29 }],
    ["the clocks are 30 s apart at the beginning", { nbf: NOW_S + 30 }],
    ["one audience of several is ours", { aud: ["account", AUDIENCE] }],
    ["it was issued in the future of this clock", { iat: NOW_S + 1_000 }],
  ])("nothing when %s", async (_what, claims) => {
    expect(await auth.ask(await issuer.token(claims))).toMatchObject({ id: "ada" });
  });

  test("the algorithm none, in any spelling", async () => {
    for (const alg of ["none", "None", "NONE"]) {
      const unsigned = `${text({ alg, kid: "one" })}.${text(CLAIMS)}.`;
      expect(await auth.refusalOf(unsigned)).toBe("unknown");
      expect(await auth.refusalOf(`${unsigned}AAAA`)).toBe("algorithm");
    }
  });

  test("an HMAC whose secret is the public key", async () => {
    for (const kid of ["ec", "one", undefined]) {
      const signed = `${text({ alg: "HS256", typ: "JWT", kid })}.${text(CLAIMS)}`;
      for (const secret of [publicPem, publicPem.trim(), issuer.jwks]) {
        const mac = createHmac("sha256", secret).update(signed).digest("base64url");
        expect(await auth.refusalOf(`${signed}.${mac}`)).toBe("algorithm");
      }
    }
  });

  test("an algorithm that is not allowed, even with the right key", async () => {
    await using strict = await startAuth({ options: { ...OPTIONS, oidcAlgorithms: ["ES256"] } });
    expect(await strict.refusalOf(await issuer.token())).toBe("algorithm");
    expect(await strict.ask(await issuer.token({}, { kid: "ec" }))).toMatchObject({ id: "ada" });
  });

  test("a foreign key under a known key id, and an unknown key id", async () => {
    const forger = await TestIssuer.create("one", "RS256");
    expect(await auth.refusalOf(await forger.token())).toBe("signature");
    await forger.addKey("nobody", "RS256");
    expect(await auth.refusalOf(await forger.token({}, { kid: "nobody" }))).toBe("unknown_key");
  });

  test("a key in its own header", async () => {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    const { sign } = await import("node:crypto");
    const jwk = publicKey.export({ format: "jwk" });
    const signed = `${text({ alg: "EdDSA", kid: "ed", jwk })}.${text(CLAIMS)}`;
    const signature = sign(null, Buffer.from(signed), privateKey).toString("base64url");
    expect(await auth.refusalOf(`${signed}.${signature}`)).toBe("signature");
  });

  test("a critical header that is not understood", async () => {
    const [, payload = ""] = (await issuer.token()).split(".");
    const header = text({ alg: "RS256", kid: "one", crit: ["exp"], exp: 1 });
    expect(await auth.refusalOf(`${header}.${payload}.AAAA`)).toBe("header");
  });

  test("a changed header or payload, and a cut signature", async () => {
    const [header = "", payload = "", signature = ""] = (await issuer.token()).split(".");
    const admin = text({ ...CLAIMS });
    expect(await auth.refusalOf(`${header}.${admin}.${signature}`)).toBe("signature");
    expect(await auth.refusalOf(`${header}.${payload}.${signature.slice(0, -4)}`)).toBe(
      "signature",
    );
    const other = text({ alg: "RS256", kid: "one", x: 1 });
    expect(await auth.refusalOf(`${other}.${payload}.${signature}`)).toBe("signature");
  });

  test("a payload that is not JSON, is not an object or never expires", async () => {
    const { CompactSign, generateKeyPair, exportJWK } = await import("jose");
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    writeFileSync(
      join(folder, "own.json"),
      JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "own" }] }),
    );
    await using own = await startAuth({
      options: { ...OPTIONS, oidcJwksFile: join(folder, "own.json") },
    });
    const endless = JSON.stringify({ ...CLAIMS, exp: 0 }).replace('"exp":0', '"exp":1e999');
    for (const payload of ["text", "[]", "null", "", endless]) {
      const signed = await new CompactSign(Buffer.from(payload))
        .setProtectedHeader({ alg: "ES256", kid: "own" })
        .sign(privateKey);
      expect(["claims", "unknown"]).toContain(await own.refusalOf(signed));
    }
  });

  test("all faults in the same words, except expiry, and nothing of it is logged", async () => {
    const said = async (token: string): Promise<string> => {
      try {
        await auth.ask(token);
      } catch (error) {
        if (error instanceof Error) return error.message;
      }
      return "nothing";
    };
    const token = await issuer.token({ aud: "x", sub: "very-secret-subject" });
    expect(await said(token)).toBe("the bearer token is not accepted");
    expect(await said("short.but.signed")).toBe("the bearer token is not accepted");
    expect(await said(await issuer.token({ exp: NOW_S - 100 }))).toBe(
      "the bearer token has expired",
    );
    const log = JSON.stringify(auth.records);
    for (const part of [...token.split("."), "very-secret-subject"])
      expect(log).not.toContain(part);
  });
});

describe("roles and projects of a token", () => {
  test.each<[string, unknown, readonly string[]]>([
    ["a list", ["viewer", "runner"], ["viewer", "runner"]],
    ["words in one text", "openid runner profile", ["runner"]],
    ["unknown roles only", ["superuser", "Admin", "ADMIN"], []],
    ["a list with entries that are not text", ["viewer", 7, null, ["admin"]], ["viewer"]],
    ["an object", { admin: true }, []],
    ["no claim", undefined, []],
    ["a word that contains a role", "not-admin adminx", []],
  ])("are read from %s", async (_what, roles, expected) => {
    expect((await auth.ask(await issuer.token({ roles }))).roles).toEqual(expected);
  });

  test("are found by a path with dots, and under names that have dots", async () => {
    const claims = {
      realm_access: { roles: ["viewer"] },
      "https://ledger.example/roles": ["runner"],
      tenant: { name: "p1" },
    };
    for (const [oidcRolesClaim, roles] of [
      ["realm_access.roles", ["viewer"]],
      ["https://ledger.example/roles", ["runner"]],
      ["realm_access.roles.length", []],
      ["realm_access.missing.roles", []],
      ["constructor.name", []],
      ["__proto__.roles", []],
    ] as const) {
      await using fixture = await startAuth({
        options: { ...OPTIONS, oidcRolesClaim, oidcProjectClaim: "tenant.name" },
      });
      const principal = await fixture.ask(await issuer.token({ ...claims, roles: ["admin"] }));
      expect([oidcRolesClaim, principal.roles]).toEqual([oidcRolesClaim, roles]);
      expect(principal.projectId).toBe("p1");
    }
  });
});

describe("the key file", () => {
  test.each([
    ["not JSON", "{", "expected JSON"],
    ["no set", "{}", "expected {"],
    ["without keys", '{"keys":[]}', "expected at least one key"],
    [
      "with a secret only",
      '{"keys":[{"kty":"oct","k":"AAAA","kid":"one"}]}',
      "expected at least one key",
    ],
  ])("that is %s keeps the service from starting", async (_what, content, expected) => {
    const bad = join(folder, "bad.json");
    writeFileSync(bad, content);
    const started = startAuth({ options: { ...OPTIONS, oidcJwksFile: bad } });
    await expect(started).rejects.toThrow(`OIDC_JWKS_FILE: ${expected}`);
  });

  test("is read again when it changes: new keys are accepted, and removed keys end their tokens and streams", async () => {
    const own = join(folder, "changing.json");
    const changing = await TestIssuer.create("old");
    writeFileSync(own, changing.jwks);
    await using fixture = await startAuth({ options: { ...OPTIONS, oidcJwksFile: own } });
    const old = await changing.token({}, { kid: "old" });
    const principal = await fixture.ask(old);
    await changing.addKey("new");
    const fresh = await changing.token({}, { kid: "new" });
    expect(await fixture.refusalOf(fresh)).toBe("unknown_key");
    writeFileSync(own, changing.jwks);
    await eventually(async () => expect(await fixture.refusalOf(fresh)).toBe("none"));
    // The old token is still cached, and not verified again.
    expect(await fixture.ask(old)).toBe(principal);
    expect(fixture.authenticator.refusalOf(principal)).toBeUndefined();
    changing.removeKey("old");
    writeFileSync(own, changing.jwks);
    await eventually(async () => expect(await fixture.refusalOf(old)).toBe("unknown_key"));
    expect(fixture.authenticator.refusalOf(principal)?.code).toBe("unauthenticated");
    expect(await fixture.refusalOf(fresh)).toBe("none");
  });

  test("requires a key id in the token when it has several keys", async () => {
    const own = join(folder, "unnamed.json");
    const unnamed = await TestIssuer.create("one");
    writeFileSync(own, unnamed.jwks);
    const token = await unnamed.token({}, { kid: "one" });
    const { SignJWT, generateKeyPair, exportJWK } = await import("jose");
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const without = await new SignJWT(CLAIMS).setProtectedHeader({ alg: "ES256" }).sign(privateKey);
    writeFileSync(own, JSON.stringify({ keys: [await exportJWK(publicKey)] }));
    await using single = await startAuth({ options: { ...OPTIONS, oidcJwksFile: own } });
    expect(await single.ask(without)).toMatchObject({ id: "ada" });
    expect(await single.refusalOf(token)).toBe("unknown_key");
    const two = [await exportJWK(publicKey), ...JSON.parse(unnamed.jwks).keys];
    writeFileSync(own, JSON.stringify({ keys: two }));
    await using several = await startAuth({ options: { ...OPTIONS, oidcJwksFile: own } });
    expect(await several.refusalOf(without)).toBe("unknown_key");
    expect(await several.ask(token)).toMatchObject({ id: "ada" });
  });
});
