/** The calls of ForkSession before the store; the copies are in test/postgres/fork.test.ts. */
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ForkSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createForkSession } from "../../src/handlers/fork.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { createDatabase } from "../../src/store/database.ts";
import { diskFull } from "../../src/store/failure.ts";

test("a fork is refused while the disk has no room, and asks the store for nothing", async () => {
  // Not started: it rejects each statement.
  const database = createDatabase({
    url: () => "",
    connectionsMax: 1,
    statementTimeoutMs: 1,
    lockTimeoutMs: 1,
  });
  const forkSession = createForkSession({
    database,
    onChange: () => undefined,
    refusal: () => diskFull(),
    rates: { take: () => undefined, charge: () => 0 },
  });
  const request = create(ForkSessionRequestSchema, { sessionId: "s", newId: "f1", atSeq: 1n });
  const { signal } = new AbortController();
  const forked = forkSession(request, { principal: ANONYMOUS, signal, hasEnded: false });
  await expect(forked).rejects.toMatchObject({ reason: "DISK_FULL" });
});
