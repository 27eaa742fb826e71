/** Push streams in the table: which one is the newest, and up to which number it is committed. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import { FIXED_PLANS } from "../../src/store/database.ts";
import type { Outcome, Push } from "../../src/store/rows.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { openStream, type OpenedStream, type OpeningResult } from "../../src/store/streams.ts";
import {
  countsOf,
  holdSession,
  newPush,
  newRange,
  rangePush,
  useLedger,
  useSql,
  appendIn,
} from "../support/ledger.ts";

const EPOCH_MAX = 2n ** 63n - 1n;
const AUTO = { createMissing: true, wait: false };

const ledger = await useLedger();
const client = useSql(ledger.url, 2, FIXED_PLANS);

const run = (pushes: readonly Push[]) => append(ledger.database, pushes, AUTO);
const ask = (sessionId: string, epoch: bigint, options = AUTO): Promise<OpeningResult> =>
  openStream(ledger.database, { sessionId, epoch }, options);

async function open(sessionId: string, epoch = 0n): Promise<OpenedStream> {
  const opening = await ask(sessionId, epoch);
  if (opening.kind !== "opened") throw new Error(opening.kind);
  return opening;
}

const opened = (epoch: bigint, stream: bigint, lastClientSeq = 0n, refused = 0n) => ({
  kind: "opened",
  epoch,
  stream,
  lastClientSeq,
  refused,
  isCancelled: false,
});
const kinds = (outcomes: readonly Outcome[]) => outcomes.map(({ kind }) => kind);
describe("an opening", () => {
  test("of an unknown session creates it or is not_found; a deleted one is deleted", async () => {
    expect(await ask("strict", 0n, { ...AUTO, createMissing: false })).toEqual({
      kind: "not_found",
    });
    expect(await ask("strict", 3n)).toEqual(opened(3n, 1n));
    expect(await ask("strict", 3n, { ...AUTO, createMissing: false })).toEqual(opened(3n, 2n));
    await deleteSession(ledger.database, "strict");
    expect(await ask("strict", 0n)).toEqual({ kind: "deleted" });
  });

  test("of epoch 0 is stale when the highest epoch is the maximum", async () => {
    expect(await ask("last", EPOCH_MAX)).toEqual(opened(EPOCH_MAX, 1n));
    expect(await ask("last", 0n)).toEqual({ kind: "stale_epoch", highest: EPOCH_MAX });
    expect(await ask("last", EPOCH_MAX)).toEqual(opened(EPOCH_MAX, 2n));
  });

  test("of a locked session is busy, or waits as long as lock_timeout", async () => {
    await open("held");
    await using held = await holdSession(client, "held");
    expect(await ask("held", 0n)).toEqual({ kind: "busy" });
    await expect(ask("held", 0n, { ...AUTO, wait: true })).rejects.toMatchObject({ code: "55P03" });
    await held.release();
    expect(await ask("held", 0n)).toEqual(opened(2n, 2n));
  });

  test("among twenty of a new session: twenty streams, one of which is the newest", async () => {
    const wait = { createMissing: true, wait: true };
    const openings = await Promise.all(Array.from({ length: 20 }, () => ask("crowd", 0n, wait)));
    const streams = openings.flatMap((one) => (one.kind === "opened" ? [one] : []));
    const numbers = Array.from({ length: 20 }, (_, index) => BigInt(index + 1));
    const inOrder = (a: bigint, b: bigint) => (a < b ? -1 : 1);
    expect(streams.map(({ stream }) => stream).toSorted(inOrder)).toEqual(numbers);
    expect(streams.map(({ epoch }) => epoch).toSorted(inOrder)).toEqual(numbers);
    const outcomes: Outcome[] = [];
    for (const stream of streams) {
      outcomes.push(...(await run([rangePush("crowd", stream, { from: 1n, to: 1n })])));
    }
    expect(kinds(outcomes).toSorted()).toEqual([...Array(19).fill("stale_epoch"), "stored"]);
    const newest = streams.findIndex(({ stream }) => stream === 20n);
    expect(outcomes[newest]?.kind).toBe("stored");
  });

  test("creates a session with one time for created_at and updated_at", async () => {
    const ids = Array.from({ length: 500 }, (_, index) => `made-${index}`);
    await run(ids.map((id) => newPush(id)));
    for (let index = 0; index < 100; index += 1) await open(`made-by-opening-${index}`);
    const rows = await client`
      select id from sessions where id like 'made-%' and created_at <> updated_at`;
    expect(rows).toEqual([]);
  });
});

describe("ranges of a push stream", () => {
  test("that overlap committed numbers are a defect, and nothing is stored", async () => {
    const stream = await open("overlap");
    await run([rangePush("overlap", stream, { from: 1n, to: 3n })]);
    await expect(run([rangePush("overlap", stream, { from: 3n, to: 4n })])).rejects.toThrow(
      "overlaps",
    );
    expect(await ask("overlap", 1n)).toEqual(opened(1n, 2n, 3n));
  });

  test("of a stream that the table does not know, as after a restore, are stream_replaced", async () => {
    const range = newRange({ epoch: 2n, stream: 1n }, { from: 1n, to: 1n });
    expect(await run([newPush("restored", { range })])).toEqual([{ kind: "stream_replaced" }]);
    await open("restored", 1n);
    expect(await run([newPush("restored", { range })])).toEqual([{ kind: "stream_replaced" }]);
  });

  test("of an unknown or deleted session are not_found or deleted", async () => {
    const stream = await open("gone");
    await deleteSession(ledger.database, "gone");
    const gone = rangePush("gone", stream, { from: 1n, to: 1n });
    const unknown = rangePush("nowhere", stream, { from: 1n, to: 1n });
    const strict = { createMissing: false, wait: false };
    expect(await append(ledger.database, [gone, unknown], strict)).toEqual([
      { kind: "deleted" },
      { kind: "not_found" },
    ]);
  });

  test("that were committed stay committed after their rows were erased", async () => {
    const stream = await open("erased");
    const range = rangePush("erased", stream, { from: 1n, to: 1n });
    await run([range]);
    await client`delete from session_events where session_id = 'erased'`;
    expect(await run([range])).toEqual([{ kind: "deduplicated", row: undefined }]);
  });
});

describe("plans", () => {
  const ROWS = 50_000;

  test("a repeated range is found from the head of a large session in a few steps", async () => {
    const stream = await open("large");
    await ledger.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'large', n, gen_random_uuid(), 'RAW', '{}', now(), now() from generate_series(1, ${ROWS}::int) n`);
    await client`update sessions set event_seq = ${ROWS} where id = 'large'`;
    const range = rangePush("large", stream, { from: 1n, to: 1n });
    await run([range]);
    await run(Array.from({ length: 20 }, () => newPush("large")));
    const counts = await countsOf(client, "session_events", async (on) =>
      expect(await appendIn(on, [range], AUTO)).toMatchObject([
        { kind: "deduplicated", row: { seq: BigInt(ROWS) + 1n } },
      ]),
    );
    expect(counts).toMatchObject({ seqScans: 0, rowsByIndex: 21 });
  });

  test("a range changes its session in one update that stays in its page", async () => {
    const stream = await open("hot");
    const range = rangePush("hot", stream, { from: 1n, to: 2n });
    const counts = await countsOf(client, "sessions", (on) => appendIn(on, [range], AUTO));
    expect(counts).toMatchObject({ updates: 1, hotUpdates: 1, seqScans: 0 });
  });
});
