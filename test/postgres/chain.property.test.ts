/**
 * Whatever is pushed by several writers, pushed by functions without chains, claimed, erased and forked, verify
 * finds no damage, also compared with heads of any earlier time. Then one covered row is changed, removed,
 * added or swapped, everything but the chains is corrected, and verify names the session and the stream.
 */
import { expect, test } from "vitest";
import { type Head, readHeads } from "../../src/maintenance/chains.ts";
import { eraseBatch, eraseSession } from "../../src/maintenance/erase.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { verify, type VerifiedSession } from "../../src/maintenance/verify.ts";
import { append } from "../../src/store/append.ts";
import { TABLE } from "../../src/store/columns.ts";
import { type Fields, type SQL, sql } from "../../src/store/database.ts";
import { feedbackKey, feedbackPrefix } from "../../src/store/feedback.ts";
import { forkSession } from "../../src/store/fork.ts";
import type { Push, StreamName } from "../../src/store/rows.ts";
import { openStream } from "../../src/store/streams.ts";
import { correctCounts, withoutChains } from "../support/chains.ts";
import {
  appendAll,
  batchesOf,
  newPush,
  newRow,
  rangePush,
  useLedger,
  type NewRow,
} from "../support/ledger.ts";
import { Random, seedOfRun } from "../support/random.ts";

const ledger = await useLedger();
const { database } = ledger;
const { signal } = new AbortController();
const OPTIONS = { createMissing: true, wait: true };
const STREAMS = ["messages", "events"] as const;

class History {
  readonly noted = new Map<string, Head[]>();
  readonly #random: Random;
  readonly #ids: string[];

  constructor(random: Random, prefix: string) {
    this.#random = random;
    this.#ids = ["a", "b", "c"].map((name) => prefix + name);
  }

  async step(): Promise<void> {
    const random = this.#random;
    const id = random.pick(this.#ids);
    const session = await this.#session(id);
    if (session === undefined || random.oneIn(2)) {
      await Promise.all([this.#push(), this.#push()]); // Two writers.
      return;
    }
    const stream = random.pick(STREAMS);
    const head = BigInt(String(session[stream === "messages" ? "message_seq" : "event_seq"]));
    const number = (head * BigInt(1 + random.below(10))) / 10n;
    await random.pick([
      () => this.#pushWithoutChains(id, stream),
      () => this.#range(id),
      () => this.#claim(id, session),
      () => this.#feedback(id),
      () => this.#erase(id, stream, number),
      () => retentionPass({ database }, { afterMs: 0, sessionId: id, dryRun: false, signal }),
      () => this.#fork(id, number),
      () => this.#note(id),
      () => (random.oneIn(3) ? this.#eraseSession(id) : this.#note(id)),
    ])();
  }

  async verified(): Promise<readonly VerifiedSession[]> {
    const all: VerifiedSession[] = [];
    await verify(database, {
      sessionIds: await this.#existing(),
      heads: this.noted,
      signal,
      verified: (session) => Promise.resolve(all.push(session) > 0),
    });
    return all;
  }

  /** The covered rows of all sessions. */
  async covered(): Promise<readonly Fields[]> {
    const rows: Fields[] = [];
    for (const id of await this.#existing()) {
      for (const stream of STREAMS) {
        const name = sql.raw(stream === "messages" ? "message" : "event");
        rows.push(
          ...(await database.run(sql`
            select ${id} as id, ${stream} as stream, t.seq::text as seq from ${TABLE[stream]} t, sessions s
            where s.id = ${id} and t.session_id = ${id} and t.seq >= coalesce(s.${name}_chain_from, 1)
              and t.seq <= s.${name}_chain_seq order by t.seq`)),
        );
      }
    }
    return rows;
  }

  async #existing(): Promise<string[]> {
    const found: string[] = [];
    for (const id of this.#ids) if ((await this.#session(id)) !== undefined) found.push(id);
    return found;
  }

  async #session(id: string): Promise<Fields | undefined> {
    const [row] = await database.run(sql`select * from sessions where id = ${id}`);
    return row;
  }

  /** To all sessions, in batches as ingest makes them. */
  async #push(): Promise<void> {
    const random = this.#random;
    const pushes = Array.from({ length: 1 + random.below(6) }, (): Push => {
      const stream = random.pick(STREAMS);
      const key = this.#maybe("k1", "k2");
      return newPush(random.pick(this.#ids), {
        stream,
        rows: this.#rows(stream),
        key,
        digest: key === undefined ? undefined : Uint8Array.of(random.below(2)),
        epoch: this.#maybe(0n, 1n, 2n),
        actor: this.#maybe("user:a"),
      });
    });
    for (const batch of batchesOf(pushes, 4)) await appendAll(database, batch, OPTIONS);
  }

  #rows(stream: StreamName): readonly NewRow[] {
    const random = this.#random;
    const time = (): bigint => BigInt(random.below(2 ** 30)) * 1_000_003n;
    const payload = (): string => random.pick(["", "{}", "ünï ☃ 𝄞", "x".repeat(3_000)]);
    return Array.from({ length: 1 + random.below(3) }, () => {
      const row = { payload: payload(), createdAtMicros: time() };
      if (stream === "messages") {
        const sentAtMicros = this.#maybe(time());
        return newRow({
          ...row,
          eventType: "user",
          sender: this.#maybe("", "u"),
          sentAtMicros,
        });
      }
      const mark = this.#maybe(
        { kind: "open", runId: random.pick(["r1", "r2"]) } as const,
        { kind: "close" } as const,
      );
      return newRow({
        ...row,
        eventType: { open: "RUN_STARTED", close: "RUN_FINISHED", none: "RAW" }[
          mark?.kind ?? "none"
        ],
        mark,
        eventCount: 1 + random.below(3),
        completedAtMicros: this.#maybe(time()),
        fragments: this.#maybe(Uint8Array.of(0, random.below(256))),
        conformant: random.oneIn(2),
      });
    });
  }

