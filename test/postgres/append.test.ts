import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import { readPage } from "../../src/store/pages.ts";
import type { Push } from "../../src/store/rows.ts";
import { countsOf, newPush, newRow, useLedger } from "../support/ledger.ts";

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
