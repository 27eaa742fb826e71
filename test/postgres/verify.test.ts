/** Damage that a session may have behind the back of the service, and what `verify` says of it. */
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { verify, type VerifiedSession } from "../../src/maintenance/verify.ts";
import { append } from "../../src/store/append.ts";
import { sql, type SQL } from "../../src/store/database.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { mergeFragments } from "../support/merging.ts";
import { createLedger, newPush, newRow, type TestLedger } from "../support/ledger.ts";
import { fragments } from "../support/push-stream.ts";

let ledger: TestLedger;
const { signal } = new AbortController();

/** Events 1, 2 to 41 (merged), 42, 43; messages 1 to 3. */
beforeEach(async () => {
  ledger = await createLedger();
  const raw = fragments(Array.from({ length: 40 }, (_, at) => `${at} ü`)).map(
    ({ payload = "" }) => ({
      eventType: "TEXT_MESSAGE_CONTENT",
      payload,
    }),
  );
  const merged = mergeFragments(raw).map((row) =>
    newRow({ ...row, fragments: row.fragments && encodeFragments(row.fragments) }),
  );
  const rows = [newRow(), ...merged, newRow(), newRow()];
  const talk = [1, 2, 3].map(() => newRow({ eventType: "user", payload: "said" }));
  for (const push of [newPush("s", { rows }), newPush("s", { stream: "messages", rows: talk })])
    await append(ledger.database, [push], { createMissing: true, wait: true });
});

afterEach(() => ledger[Symbol.asyncDispose]());

async function verified(sessionIds?: readonly string[]): Promise<readonly VerifiedSession[]> {
  const all: VerifiedSession[] = [];
  await verify(ledger.database, {
    sessionIds,
    signal,
    verified: (session) => Promise.resolve(all.push(session) > 0),
  });
  return all;
}

const whole = { sessionId: "s", messages: 3, events: 4, problems: [] };

test("a session that the service wrote is whole, and so is one without rows, or deleted", async () => {
  await ledger.database.run(
    sql`insert into sessions (id, created_at, updated_at) values ('empty', now(), now())`,
  );
  await deleteSession(ledger.database, "s");
  expect(await verified()).toEqual([
    { ...whole, sessionId: "empty", messages: 0, events: 0 },
    whole,
  ]);
  expect(await verified(["s"])).toEqual([whole]);
  await expect(verified(["s", "nobody"])).rejects.toMatchObject({ reason: "SESSION_NOT_FOUND" });
});

test("a session that lost its beginning to retention is whole", async () => {
  const run = (type: string, mark: "open" | "close") =>
    newRow({
      eventType: type,
      payload: JSON.stringify({ type, runId: "r", threadId: "t" }),
      mark: mark === "open" ? { kind: "open", runId: "r" } : { kind: "close" },
    });
  const rows = [run("RUN_STARTED", "open"), newRow(), run("RUN_FINISHED", "close"), newRow()];
  await append(ledger.database, [newPush("old", { rows })], { createMissing: true, wait: true });
  await ledger.database.run(
    sql`update session_events set recorded_at = recorded_at - interval '2 days' where session_id = 'old'`,
  );
  const options = { afterMs: 86_400_000, sessionId: "old", dryRun: false, signal };
  expect(await retentionPass({ database: ledger.database }, options)).toMatchObject({ events: 3n });
  expect(await verified(["old"])).toEqual([{ ...whole, sessionId: "old", messages: 0, events: 1 }]);
});

describe("a session is damaged by", () => {
  const damages: readonly (readonly [string, SQL, readonly string[]])[] = [
    [
      "a removed row",
      sql`delete from session_events where seq = 42`,
      ["events: the row at 43 should be at 42", "it counts 7 rows, and has 6", "stored bytes"],
    ],
    [
      "a removed last row",
      sql`delete from session_messages where seq = 3`,
      ["messages: the last number is 2, and the session is at 3", "has 6", "stored bytes"],
    ],
    [
      "a removed first row",
      sql`delete from session_messages where seq = 1`,
      ["it counts 7 rows, and has 6", "stored bytes"],
    ],
    [
      "an added row",
      sql`insert into session_messages select session_id, 4, gen_random_uuid(), event_type, payload, null,
        null, actor, sender, sent_at, created_at, recorded_at from session_messages where seq = 1`,
      ["messages: the last number is 4, and the session is at 3", "has 8", "stored bytes"],
    ],
    [
      "a moved row",
      sql`update session_events set seq = 50 where seq = 1`,
      ["events: the row at 50 should be at 44", "events: the last number is 50"],
    ],
    [
      "a longer text",
      sql`update session_messages set payload = 'said more' where seq = 2`,
      ["stored bytes"],
    ],
    [
      "a changed count of events",
      sql`update session_events set event_count = 39 where seq = 2`,
      [
        "events: the row at 42 should be at 41",
        "events: the row at 2 does not expand: fragments.lengths",
      ],
    ],
    [
      "a changed index",
      sql`update session_events set fragments = '\\x0102' where seq = 2`,
      ["stored bytes", "events: the row at 2 does not expand"],
    ],
    [
      "a changed text of a merged row",
      sql`update session_events set payload = replace(payload, '"m1"', '"m1') where seq = 2`,
      ["stored bytes", "events: the row at 2 does not expand"],
    ],
    [
      "a changed counter",
      sql`update sessions set event_seq = 99`,
      ["events: the last number is 43, and the session is at 99"],
    ],
  ];
  test.each(damages)("%s", async (_, damage, said) => {
    await ledger.database.run(damage);
    const [session] = await verified();
    expect(session?.problems).toEqual(said.map((part) => expect.stringContaining(part)));
  });
});