  #maybe<T>(...values: readonly T[]): T | undefined {
    return this.#random.oneIn(2) ? this.#random.pick(values) : undefined;
  }

  /** The chain begins again after it, so it does not reach earlier heads. */
  async #pushWithoutChains(id: string, stream: StreamName): Promise<void> {
    const push = newPush(id, { stream, rows: this.#rows(stream) });
    await withoutChains(database, id, () => append(database, [push], OPTIONS));
    this.noted.delete(id);
  }

  async #range(sessionId: string): Promise<void> {
    const stream = await openStream(database, { sessionId, epoch: 0n }, OPTIONS);
    if (stream.kind !== "opened") return;
    const next = stream.lastClientSeq + 1n;
    const rows = this.#rows("events");
    await append(database, [rangePush(sessionId, stream, { from: next, to: next, rows })], OPTIONS);
  }

  async #claim(sessionId: string, row: Fields): Promise<void> {
    const [head, from] = [BigInt(String(row["message_seq"])), BigInt(String(row["turn_seq"]))];
    const epoch =
      row["producer_epoch"] === null ? undefined : BigInt(String(row["producer_epoch"]));
    const mark = { kind: "open", runId: `claimed ${head}` } as const;
    const push = newPush(sessionId, {
      rows: [newRow({ eventType: "RUN_STARTED", mark })],
      epoch: (epoch ?? 0n) + 1n,
      seen: {
        turnSeq: from,
        openRunId: String(row["open_run_id"] ?? ""),
        epoch,
        eventSeq: undefined,
      },
      claim: { fromSeq: from, turnSeq: head, taken: Number(row["pending_count"]) },
    });
    await append(database, [push], OPTIONS);
  }

  async #feedback(id: string): Promise<void> {
    const key = feedbackKey(feedbackPrefix({ by: "a", messageId: "m" }), this.#random.below(3));
    const rows = [newRow({ eventType: "META" })];
    await append(database, [newPush(id, { key, rows, isFeedback: true })], OPTIONS);
  }

  async #erase(sessionId: string, stream: StreamName, upToSeq: bigint): Promise<void> {
    await eraseBatch(database, { sessionId, stream, upToSeq });
  }

  async #eraseSession(id: string): Promise<void> {
    await eraseSession(database, id, { marked: () => {}, counted: () => {}, signal });
  }

  async #fork(sessionId: string, number: bigint): Promise<void> {
    const forkId = `${this.#ids[0]}${this.#ids.length}`;
    const at = { atSeq: number, atMessageSeq: undefined, createdByUserId: undefined };
    const request = { sessionId, forkId, ...at, rowsMax: 10_000, bytesMax: 100_000_000 };
    const { kind } = await forkSession(database, request);
    if (kind === "forked") this.#ids.push(forkId);
  }

  async #note(sessionId: string): Promise<void> {
    await readHeads(database, {
      sessionIds: [sessionId],
      signal,
      read: (id, heads) => {
        this.noted.set(id, [...(this.noted.get(id) ?? []), ...heads]);
        return Promise.resolve(true);
      },
    });
  }
}

