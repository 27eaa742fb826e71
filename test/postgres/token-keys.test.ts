/** The keys of session tokens in a real table: instances share them, and a restart finds them again. */
import { decodeProtectedHeader } from "jose";
import { beforeEach, expect, test } from "vitest";
import { sql } from "drizzle-orm";
import { KEY_AHEAD_MS } from "../../src/auth/session-tokens.ts";
import { createTokenKeyStore } from "../../src/store/token-keys.ts";
import { type AuthFixture, handClock, startAuth } from "../support/auth.ts";
import { useLedger } from "../support/ledger.ts";

const HOUR_MS = 3_600_000;

const ledger = await useLedger();
const { database } = ledger;
const keys = createTokenKeyStore(database);
beforeEach(async () => {
  await ledger.database.run(sql`delete from token_keys`);
});

function start(clock = handClock()): Promise<AuthFixture> {
  const options = { authTokens: '{"tokens":[]}', sessionTokenTtlMaxMs: 96 * HOUR_MS };
  return startAuth({ keys, clock, options });
}

/** Makes all keys older. */
async function age(ms: number): Promise<void> {
  await database.run(
    sql`update token_keys set created_at = created_at - ${`${ms} milliseconds`}::interval`,
  );
}

async function issue(auth: AuthFixture, ttlMs = HOUR_MS): Promise<string> {
  const of = { sessionId: "s1", role: "runner", ttlMs } as const;
  return (await auth.authenticator.sessionTokens.issue(of)).token;
}

async function keyIds(): Promise<readonly string[]> {
  return (await keys.readKeys()).map(({ id }) => id);
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
  let token: string;
  {
    await using before = await start();
    token = await issue(before);
  }
  const kidOf = (text: string) => decodeProtectedHeader(text).kid;
  await age(96 * HOUR_MS);
  {
    await using after = await start();
    expect(await after.ask(token)).toMatchObject({ sessionId: "s1" });
    expect(kidOf(await issue(after))).toBe(kidOf(token));
    expect(await keyIds()).toHaveLength(1);
  }
  await age(HOUR_MS); // With the time in which the next key does not sign yet.
  {
    await using after = await start();
    expect(kidOf(await issue(after))).toBe(kidOf(token));
    expect(await keyIds()).toHaveLength(2);
  }
  await age(KEY_AHEAD_MS);
  await using after = await start();
  expect(kidOf(await issue(after))).not.toBe(kidOf(token));
  expect(await after.ask(token)).toMatchObject({ sessionId: "s1" });
});

test("the keys of a version that made one each day verify until their tokens have ended", async () => {
  const daily: { readonly token: string; readonly id: unknown; readonly jwk: unknown }[] = [];
  for (let day = 0; day < 5; day += 1) {
    await using maker = await start();
    const token = await issue(maker, 96 * HOUR_MS);
    const [row] = await database.run(sql`delete from token_keys returning id, private_jwk`);
    daily.push({ token, id: row?.["id"], jwk: row?.["private_jwk"] });
  }
  for (const [day, { id, jwk }] of daily.entries()) {
    await age(24 * HOUR_MS);
    await database.run(sql`insert into token_keys values (${id}, ${jwk}, clock_timestamp())`);
    expect(await keyIds()).toHaveLength(day + 1);
  }
  await using auth = await start();
  await issue(auth);
  for (const { token } of daily) expect(await auth.ask(token)).toMatchObject({ sessionId: "s1" });
  await age(97 * HOUR_MS);
  await using later = await start();
  await issue(later);
  expect(await keyIds()).toEqual([expect.any(String), daily[4]?.id]);
});

test("a key of the future does not sign, and is replaced", async () => {
  await using wrong = await start();
  const future = await issue(wrong);
  await age(-3 * 365 * 24 * HOUR_MS);
  await using auth = await start();
  await issue(auth);
  expect(await auth.ask(future)).toMatchObject({ sessionId: "s1" });
  await age(KEY_AHEAD_MS);
  await using after = await start();
  expect(decodeProtectedHeader(await issue(after)).kid).not.toBe(decodeProtectedHeader(future).kid);
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
