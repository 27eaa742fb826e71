/** How a call names its caller, and how that is checked. */
import { describe, expect, test } from "vitest";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { handClock, refusalOf, startAuth } from "../support/auth.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const TOKEN = "correct-horse-battery";
const OPTIONS = {
  authTokens: JSON.stringify({
    tokens: [
      { id: "ci", token: TOKEN, roles: ["runner"] },
      { id: "ops", token: `${TOKEN}-2`, roles: ["admin"] },
    ],
  }),
};

describe("the authorization header", () => {
  test.each<[string, readonly string[], string]>([
    ["is required", [], "missing"],
    ["is not empty", [""], "missing"],
    ["is not of another scheme", [`Basic ${TOKEN}`], "missing"],
    ["has a scheme", [TOKEN], "missing"],
    ["has a token", ["Bearer "], "missing"],
    ["has one token", [`Bearer ${TOKEN} ${TOKEN}`], "missing"],
    ["is not two tokens in one value", [`Bearer ${TOKEN}, Bearer ${TOKEN}`], "missing"],
    ["is not two values that differ", [`Bearer ${TOKEN}`, `Bearer ${TOKEN}-2`], "differing"],
    [
      "is not two values that differ in spelling",
      [`Bearer ${TOKEN}`, `bearer ${TOKEN}`],
      "differing",
    ],
    [
      "is not three values with one that differs",
      [`Bearer ${TOKEN}`, `Bearer ${TOKEN}`, "x"],
      "differing",
    ],
    ["is not too long", [`Bearer ${"x".repeat(8_192)}`], "form"],
    ["is printable ASCII", [`Bearer ${TOKEN}\u00e9`], "missing"],
    ["has a known token", [`Bearer ${TOKEN}-3`], "unknown"],
    ["has all parts of a signed token", ["Bearer a.b.c"], "header"],
    [
      "has an issuer's token only where an issuer is configured",
      ["Bearer eyJhbGciOiJSUzI1NiJ9.e30.AAAA"],
      "unknown",
    ],
  ])("%s", async (_what, values, expected) => {
    await using auth = await startAuth({ options: OPTIONS });
    const ask = async (): Promise<unknown> => auth.authenticator.authenticate(values);
    expect(await refusalOf(ask)).toBe(expected);
  });

  test("is refused with the fault that the caller can repair, and nothing else", async () => {
    await using auth = await startAuth({ options: OPTIONS });
    const said = (values: readonly string[]): unknown => {
      try {
        return auth.authenticator.authenticate(values);
      } catch (error) {
        return error;
      }
    };
    expect(said([])).toMatchObject({
      code: "unauthenticated",
      reason: "UNAUTHENTICATED",
      message: "a bearer token is required",
    });
    expect(said(["Bearer x", "Bearer y"])).toMatchObject({
      message: "authorization is given more than once, with different values",
    });
  });

  test.each([
    [["Bearer "]],
    [["bearer "]],
    [["BEARER "]],
    [["Bearer   "]],
    [["Bearer ", "Bearer "]],
    [["Bearer ", "Bearer ", "Bearer "]],
  ])("may be %j and a token", async (schemes) => {
    await using auth = await startAuth({ options: OPTIONS });
    const values = schemes.map((scheme) => scheme + TOKEN);
    expect(auth.authenticator.authenticate(values)).toMatchObject({ id: "ci", kind: "static" });
  });

  test("is ignored when no tokens are configured", async () => {
    await using auth = await startAuth();
    expect(auth.authenticator.asks).toBe(false);
    for (const values of [[], ["Bearer x", "Basic y"], ["x".repeat(10_000)]]) {
      expect(auth.authenticator.authenticate(values)).toBe(ANONYMOUS);
    }
    expect(auth.authenticator.refusalOf(ANONYMOUS)).toBeUndefined();
  });

  test("is the only source of principals: an anonymous or a copied one is refused", async () => {
    await using auth = await startAuth({ options: OPTIONS });
    expect(auth.authenticator.refusalOf(ANONYMOUS)?.code).toBe("unauthenticated");
    const principal = await auth.ask(TOKEN);
    // A principal is known by its identity, not by its fields, which could be copied.
    expect(auth.authenticator.refusalOf({ ...principal })?.code).toBe("unauthenticated");
  });
});

test("the result is counted and audited, without any part of a token", async () => {
  await using auth = await startAuth({ options: OPTIONS });
  await auth.ask(TOKEN);
  await auth.refusalOf("wrong-horse-battery");
  await auth.refusalOf("wrong-horse-battery");
  const text = await auth.metricsText();
  for (const line of [
    'session_ledger_authentications_total{kind="static",outcome="accepted"} 1',
    'session_ledger_authentications_total{kind="unknown",outcome="unknown"} 2',
    'session_ledger_denied_total{action="authenticate",reason="unknown"} 2',
  ]) {
    expect(text).toContain(line);
  }
  const audited = auth.records.filter(({ audit }) => audit === true);
  expect(audited).toHaveLength(2);
  expect(audited[0]).toMatchObject({ msg: "denied", action: "authenticate", reason: "unknown" });
  expect(text + JSON.stringify(auth.records)).not.toContain("horse");
});

test("a signed token is verified once, and accepted at once from then on", async () => {
  await using auth = await startAuth({ options: OPTIONS });
  const { token } = await auth.authenticator.sessionTokens.issue({
    sessionId: "s1",
    role: "runner",
    ttlMs: 60_000,
  });
  const asked = [`Bearer ${token}`];
  const first = auth.authenticator.authenticate(asked);
  expect(first).toBeInstanceOf(Promise);
  const principal = await first;
  for (let n = 0; n < 100; n += 1) expect(auth.authenticator.authenticate(asked)).toBe(principal);
  const text = await auth.metricsText();
  expect(text).toContain('session_ledger_token_checks_total{result="verified"} 1');
  expect(text).toContain('session_ledger_token_checks_total{result="known"} 100');
});

test("a bad token that is sent a thousand times is verified once", async () => {
  const clock = handClock();
  await using auth = await startAuth({ options: OPTIONS, clock });
  const { token } = await auth.authenticator.sessionTokens.issue({
    sessionId: "s1",
    role: "runner",
    ttlMs: 60_000,
  });
  const [header = "", payload = ""] = token.split(".");
  const bad = `${header}.${payload}.${"A".repeat(86)}`;
  for (let n = 0; n < 1_000; n += 1) expect(await auth.refusalOf(bad)).toBe("signature");
  const text = await auth.metricsText();
  expect(text).toContain('session_ledger_token_checks_total{result="verified"} 1');
  expect(text).toContain('session_ledger_token_checks_total{result="refused"} 999');
  // A good token among them is not delayed.
  expect(await auth.ask(token)).toMatchObject({ sessionId: "s1" });
});

describeUnitContract("the authenticator", {
  create: async () => (await startAuth({ options: OPTIONS })).authenticator,
  isOfUse: (authenticator) => authenticator.authenticate([`Bearer ${TOKEN}`]) !== ANONYMOUS,
  remains: () => [],
});
