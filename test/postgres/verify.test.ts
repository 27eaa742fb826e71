/** Damage that a session may have behind the back of the service, and what `verify` says of it. */
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { type Head, readHeads } from "../../src/maintenance/chains.ts";
import { eraseBatch, eraseSession } from "../../src/maintenance/erase.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { verify, type VerifiedSession } from "../../src/maintenance/verify.ts";
import { append } from "../../src/store/append.ts";
import { sql, type SQL } from "../../src/store/database.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { forkSession } from "../../src/store/fork.ts";
import { mergeFragments } from "../support/merging.ts";
import { createLedger, newPush, newRow, type TestLedger } from "../support/ledger.ts";
import { CHAINS, correctCounts, makeChainsAgain, withoutChains } from "../support/chains.ts";
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
  const talk = ["said", "asks", "said"].map((payload) => newRow({ eventType: "user", payload }));
  for (const push of [newPush("s", { rows }), newPush("s", { stream: "messages", rows: talk })])
    await append(ledger.database, [push], { createMissing: true, wait: true });
});

afterEach(() => ledger[Symbol.asyncDispose]());

async function verified(
  sessionIds?: readonly string[],
  heads: ReadonlyMap<string, readonly Head[]> = new Map(),
): Promise<readonly VerifiedSession[]> {
  const all: VerifiedSession[] = [];
  await verify(ledger.database, {
    sessionIds,
    heads,
    signal,
    verified: (session) => Promise.resolve(all.push(session) > 0),
  });
  return all;
}

const whole = { sessionId: "s", messages: 3, events: 4, uncovered: 0, problems: [], notes: [] };

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
  const options = { afterMs: 0, sessionId: "old", dryRun: false, signal };
  expect(await retentionPass({ database: ledger.database }, options)).toMatchObject({ events: 3 });
  expect(await verified(["old"])).toEqual([{ ...whole, sessionId: "old", messages: 0, events: 1 }]);
});

const MESSAGES_DIFFER = "messages: the rows from 1 to 3 are not those of the chain";
const EVENTS_DIFFER = "events: the rows from 1 to 43 are not those of the chain";

