/** The keys of session tokens in a real table: instances share them, and a restart finds them again. */
import { decodeProtectedHeader } from "jose";
import { beforeEach, expect, test } from "vitest";
import { sql } from "drizzle-orm";
import { KEY_AHEAD_MS, type TokenKeyStore } from "../../src/auth/session-tokens.ts";
import {
  addTokenKey,
  readTokenKeys,
  removeTokenKeysMadeBefore,
  removeTokenKeysOfTheFuture,
} from "../../src/store/token-keys.ts";
import { type AuthFixture, handClock, NOW_S, startAuth } from "../support/auth.ts";
import { useLedger } from "../support/ledger.ts";

const HOUR_MS = 3_600_000;

const ledger = await useLedger();
const { database } = ledger;
const keys: TokenKeyStore = {
  readKeys: (limit) => readTokenKeys(database, limit),
  addKey: (key) => addTokenKey(database, key),
  removeKeysMadeBefore: (micros) => removeTokenKeysMadeBefore(database, micros),
  removeKeysOfTheFuture: (ids) => removeTokenKeysOfTheFuture(database, ids),
};
beforeEach(async () => {
  await ledger.database.run(sql`delete from token_keys`);
});

function start(clock = handClock()): Promise<AuthFixture> {
  const options = {
    authTokens: '{"tokens":[]}',
    sessionTokenTtlMaxMs: 2 * HOUR_MS,
    sessionTokenRotateAfterMs: HOUR_MS,
  };
  return startAuth({ keys, clock, options });
}

async function issue(auth: AuthFixture): Promise<string> {
  const of = { sessionId: "s1", role: "runner", ttlMs: 2 * HOUR_MS } as const;
  return (await auth.authenticator.sessionTokens.issue(of)).token;
}

async function keyIds(): Promise<readonly string[]> {
  return (await readTokenKeys(ledger.database, { keysMax: 100 })).map(({ id }) => id);
}

test("two instances accept each other's tokens, also by a key that is new to the other", async () => {
  await using one = await start();
  await using other = await start();
  const token = await issue(one);
  other.clock.advance(1_000);
  expect(await other.ask(token)).toMatchObject({ kind: "session", sessionId: "s1" });
  expect(decodeProtectedHeader(await issue(other)).kid).toBe(decodeProtectedHeader(token).kid);
  expect(await keyIds()).toHaveLength(1);
});

test("the keys survive a restart, and the rotation follows their age in the table", async () => {
  const clock = handClock();
  let token: string;
  {
    await using before = await start(clock);
    token = await issue(before);
  }
  clock.advance(HOUR_MS - 1);
  await using after = await start(clock);
  expect(await after.ask(token)).toMatchObject({ sessionId: "s1" });
  expect(decodeProtectedHeader(await issue(after)).kid).toBe(decodeProtectedHeader(token).kid);
  clock.advance(1);
  expect(decodeProtectedHeader(await issue(after)).kid).toBe(decodeProtectedHeader(token).kid);
  clock.advance(KEY_AHEAD_MS);
  const rotated = await issue(after);
  expect(decodeProtectedHeader(rotated).kid).not.toBe(decodeProtectedHeader(token).kid);
  expect(await after.ask(token)).toMatchObject({ sessionId: "s1" });
});

test("two instances that create a key at once create two, and both are valid everywhere", async () => {
  await using one = await start();
  await using other = await start();
  const tokens = await Promise.all([issue(one), issue(other)]);
  for (const auth of [one, other]) {
    auth.clock.advance(1_000);
    for (const token of tokens) {
      expect(await auth.ask(token)).toMatchObject({ sessionId: "s1" });
      auth.clock.advance(1_000);
    }
  }
});

test("a key is read back as it was written, to the microsecond", async () => {
  const key = {
    id: "k",
    privateJwk: '{"kty":"OKP"}',
    createdAtMicros: BigInt(NOW_S) * 1_000_000n + 7n,
  };
  await keys.addKey(key);
  expect(await keys.readKeys({ keysMax: 1 })).toEqual([key]);
  await keys.removeKeysMadeBefore(key.createdAtMicros);
  expect(await keyIds()).toEqual(["k"]);
  await keys.removeKeysMadeBefore(key.createdAtMicros + 1n);
  expect(await keyIds()).toEqual([]);
});

test("a key from the future is deleted only if the clock of the database agrees", async () => {
  const future = BigInt(Date.now() + HOUR_MS) * 1_000n;
  await keys.addKey({ id: "now", privateJwk: "{}", createdAtMicros: 1n });
  await keys.addKey({ id: "future", privateJwk: "{}", createdAtMicros: future });
  await keys.addKey({ id: "other", privateJwk: "{}", createdAtMicros: future + 1n });
  await keys.removeKeysOfTheFuture(["now", "future"]);
  expect(await keyIds()).toEqual(["other", "now"]);
});
