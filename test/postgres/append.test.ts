import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import { readPage } from "../../src/store/pages.ts";
import type { Push } from "../../src/store/rows.ts";
import { FIXED_PLANS } from "../../src/store/database.ts";
import { appendIn, countsOf, newPush, newRow, useLedger, useSql } from "../support/ledger.ts";

const AUTO = { createMissing: true, wait: false };

const ledger = await useLedger();

const run = (pushes: readonly Push[], options = AUTO) => append(ledger.database, pushes, options);

async function rowsOf(sessionId: string, stream: "messages" | "events" = "events") {
  const page = await readPage(ledger.database, {
    stream,
    sessionId,
    after: 0n,
    before: undefined,
    descending: false,
    rowsMax: 1_000,
    bytesMax: 10_000_000,
    filter: undefined,
  });
  return page.rows;
}

describe("append", () => {
  test("a row is read back as it was pushed, to the microsecond and the byte", async () => {
    const row = newRow({
      payload: '{"type":"RAW","event":"\\u0000 \\ud800 ☃ 𝄞","n":1.0}',
      createdAtMicros: -62_135_596_800_000_000n,
      completedAtMicros: 253_402_300_799_999_999n,
      eventCount: 7,
      fragments: Uint8Array.of(0, 255, 92, 120),
      conformant: false,
    });
    await run([newPush("exact", { rows: [row] })]);
    const { sender: _sender, sentAtMicros: _sent, ...event } = row;
    const fragments = Buffer.from(row.fragments ?? []);
    expect(await rowsOf("exact")).toEqual([{ ...event, sessionId: "exact", seq: 1n, fragments }]);
  });

  test.each(["messages", "events"] as const)(
    "a repeated push of %s gets the row as a read gives it, in every field",
    async (stream) => {
      const own = { key: "k", digest: Uint8Array.of(1), stream };
      const some = {
        payload: '{"a":"\\u0000 ☃"}',
        createdAtMicros: 1_700_000_000_120_000n,
        ...(stream === "messages"
          ? { sender: '{"userId":"u"}', sentAtMicros: 1_700_000_000_000_001n }
          : { eventCount: 3, completedAtMicros: 1_700_000_000_000_100n, conformant: false }),
      };
      const fragments = stream === "events" ? Uint8Array.of(0, 255) : undefined;
      for (const row of [newRow({ ...some, fragments }), newRow({ payload: "" })]) {
        const sessionId = `repeated-${stream}-${row.id}`;
        await run([newPush(sessionId, { ...own, rows: [row] })]);
        const again = await run([newPush(sessionId, own), newPush("beside-it")]);
        expect(again).toMatchObject([{ kind: "deduplicated" }, { kind: "stored" }]);
        expect(again[0]).toEqual({
          kind: "deduplicated",
          row: (await rowsOf(sessionId, stream))[0],
        });
        expect(await run([newPush(sessionId, { ...own, digest: Uint8Array.of(2) })])).toEqual([
          { kind: "key_reused" },
        ]);
      }
    },
  );

  test("a refused push leaves the others of its session for the next batch, and those of others stored", async () => {
    await run([newPush("fenced", { epoch: 5n })]);
    const batch = [newPush("fenced", { epoch: 1n }), newPush("free-of-it"), newPush("fenced")];
    expect((await run(batch)).map(({ kind }) => kind)).toEqual(["stale_epoch", "stored", "again"]);
    expect(await rowsOf("fenced")).toHaveLength(1);
  });

  test("an unknown session is not_found when sessions are not created, and the rest is stored", async () => {
    await run([newPush("known")]);
    const outcomes = await run([newPush("unknown"), newPush("known")], {
      createMissing: false,
      wait: false,
    });
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(["not_found", "stored"]);
  });

  test("a locked session is busy while others are stored, and takes pushes after the unlock", async () => {
    await run([newPush("held"), newPush("free")]);
    const other = postgres(ledger.url, { max: 1 });
    try {
      await other.begin(async (transaction) => {
        await transaction`select 1 from sessions where id = 'held' for update`;
        const outcomes = await run([newPush("held"), newPush("free")]);
        expect(outcomes.map((outcome) => outcome.kind)).toEqual(["busy", "stored"]);
        await expect(run([newPush("held")], { createMissing: true, wait: true })).rejects.toThrow(
          "lock timeout",
        );
      });
      const push = newPush("held");
      expect(await run([push])).toEqual([{ kind: "stored" }]);
      expect(push.rows).toMatchObject([{ seq: 2n }]);
    } finally {
      await other.end();
    }
  });

  test("attempts of one key at once on several connections store one row with one number and no gap", async () => {
    // The bug: one statement that locks and looks for the key sees the snapshot from before it
    // waited for the lock, and numbers the second attempt too.
    await run([newPush("race")]);
    const wait = { createMissing: true, wait: true };
    for (let round = 0; round < 50; round += 1) {
      const attempt = (): Promise<unknown> => run([newPush("race", { key: `k${round}` })], wait);
      await Promise.all([attempt(), attempt(), attempt(), attempt()]);
    }
    const seqs = (await rowsOf("race")).map((row) => row.seq);
    expect(seqs).toEqual(Array.from({ length: 51 }, (_, index) => BigInt(index + 1)));
  });

  test("a push reads only its own sessions, also with a plan made for an almost empty table", async () => {
    // The bug: until the table was analysed, every push on a connection that had pushed before read
    // the index of all sessions, to join them by hash.
    const client = useSql(ledger.url, 1, FIXED_PLANS);
    const pushTo =
      (...ids: readonly string[]) =>
      (on: postgres.TransactionSql) =>
        appendIn(
          on,
          ids.map((id) => newPush(id, { key: "k", digest: Uint8Array.of(1), epoch: 1n })),
          AUTO,
        );
    await client`alter table sessions set (autovacuum_enabled = false)`;
    await client.begin(pushTo("plan-first"));
    await client.begin(pushTo("plan-second", "plan-third"));
    await client`insert into sessions (id, created_at, updated_at)
      select 'many-' || n, now(), now() from generate_series(1, 10000) n`;
    for (const ids of [["many-77"], ["many-78", "many-79"]]) {
      const counts = await countsOf(client, "sessions", pushTo(...ids));
      expect(counts.seqScans).toBe(0);
      expect(counts.rowsByIndex).toBeLessThan(10 * ids.length);
    }
  });

  test("batches that create the same sessions in opposite order do not deadlock", async () => {
    for (let round = 0; round < 20; round += 1) {
      const ids = [`a${round}`, `b${round}`, `c${round}`];
      const batch = (order: readonly string[]) => run(order.map((id) => newPush(id)));
      const settled = await Promise.all([batch(ids), batch(ids.toReversed()), batch(ids)]);
      expect(settled.flat().every((o) => o.kind === "stored" || o.kind === "busy")).toBe(true);
    }
  });
});