describe("a session is damaged by", () => {
  const damages: readonly (readonly [string, SQL, readonly string[]])[] = [
    [
      "a removed row",
      sql`delete from session_events where seq = 42`,
      [
        "events: the row at 43 should be at 42",
        "it counts 7 rows, and has 6",
        "stored bytes",
        EVENTS_DIFFER,
      ],
    ],
    [
      "a removed last row",
      sql`delete from session_messages where seq = 3`,
      [
        "messages: the last number is 2, and the session is at 3",
        "has 6",
        "stored bytes",
        MESSAGES_DIFFER,
      ],
    ],
    [
      "a removed first row",
      sql`delete from session_messages where seq = 1`,
      ["it counts 7 rows, and has 6", "stored bytes", MESSAGES_DIFFER],
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
      ["events: the row at 50 should be at 44", "events: the last number is 50", EVENTS_DIFFER],
    ],
    [
      "a longer text",
      sql`update session_messages set payload = 'said more' where seq = 2`,
      ["stored bytes", MESSAGES_DIFFER],
    ],
    [
      "a changed count of events",
      sql`update session_events set event_count = 39 where seq = 2`,
      [
        "events: the row at 42 should be at 41",
        EVENTS_DIFFER,
        "events: the row at 2 does not expand: fragments.lengths",
      ],
    ],
    [
      "a changed index",
      sql`update session_events set fragments = '\\x0102' where seq = 2`,
      ["stored bytes", EVENTS_DIFFER, "events: the row at 2 does not expand"],
    ],
    [
      "a changed text of a merged row",
      sql`update session_events set payload = replace(payload, '"m1"', '"m1') where seq = 2`,
      ["stored bytes", EVENTS_DIFFER, "events: the row at 2 does not expand"],
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

describe("with corrected counts, a session is damaged by", () => {
  const swap = (table: string, column: string, one: number, other: number): SQL => sql`
    update ${sql.raw(table)} t set ${sql.raw(column)} = o.${sql.raw(column)} from ${sql.raw(table)} o
    where (t.seq = ${one}::int and o.seq = ${other}::int) or (t.seq = ${other}::int and o.seq = ${one}::int)`;
  const set = (table: string, change: string): SQL =>
    sql.raw(`update ${table} set ${change} where seq = 1`);
  const forgeries: readonly (readonly [string, SQL, "messages" | "events"])[] = [
    ["another text of the same length", set("session_messages", "payload = 'lies'"), "messages"],
    [
      "another event of the same length",
      set("session_events", "payload = reverse(payload)"),
      "events",
    ],
    ["swapped texts", swap("session_messages", "payload", 1, 2), "messages"],
    ["swapped events", swap("session_events", "id", 42, 43), "events"],
    ["a removed last message", sql`delete from session_messages where seq = 3`, "messages"],
    ["a removed last event", sql`delete from session_events where seq = 43`, "events"],
    ["a removed first message", sql`delete from session_messages where seq = 1`, "messages"],
    ["a removed first event", sql`delete from session_events where seq = 1`, "events"],
    [
      "an added message",
      sql`insert into session_messages select session_id, 4, gen_random_uuid(), event_type, payload, null,
        null, actor, sender, sent_at, created_at, recorded_at from session_messages where seq = 1`,
      "messages",
    ],
    [
      "an added event",
      sql`insert into session_events select session_id, 44, gen_random_uuid(), event_type, payload, null, null, actor,
        created_at, recorded_at, completed_at, 1, run_id, fragments, conformant from session_events where seq = 1`,
      "events",
    ],
    ["another id", set("session_messages", "id = gen_random_uuid()"), "messages"],
    ["another type", set("session_messages", "event_type = 'User'"), "messages"],
    ["another sender", set("session_messages", "sender = 'you'"), "messages"],
    ["another time of sending", set("session_messages", "sent_at = now()"), "messages"],
    ["another time", set("session_messages", "created_at = now()"), "messages"],
    ["another time of recording", set("session_events", "recorded_at = now()"), "events"],
    ["another end", set("session_events", "completed_at = now()"), "events"],
    ["another run", set("session_events", "run_id = 'other'"), "events"],
    ["another actor", set("session_events", "actor = 'service'"), "events"],
    ["a key", set("session_events", "idempotency_key = 'k'"), "events"],
    ["the digest of a key", set("session_events", "key_digest = '\\x00'"), "events"],
    ["another conformance", set("session_events", "conformant = not conformant"), "events"],
  ];
  test.each(forgeries)("%s", async (_, forgery, stream) => {
    await ledger.database.run(forgery);
    await ledger.database.run(correctCounts("s"));
    const [session] = await verified();
    expect(session?.problems).toEqual([
      expect.stringMatching(`^${stream}: the rows from 1 to \\d+ are not those of the chain$`),
    ]);
  });
});

test("the rows and chains of another session are damage", async () => {
  const { database } = ledger;
  await append(database, [newPush("t")], { createMissing: true, wait: true });
  await database.run(sql`delete from session_events where session_id = 't'`);
  for (const table of ["session_messages", "session_events"])
    await database.run(sql`
      insert into ${sql.raw(table)} select (json_populate_record(r, '{"session_id":"t"}')).*
      from ${sql.raw(table)} r where session_id = 's'`);
  const copied = sql`message_seq, event_seq, row_count, payload_bytes, ${CHAINS}`;
  await database.run(
    sql`update sessions set (${copied}) = (select ${copied} from sessions where id = 's') where id = 't'`,
  );
  const [, session] = await verified();
  expect(session?.problems).toEqual([MESSAGES_DIFFER, EVENTS_DIFFER]);
});

async function pushBoth(count = 1): Promise<void> {
  const rows = Array.from({ length: count }, () => newRow({ eventType: "user", payload: "said" }));
  const both = [newPush("s", { rows }), newPush("s", { stream: "messages", rows })];
  for (const one of both) await append(ledger.database, [one], { createMissing: true, wait: true });
}

async function headsNow(): Promise<Head[]> {
  const read: Head[] = [];
  await readHeads(ledger.database, {
    sessionIds: ["s"],
    signal,
    read: (_, some) => Promise.resolve(read.push(...some) >= 0),
  });
  return read;
}

test("rows of an older version are no damage: they are counted, and the next append begins a chain", async () => {
  await withoutChains(ledger.database, "s", () => pushBoth());
  expect(await verified()).toEqual([{ ...whole, messages: 4, events: 5, uncovered: 2 }]);
  expect(await headsNow()).toEqual([]);
  await pushBoth();
  expect(await verified()).toEqual([{ ...whole, messages: 5, events: 6, uncovered: 9 }]);
  expect(await headsNow()).toMatchObject([{ number: 5n }, { number: 45n }]);
  await ledger.database.run(sql`update session_messages set payload = 'lies' where seq = 5`);
  const [session] = await verified();
  expect(session?.problems).toEqual(["messages: the rows from 5 to 5 are not those of the chain"]);
});

test("a refused push leaves the chain of a session with rows of an older version", async () => {
  await withoutChains(ledger.database, "s", () => pushBoth());
  const options = { createMissing: true, wait: true };
  await append(ledger.database, [newPush("s", { key: "k" })], options);
  await withoutChains(ledger.database, "s", () => pushBoth());
  const reused = newPush("s", { key: "k", digest: Uint8Array.of(9) });
  expect(await append(ledger.database, [reused], options)).toEqual([{ kind: "key_reused" }]);
  expect((await verified())[0]).toMatchObject({ problems: [], uncovered: 8 });
});

describe("compared with earlier heads,", () => {
  test("a session that has grown since is whole, and a change before or after them is named", async () => {
    const noted = await headsNow();
    await pushBoth(2);
    noted.push(...(await headsNow()));
    await pushBoth();
    expect(await against(noted)).toMatchObject({ problems: [], notes: [] });
    await ledger.database.run(sql`update session_messages set payload = 'lies' where seq = 4`);
    expect(await against(noted)).toMatchObject({
      problems: ["messages: the rows from 4 to 5 are not those of the chain"],
    });
  });

  test("chains that were made again after a change are damage", async () => {
    const noted = await headsNow();
    await ledger.database.run(sql`update session_messages set payload = 'lies' where seq = 2`);
    await makeChainsAgain(ledger.database, "s");
    expect(await verified()).toEqual([whole]);
    expect(await against(noted)).toMatchObject({ problems: [MESSAGES_DIFFER] });
  });

  test("a shorter session is damage, and one without chains, with later ones, or none at all", async () => {
    const noted = await headsNow();
    await ledger.database.run(sql`delete from session_messages where seq = 3`);
    await ledger.database.run(correctCounts("s"));
    await makeChainsAgain(ledger.database, "s");
    expect(await against(noted)).toMatchObject({
      problems: ["messages: the number 3 was noted, and the session is at 2"],
    });
    await ledger.database.run(sql`update sessions set event_chain = null, event_chain_seq = null`);
    expect(await against(noted)).toMatchObject({
      problems: expect.arrayContaining(["events: the number 43 was noted, and no chain covers it"]),
    });
    await pushBoth();
    expect(await against(noted)).toMatchObject({
      problems: expect.arrayContaining([
        "events: the number 43 was noted, and the chain begins at 44",
      ]),
    });
    const [, missing] = await verified(undefined, new Map([["gone", noted]]));
    expect(missing).toMatchObject({
      sessionId: "gone",
      problems: ["it does not exist, and has a head in the file"],
    });
  });

  test("erased rows are no damage, also those of a part of a push", async () => {
    const noted = await headsNow();
    await pushBoth(5);
    const upTo = (seq: bigint) => ({
      sessionId: "s",
      stream: "messages" as const,
      upToSeq: seq,
    });
    await eraseBatch(ledger.database, upTo(2n));
    expect(await against(noted)).toMatchObject({ problems: [], notes: [] });
    await eraseBatch(ledger.database, upTo(3n));
    expect(await against(noted)).toMatchObject({ problems: [], notes: [] });
    await eraseBatch(ledger.database, upTo(6n));
    await pushBoth();
    expect(await against(noted)).toMatchObject({
      problems: [],
      notes: ["messages: 3 was noted, and cannot be compared: its row was erased"],
    });
    await ledger.database.run(sql`
      insert into session_messages select session_id, 6, gen_random_uuid(), event_type, payload, null, null, actor,
        sender, sent_at, created_at, recorded_at from session_messages where seq = 7`);
    await ledger.database.run(correctCounts("s"));
    expect((await verified())[0]?.problems).toEqual([
      "messages: a row is below 7, and the rows up to there were erased",
    ]);
  });

  async function against(noted: readonly Head[]): Promise<VerifiedSession | undefined> {
    return (await verified(["s"], new Map([["s", noted]])))[0];
  }
});

test("a session that is erased whole is whole, and so is a fork of one that lost its beginning", async () => {
  const { database } = ledger;
  await eraseBatch(database, { sessionId: "s", stream: "events", upToSeq: 1n });
  const request = { sessionId: "s", forkId: "f", atSeq: 42n, atMessageSeq: undefined };
  const limits = { createdByUserId: undefined, rowsMax: 100, bytesMax: 100_000 };
  expect(await forkSession(database, { ...request, ...limits })).toMatchObject({ again: false });
  expect(await verified(["f"])).toMatchObject([{ events: 2, uncovered: 0, problems: [] }]);
  await append(database, [newPush("f")], { createMissing: false, wait: true });
  const call = { marked: () => undefined, counted: () => undefined, signal };
  await eraseSession(database, "s", call);
  expect(await verified()).toMatchObject([
    { sessionId: "f", events: 3, uncovered: 0, problems: [] },
    { ...whole, messages: 0, events: 0 },
  ]);
});
