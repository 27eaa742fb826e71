/**
 * Feedback of two instances on one PostgreSQL: the same twice is one row, a changed mind is a new row,
 * also when both come at once, and nothing of a producer changes.
 */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { GiveFeedbackRequestSchema } from "@session-ledger/proto/ambient/v1/conversation_pb";
import { Semaphore } from "../../src/base/semaphore.ts";
import { createGiveFeedback } from "../../src/handlers/feedback.ts";
import { systemClock } from "@session-ledger/base/clock";
import { TRANSCRIPT_LIMITS, Transcripts } from "../../src/conversation/transcripts.ts";
import { Ingest } from "../../src/ingest/ingest.ts";
import { eraseBatch } from "../../src/maintenance/erase.ts";
import { verify } from "../../src/maintenance/verify.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { append } from "../../src/store/append.ts";
import { sql } from "../../src/store/database.ts";
import {
  countsStatement,
  createFeedbackStore,
  feedbackKey,
  feedbackPrefix,
  newestStatement,
} from "../../src/store/feedback.ts";
import { createReader } from "../../src/store/reader.ts";
import { ledgerWriter, newPush, newRow, useLedger } from "../support/ledger.ts";
import { callOf } from "../support/callers.ts";

const LIMITS = {
  batch: { rowsMax: 64, bytesMax: 1_000_000 },
  queueRowsMax: 1_000,
  queueBytesMax: 10_000_000,
};
/** Rounds of a race: in few of them both calls meet. */
const ROUNDS = 25;

const ledger = await useLedger();
const one = instance();
const other = instance();

interface Given {
  readonly by?: string;
  readonly messageId?: string;
  readonly comment?: string;
  readonly traceId?: string;
}

/** With its own transcripts and its own queue. */
function instance(given: { readonly foldBytesMax?: number } = {}) {
  const { database } = ledger;
  const metrics = createMetrics();
  const parts = { clock: systemClock, metrics };
  const publish = (): void => undefined;
  const ingest = new Ingest({ writer: ledgerWriter(database), publish, ...parts }, LIMITS);
  const reader = createReader(database);
  const limits = { ...TRANSCRIPT_LIMITS, ...given, bytesMax: 10_000_000 };
  const transcripts = new Transcripts(
    { reader, metrics, pastTurns: new Semaphore({ atOnce: 1 }) },
    limits,
  );
  const store = createFeedbackStore(database);
  const rates = { take: () => undefined };
  const giveFeedback = createGiveFeedback({ ...parts, store, transcripts, ingest, rates });
  const give = (sessionId: string, kind: string, { by = "ann", ...more }: Given = {}) =>
    giveFeedback(
      create(GiveFeedbackRequestSchema, { sessionId, messageId: "m1", kind, ...more }),
      callOf(by),
    );
  return { give, transcripts };
}

async function push(sessionId: string, event: { readonly type: string }, epoch?: bigint) {
  const mark =
    event.type === "RUN_STARTED" ? { kind: "open" as const, runId: "open run" } : undefined;
  const row = newRow({ eventType: event.type, payload: JSON.stringify(event), mark });
  const pushes = [newPush(sessionId, { rows: [row], epoch })];
  await append(ledger.database, pushes, { createMissing: true, wait: true });
}

