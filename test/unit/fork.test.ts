/** The calls of ForkSession before the store; the copies are in test/postgres/fork.test.ts. */
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ForkSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createForkSession, type ForkParts } from "../../src/handlers/fork.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { diskFull } from "../../src/store/failure.ts";
import type { Forked } from "../../src/store/fork.ts";

function asking(parts: Partial<ForkParts> = {}) {
  const waiting: ((forked: Forked) => void)[] = [];
  const forkSession = createForkSession({
    fork: () => new Promise((resolve) => void waiting.push(resolve)),
    getSession: () => Promise.resolve(undefined),
    readRunEnds: () => Promise.resolve(new Map()),
    setRunOutcome: () => Promise.resolve(),
    onChange: () => undefined,
    refusal: () => undefined,
    rates: { take: () => undefined, charge: () => 0 },
    ...parts,
  });
  let asked = 0;
  const ask = (signal = new AbortController().signal) => {
    const newId = `f${(asked += 1)}`;
    const request = create(ForkSessionRequestSchema, { sessionId: "s", newId, atSeq: 1n });
    return forkSession(request, { principal: ANONYMOUS, signal, hasEnded: false });
  };
  return { ask, waiting };
}

test("a fork is refused while the disk has no room, and asks the store for nothing", async () => {
  const { ask, waiting } = asking({ refusal: () => diskFull() });
  await expect(ask()).rejects.toMatchObject({ reason: "DISK_FULL" });
  expect(waiting).toEqual([]);
});