const CHANGES: Readonly<Record<StreamName, readonly string[]>> = {
  messages: [
    "event_type = event_type || ' '",
    "payload = overlay(payload || '.' placing '!' from 1 for 1)",
    "sender = case when sender is null then '' end",
    "sent_at = coalesce(sent_at + interval '1 microsecond', '2026-01-01')",
    "created_at = created_at - interval '1 microsecond'",
  ],
  events: [
    "payload = overlay(payload || '.' placing '!' from 1 for 1)",
    "completed_at = coalesce(completed_at + interval '1 microsecond', '2026-01-01')",
    "run_id = case when run_id is null then 'r1' end",
    "fragments = coalesce(fragments, '') || '\\x00'",
    "conformant = not conformant",
  ],
};
const CHANGES_OF_BOTH = [
  "id = gen_random_uuid()",
  "idempotency_key = gen_random_uuid()::text",
  "key_digest = coalesce(key_digest, '') || '\\x00'",
  "actor = coalesce(actor, '') || '.'",
  "recorded_at = recorded_at - interval '1 microsecond'",
];

/** Removes, swaps, adds or changes a row; returns what it did. */
async function damage(random: Random, rows: readonly Fields[], row: Fields): Promise<string> {
  const [id, seq] = [String(row["id"]), String(row["seq"])];
  const stream = row["stream"] === "messages" ? "messages" : "events";
  const table = TABLE[stream];
  const isRow = sql`session_id = ${id} and seq = ${seq}::bigint`;
  const others = rows.filter((one) => one["id"] === id && one["stream"] === stream && one !== row);
  const run = async (what: string, statement: SQL): Promise<string> => {
    await database.run(statement);
    return `${what} of ${stream} ${seq} of ${id}`;
  };
  const kind = random.below(8);
  if (kind === 0) return run("removal", sql`delete from ${table} where ${isRow}`);
  if (kind === 1 && others.length > 0) {
    const other = String(random.pick(others)["seq"]);
    return run(
      `swap with ${other}`,
      sql`
      update ${table} t set id = o.id, payload = o.payload from ${table} o
      where t.session_id = ${id} and o.session_id = ${id} and ((t.seq = ${seq}::bigint and o.seq = ${other}::bigint)
        or (t.seq = ${other}::bigint and o.seq = ${seq}::bigint))`,
    );
  }
  if (kind === 2) {
    const added = JSON.stringify({ seq: 1_000_000, id: newRow().id, idempotency_key: null });
    return run(
      "copy",
      sql`
      insert into ${table} select (json_populate_record(t, ${added}::text::json)).* from ${table} t where ${isRow}`,
    );
  }
  const change = random.pick([...CHANGES[stream], ...CHANGES_OF_BOTH]);
  return run(change, sql`update ${table} set ${sql.raw(change)} where ${isRow}`);
}

test("verify finds no damage after any history, and each damage behind the back of the service", async () => {
  const seed = seedOfRun();
  const random = new Random(seed);
  const found = { damages: 0 };
  for (let run = 0; run < Number(process.env["PROPERTY_RUNS"] ?? 60); run += 1) {
    const history = new History(random, `${run}:`);
    const steps = 4 + random.below(16);
    for (let at = 0; at < steps; at += 1) await history.step();
    const named = `SEED=${seed}, run ${run}`;
    const before = await history.verified();
    const isOld = (problem: string): boolean => problem.includes("does not expand");
    for (const { sessionId, problems } of before)
      expect(
        problems.filter((one) => !isOld(one)),
        `${named}: ${sessionId}`,
      ).toEqual([]);
    const rows = await history.covered();
    if (rows.length === 0) continue;
    const row = random.pick(rows);
    const what = await damage(random, rows, row);
    await database.run(correctCounts(String(row["id"])));
    history.noted.clear();
    const after = (await history.verified()).filter(({ problems }) => !problems.every(isOld));
    expect(after, `${named}: ${what}`).toMatchObject([
      {
        sessionId: row["id"],
        problems: expect.arrayContaining([
          expect.stringMatching(
            `^${String(row["stream"])}: the rows from \\d+ to \\d+ are not those of the chain`,
          ),
        ]),
      },
    ]);
    found.damages += 1;
  }
  expect(found.damages).toBeGreaterThan(0);
});