const M1 = { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" };

async function rowsOf(sessionId: string) {
  return ledger.database.run(sql`
    select seq, idempotency_key as key, actor, payload from session_events
    where session_id = ${sessionId} and event_type = 'META' order by seq`);
}

async function shownIn(sessionId: string): Promise<unknown> {
  const { messages } = await one.transcripts.read(sessionId, { upToSeq: undefined });
  return messages.find(({ id }) => id === "m1")?.["metadata"];
}

describe("feedback", () => {
  test("that is the same again is the same row, on any instance", async () => {
    await push("again", M1);
    const first = await one.give("again", "thumbs_up", { comment: "good", traceId: "t1" });
    const second = await other.give("again", "thumbs_up", { comment: "good", traceId: "t1" });
    expect(first).toMatchObject({ seq: 2n, deduplicated: false, eventType: "META" });
    expect(second).toEqual({ ...first, deduplicated: true });
    expect(await rowsOf("again")).toMatchObject([{ actor: "static:ann" }]);
  });

  test("of a mind that changes and changes back is a row each time, and the last one counts", async () => {
    await push("changed", M1);
    const kinds = ["thumbs_up", "thumbs_down", "thumbs_up", "thumbs_up"];
    const seqs: bigint[] = [];
    for (const kind of kinds) seqs.push((await one.give("changed", kind)).seq);
    expect(seqs).toEqual([2n, 3n, 4n, 4n]);
    expect(await shownIn("changed")).toMatchObject({
      session: { feedback: [{ by: "static:ann", kind: "thumbs_up" }] },
    });
    const commented = await one.give("changed", "thumbs_up", { comment: "now with a reason" });
    expect(commented.seq).toBe(5n);
  });

  test("of one person twice at once is one row if it is the same, and two rows otherwise", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      // Far fewer rounds of a session than one feedback may change.
      const sessionId = `race-${Math.floor(round / 5)}`;
      if (round % 5 === 0) await push(sessionId, M1);
      const feedback = (kind: string) => [one.give(sessionId, kind), other.give(sessionId, kind)];
      const before = (await rowsOf(sessionId)).length;
      const same = await Promise.all(feedback(`same_${round}`));
      expect(same[0]?.id).toBe(same[1]?.id);
      expect(same.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
      const [up, down] = [`up_${round}`, `down_${round}`];
      const both = await Promise.all([one.give(sessionId, up), other.give(sessionId, down)]);
      expect(both.map(({ deduplicated }) => deduplicated)).toEqual([false, false]);
      const rows = await rowsOf(sessionId);
      expect(rows).toHaveLength(before + 3);
      const [upRow, downRow] = both;
      const last = (upRow?.seq ?? 0n) > (downRow?.seq ?? 0n) ? up : down;
      expect(await shownIn(sessionId)).toMatchObject({ session: { feedback: [{ kind: last }] } });
    }
  });

  test("of one person leaves room for others, and all together have a share", async () => {
    const sessionId = "share";
    await push(sessionId, M1);
    const { database } = ledger;
    /** Feedback on other messages, the last of which had five changes. */
    const given = async (by: string, messages: number): Promise<void> => {
      const keys = Array.from({ length: messages }, (_, at) =>
        feedbackPrefix({ by, messageId: `other ${at}` }),
      ).flatMap((prefix, at) =>
        (at === 0 ? [1, 2, 3, 4, 5] : [1]).map((number) => feedbackKey(prefix, number)),
      );
      const pushes = keys.map((key) => {
        const rows = [newRow({ eventType: "META", payload: "{}", conformant: false })];
        return newPush(sessionId, { key, rows, isFeedback: true });
      });
      await append(database, pushes, { createMissing: true, wait: true });
    };
    const full = { code: "failed_precondition", reason: "FEEDBACK_FULL" };
    await given("static:ann", 500);
    await expect(one.give(sessionId, "up")).rejects.toMatchObject({
      ...full,
      message: "at most feedback on 500 messages of a session by one person",
    });
    expect(await one.give(sessionId, "up", { by: "bob" })).toMatchObject({ deduplicated: false });
    for (let at = 0; at < 9; at += 1) await given(`static:person ${at}`, 499);
    await given("static:last", 7);
    // 500, 1, 9 times 499 and 7 are 4,999.
    await one.give(sessionId, "up", { by: "eve" });
    await expect(one.give(sessionId, "up", { by: "zoe" })).rejects.toMatchObject({
      ...full,
      message: "at most feedback on 5000 messages of a session by all people",
    });
    // Who gave feedback may still change it.
    await one.give(sessionId, "down", { by: "eve" });
    const counts = await database.run(sql`
      select row_count, payload_bytes from sessions where id = ${sessionId}`);
    const bytes = JSON.stringify(M1).length;
    expect(counts).toEqual([{ row_count: "1", payload_bytes: String(bytes) }]);
  });

  test("is in no count of its session, also after an erasure of its rows", async () => {
    const sessionId = "counted";
    await push(sessionId, { type: "RUN_STARTED" });
    await push(sessionId, M1);
    for (const kind of ["a", "b"]) await one.give(sessionId, kind);
    await push(sessionId, { type: "RUN_FINISHED" });
    const problems = async (): Promise<readonly string[]> => {
      const found: string[] = [];
      await verify(ledger.database, {
        sessionIds: [sessionId],
        verified: (session) => Promise.resolve(found.push(...session.problems) >= 0),
        signal: new AbortController().signal,
      });
      return found;
    };
    expect(await problems()).toEqual([]);
    const beginning = { sessionId, stream: "events" as const, upToSeq: 3n };
    const erased = await eraseBatch(ledger.database, beginning);
    expect(erased).toMatchObject({ rows: 3n });
    expect(await problems()).toEqual([]);
    const [left] = await ledger.database.run(sql`
      select row_count from sessions where id = ${sessionId}`);
    expect(left).toEqual({ row_count: "1" });
  });

  test("changes nothing of a producer, and no epoch refuses it", async () => {
    const sessionId = "fenced";
    await push(sessionId, { type: "RUN_STARTED" }, 7n);
    await push(sessionId, M1, 7n);
    await ledger.database.run(sql`
      update sessions set producer_stream = 3, producer_client_seq = 5, producer_refused = 1
      where id = ${sessionId}`);
    const state = () =>
      ledger.database.run(sql`
        select producer_epoch, producer_stream, producer_client_seq, producer_refused, open_run_id,
          turn_seq, open_turn_seq, has_claimed, pending_count, message_seq
        from sessions where id = ${sessionId}`);
    const before = await state();
    await one.give(sessionId, "thumbs_up");
    expect(await state()).toEqual(before);
    expect(before).toMatchObject([{ producer_epoch: "7", open_run_id: "open run" }]);
  });

  test("is counted from the newest row that retention has left", async () => {
    const sessionId = "erased";
    await push(sessionId, M1);
    for (const kind of ["a", "b", "c"]) await one.give(sessionId, kind);
    await ledger.database.run(sql`
      delete from session_events where session_id = ${sessionId} and event_type = 'META' and seq < 4`);
    expect(await one.give(sessionId, "c")).toMatchObject({ seq: 4n, deduplicated: true });
    expect(await one.give(sessionId, "a")).toMatchObject({ seq: 5n, deduplicated: false });
  });

  test("on an unknown message is NOT_FOUND, but in a session that is too large to fold", async () => {
    const sessionId = "large";
    await push(sessionId, M1);
    const unknown = { messageId: "m2" };
    const failed = one.give(sessionId, "thumbs_up", unknown);
    await expect(failed).rejects.toMatchObject({ reason: "MESSAGE_NOT_FOUND" });
    await push(sessionId, { ...M1, type: "TEXT_MESSAGE_CONTENT" });
    const small = instance({ foldBytesMax: 1 });
    expect(await small.give(sessionId, "thumbs_up", unknown)).toMatchObject({ seq: 3n });
    const missing = one.give("no-session", "thumbs_up");
    await expect(missing).rejects.toMatchObject({ reason: "SESSION_NOT_FOUND" });
    const made = await ledger.database.run(sql`select id from sessions where id = 'no-session'`);
    expect(made).toEqual([]);
  });

  test("is found by its key alone, whatever keys a producer has", async () => {
    const { database } = ledger;
    const prefix = feedbackPrefix({ by: "static:ann", messageId: "m1" });
    for (const key of ["null", "'key ' || n"]) {
      await database.run(sql`
        insert into session_events (session_id, seq, id, event_type, payload, idempotency_key,
          created_at, recorded_at)
        select ${`full of ${key}`}, n, gen_random_uuid(), 'RAW', '{}', ${sql.raw(key)}, now(), now()
        from generate_series(1, 20000) n`);
    }
    await database.run(sql`analyze session_events`);
    for (const key of ["null", "'key ' || n"]) {
      const statement = newestStatement(`full of ${key}`, prefix);
      const plan = JSON.stringify(await database.run(sql`explain ${statement}`));
      expect(plan).toMatch(/Index Scan (?:Backward )?using session_events_key/);
      const counts = countsStatement(`full of ${key}`, prefix);
      expect(JSON.stringify(await database.run(sql`explain ${counts}`))).toMatch(
        /Index (?:Only )?Scan (?:using|on) session_events_key/,
      );
    }
    const keys = [
      feedbackKey(prefix, 2),
      feedbackKey(prefix, 10),
      feedbackKey(prefix, 9).toUpperCase(),
      `${prefix}5${"z".repeat(9)}`,
      `${feedbackKey(prefix, 11)}1`,
    ];
    for (const key of keys) {
      const pushes = [newPush("plan", { key })];
      await append(database, pushes, { createMissing: true, wait: true });
    }
    expect(await createFeedbackStore(database).newest("plan", prefix)).toMatchObject({
      number: 10,
      seq: 2n,
    });
  });
});
