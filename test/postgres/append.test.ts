import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import { readPage } from "../../src/store/pages.ts";
import type { Push } from "../../src/store/rows.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { countsOf, createLedger, newPush, newRow, type TestLedger } from "../support/ledger.ts";

const AUTO = { createMissing: true, wait: false };

let ledger: TestLedger;
beforeAll(async () => {
  ledger = await createLedger();
});
afterAll(async () => ledger[Symbol.asyncDispose]());

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
  test("an event row takes event_count numbers, a message one, and each stream begins at 1", async () => {
    const outcomes = await run([
      newPush("numbers"),
      newPush("numbers", { rows: [newRow({ eventCount: 3 })] }),
      newPush("numbers", { stream: "messages" }),
      newPush("numbers", { rows: [newRow(), newRow({ eventCount: 2 }), newRow()] }),
      newPush("numbers", { stream: "messages" }),
    ]);
    expect(
      outcomes.map((o) => (o.kind === "stored" ? o.places.map((p) => p.seq) : o.kind)),
    ).toEqual([[1n], [2n], [1n], [5n, 6n, 8n], [2n]]);
    expect((await rowsOf("numbers")).map((row) => row.seq)).toEqual([1n, 2n, 5n, 6n, 8n]);
    expect((await rowsOf("numbers", "messages")).map((row) => row.seq)).toEqual([1n, 2n]);
  });

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
    const { mark: _mark, sender: _sender, sentAtMicros: _sent, ...rest } = row;
    expect(await rowsOf("exact")).toEqual([
      {
        stream: "events",
        sessionId: "exact",
        seq: 1n,
        runId: "",
        ...rest,
        fragments: Buffer.from(rest.fragments ?? []),
      },
    ]);
  });

  test("a run is open from RUN_STARTED on, over batches, until it is closed", async () => {
    const open = (runId: string) => newRow({ mark: { kind: "open", runId } });
    const close = newRow({ mark: { kind: "close" } });
    await run([newPush("runs"), newPush("runs", { rows: [open("r1")] }), newPush("runs")]);
    await run([newPush("runs"), newPush("runs", { rows: [close] }), newPush("runs")]);
    await run([newPush("runs", { rows: [open("r2")] }), newPush("runs", { rows: [open("r3")] })]);
    await run([newPush("runs", { stream: "messages" }), newPush("runs")]);
    expect((await rowsOf("runs")).map((row) => row.stream === "events" && row.runId)).toEqual([
      "",
      "r1",
      "r1",
      "r1",
      "r1",
      "",
      "r2",
      "r3",
      "r3",
    ]);
  });

  test("a refused or repeated push takes no number and changes no run and no epoch", async () => {
    await run([newPush("none", { key: "k", epoch: 5n })]);
    const closing = newRow({ mark: { kind: "open", runId: "never" } });
    const outcomes = await run([
      newPush("none", { key: "k", epoch: 9n, rows: [closing] }),
      newPush("none", { key: "k", digest: Uint8Array.of(2), stream: "events", epoch: 9n }),
      newPush("none", { epoch: 4n, rows: [closing] }),
      newPush("none", { epoch: 5n }),
    ]);
    expect(outcomes).toEqual([
      { kind: "deduplicated", seq: 1n },
      { kind: "key_reused" },
      { kind: "stale_epoch" },
      { kind: "stored", places: [{ seq: 2n, runId: "" }] },
    ]);
  });

  test("the key is looked up before the epoch is compared", async () => {
    await run([newPush("order", { key: "k", epoch: 1n }), newPush("order", { epoch: 7n })]);
    expect(await run([newPush("order", { key: "k", epoch: 1n })])).toEqual([
      { kind: "deduplicated", seq: 1n },
    ]);
  });

  test("the same key in the other stream is another key", async () => {
    const outcomes = await run([
      newPush("streams", { key: "k" }),
      newPush("streams", { key: "k", stream: "messages" }),
    ]);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(["stored", "stored"]);
  });

  test("an epoch of one stream fences the other", async () => {
    await run([newPush("fence", { epoch: 3n, stream: "messages" })]);
    expect(await run([newPush("fence", { epoch: 2n })])).toEqual([{ kind: "stale_epoch" }]);
  });

  test("an unknown session is not_found when sessions are not created, and the rest is stored", async () => {
    await run([newPush("known")]);
    const outcomes = await run([newPush("unknown"), newPush("known")], {
      createMissing: false,
      wait: false,
    });
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(["not_found", "stored"]);
  });

  test("a deleted session takes no push, not even one with a known key", async () => {
    await run([newPush("deleted", { key: "k" })]);
    await deleteSession(ledger.database, "deleted");
    const outcomes = await run([
      newPush("deleted", { key: "k" }),
      newPush("deleted"),
      newPush("alive"),
    ]);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(["deleted", "deleted", "stored"]);
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
      expect(await run([newPush("held")])).toMatchObject([
        { kind: "stored", places: [{ seq: 2n }] },
      ]);
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
    const client = postgres(ledger.url, { max: 1, onnotice: () => undefined });
    const pushTo = (id: string) => async (on: postgres.TransactionSql) => {
      const session = [{ s: id, m: "0", e: "0", n: 0, b: 0, q: 0, w: false }];
      const judged = [{ u: 0, s: id, t: "e", key: "k", dg: "\\x01", ep: "1" }];
      return on`select ledger_append(array[${id}], true, false, ${JSON.stringify(judged)}::text::json, null, null,
        ${JSON.stringify(session)}::text::json)`;
    };
    try {
      await client`alter table sessions set (autovacuum_enabled = false)`;
      await client.begin(pushTo("plan-first"));
      await client`insert into sessions (id, created_at, updated_at)
        select 'many-' || n, now(), now() from generate_series(1, 10000) n`;
      const counts = await countsOf(client, "sessions", pushTo("many-77"));
      expect(counts?.seqScans).toBe(0);
      expect(counts?.rowsByIndex).toBeLessThan(10);
    } finally {
      await client.end();
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
