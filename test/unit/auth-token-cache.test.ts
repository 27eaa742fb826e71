import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { RefusedToken } from "../../src/auth/refused-token.ts";
import { type CachedToken, TOKEN_CACHE_LIMITS, TokenCache } from "../../src/auth/authenticator.ts";
import { ServiceError } from "@session-ledger/base/errors";

const NOW = { nowMs: 1_000, tickMs: 0 };
const now = () => NOW;

function known(
  given: { readonly expiresAtMs?: number; readonly trusted?: Set<object> } = {},
): CachedToken {
  const key = {};
  const { expiresAtMs = 2_000, trusted } = given;
  trusted?.add(key);
  return {
    key,
    principal: { ...ANONYMOUS, expiresAtMs },
    verifier: {
      verify: () => Promise.reject(new Error("nobody should ask for this")),
      trusts: (one) => trusted?.has(one) ?? true,
    },
  };
}

function small(limits: Partial<typeof TOKEN_CACHE_LIMITS> = {}): TokenCache {
  return new TokenCache({ ...TOKEN_CACHE_LIMITS, ...limits });
}

describe("a verified token", () => {
  test("is cached until it expires, to the millisecond, and is then refused as expired", async () => {
    const cache = small();
    const one = known();
    await cache.check("a", now, async () => one);
    expect(cache.find("a", { nowMs: 1_999, tickMs: 0 })).toBe(one);
    expect(() => cache.find("a", { nowMs: 2_000, tickMs: 0 })).toThrow("expired");
    // The next check verifies the token again, with the same result.
    expect(cache.find("a", { nowMs: 2_000, tickMs: 0 })).toBeUndefined();
  });

  test("is dropped when its key is gone", async () => {
    const cache = small();
    const trusted = new Set<object>();
    await cache.check("a", now, async () => known({ trusted }));
    expect(cache.find("a", NOW)).toBeDefined();
    trusted.clear();
    expect(cache.find("a", NOW)).toBeUndefined();
  });

  test("is dropped first when it is the least recently used", async () => {
    const cache = small({ verifiedMax: 2 });
    await cache.check("a", now, async () => known());
    await cache.check("b", now, async () => known());
    cache.find("a", NOW);
    await cache.check("c", now, async () => known());
    expect(["a", "b", "c"].map((one) => cache.find(one, NOW) !== undefined)).toEqual([
      true,
      false,
      true,
    ]);
  });
});

describe("a refused token", () => {
  const refusing = (refusal: RefusedToken["refusal"]) => () =>
    Promise.reject(new RefusedToken(refusal));

  test("is refused again for ten seconds without a check", async () => {
    const cache = small();
    await expect(cache.check("a", now, refusing("signature"))).rejects.toThrow("not accepted");
    expect(() => cache.find("a", { nowMs: 0, tickMs: 9_999 })).toThrow("not accepted");
    expect(cache.find("a", { nowMs: 0, tickMs: 10_000 })).toBeUndefined();
  });

  test.each(["unknown_key", "not_yet_valid"] as const)(
    "is checked again when it may become valid: %s",
    async (refusal) => {
      const cache = small();
      await expect(cache.check("a", now, refusing(refusal))).rejects.toThrow("not accepted");
      expect(cache.find("a", NOW)).toBeUndefined();
    },
  );

  test("is not cached when the check itself failed", async () => {
    const cache = small();
    const failure = new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "down");
    await expect(cache.check("a", now, () => Promise.reject(failure))).rejects.toBe(failure);
    expect(cache.find("a", NOW)).toBeUndefined();
  });

  test("is cached up to a limit, and displaces no verified token", async () => {
    const cache = small({ refusedMax: 10, verifiedMax: 1 });
    await cache.check("good", now, async () => known());
    for (let n = 0; n < 100; n += 1) {
      await cache.check(`bad${n}`, now, refusing("signature")).catch(() => undefined);
    }
    expect(cache.find("good", NOW)).toBeDefined();
    expect(cache.find("bad89", NOW)).toBeUndefined();
    expect(() => cache.find("bad90", NOW)).toThrow("not accepted");
  });
});

describe("checks", () => {
  test("of one token are shared by all callers that wait for it", async () => {
    const cache = small();
    let checks = 0;
    const answer = Promise.withResolvers<CachedToken>();
    const verify = (): Promise<CachedToken> => {
      checks += 1;
      return answer.promise;
    };
    const waiting = Array.from({ length: 100 }, () => cache.check("a", now, verify));
    answer.resolve(known());
    expect(new Set(await Promise.all(waiting)).size).toBe(1);
    expect(checks).toBe(1);
  });

  test("are limited: further checks wait in order, and above that limit are refused as busy", async () => {
    const cache = small({ checksMax: 2, waitingMax: 3 });
    const begun: string[] = [];
    const answers = new Map<string, (one: CachedToken) => void>();
    const ask = (digest: string): Promise<CachedToken> =>
      cache.check(digest, now, () => {
        begun.push(digest);
        return new Promise((resolve) => answers.set(digest, resolve));
      });
    const waiting = ["a", "b", "c", "d", "e"].map(ask);
    await turn();
    expect(begun).toEqual(["a", "b"]);
    await expect(ask("f")).rejects.toMatchObject({
      reason: "SERVER_BUSY",
      code: "overloaded",
      retryAfterMs: 1_000,
    });
    // A second check of a waiting token joins the first, and takes no place.
    void ask("e");
    for (const one of ["b", "a", "c", "d", "e"]) {
      answers.get(one)?.(known());
      await waiting["abcde".indexOf(one)];
      await turn();
    }
    expect(begun).toEqual(["a", "b", "c", "d", "e"]);
    await Promise.all(waiting);
    // All places are free again.
    const more = ["g", "h", "i"].map(ask);
    await turn();
    expect(begun.slice(5)).toEqual(["g", "h"]);
    for (const one of ["g", "h"]) answers.get(one)?.(known());
    await Promise.all(more.slice(0, 2));
    await turn();
    answers.get("i")?.(known());
    await Promise.all(more);
  });
});
