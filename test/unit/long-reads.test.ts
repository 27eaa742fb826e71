/** The seats of long reads; that others find a connection is in test/e2e/limits.test.ts. */
import { expect, test } from "vitest";
import { createReadSlots, withReadSlot } from "../../src/handlers/long-reads.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { storeError } from "../../src/store/failure.ts";

const CONNECTIONS = 8;
/** Half of them, and of that half for one caller. */
const OF_CALLER = 2;

const [ann, bob, cyd] = ["ann", "bob", "cyd"].map(
  (id): Principal => ({ ...ANONYMOUS, kind: "oidc", id }),
);

function reading() {
  const running: { readonly of: string; readonly end: () => void }[] = [];
  const read = withReadSlot(createReadSlots(CONNECTIONS), (of: string) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    running.push({ of, end: () => resolve(of) });
    return promise;
  });
  const ask = (principal = ANONYMOUS, of = principal.id, signal = new AbortController().signal) =>
    read(of, { principal, signal, hasEnded: false });
  return { running, ask };
}

const ofAll = (reads: readonly { readonly of: string }[]) => reads.map(({ of }) => of);

test("a caller has at most half of the seats, and callers that wait take turns", async () => {
  const { running, ask } = reading();
  const reads = [ann, ann, ann, ann, bob, bob, bob, cyd].map((caller) => ask(caller));
  expect(ofAll(running)).toEqual(["ann", "ann", "bob", "bob"]);
  for (let at = 0; at < reads.length; at += 1) {
    running[at]?.end();
    await new Promise(setImmediate);
  }
  await Promise.all(reads);
  expect(ofAll(running).slice(4).toSorted()).toEqual(["ann", "ann", "bob", "cyd"]);
  // Of those that wait, the second read of one caller is behind the first of another one.
  expect(ofAll(running).indexOf("cyd")).toBeLessThan(ofAll(running).lastIndexOf("ann"));
});

test("64 reads of a caller wait, further ones are refused, and those of others are not", async () => {
  const { running, ask } = reading();
  const ending = new AbortController();
  const others = Array.from({ length: OF_CALLER + 63 }, () => ask(ann));
  const leaving = ask(ann, "ann", ending.signal);
  await expect(ask(ann)).rejects.toMatchObject({ code: "overloaded", reason: "SERVER_BUSY" });
  void ask(bob);
  expect(ofAll(running)).toEqual(["ann", "ann", "bob"]);
  ending.abort(new Error("left"));
  await expect(leaving).rejects.toThrow("left");
  const last = ask(ann);
  for (let at = 0; at < others.length + 2; at += 1) {
    running[at]?.end();
    await new Promise(setImmediate);
  }
  expect(await Promise.all([...others, last])).toHaveLength(OF_CALLER + 64);
});

test("a read that the database cancels is too long, and no failure of the database", async () => {
  const slow = Object.assign(new Error("statement timeout"), { code: "57014" });
  const context = { principal: ANONYMOUS, signal: new AbortController().signal, hasEnded: false };
  const failing = (error: unknown) => {
    const read = withReadSlot(createReadSlots(CONNECTIONS), async () => {
      throw error;
    });
    return read(undefined, context);
  };
  await expect(failing(storeError(slow))).rejects.toMatchObject({
    code: "deadline_exceeded",
    reason: "DEADLINE_EXCEEDED",
  });
  const gone = Object.assign(new Error("gone"), { code: "CONNECTION_CLOSED" });
  await expect(failing(storeError(gone))).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
  await expect(failing(new ServiceError("not_found", "SESSION_NOT_FOUND", "x"))).rejects.toThrow(
    "x",
  );
});
