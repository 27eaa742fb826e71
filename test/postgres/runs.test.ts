/** The runs of a session, found in its rows by the real statements. */
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { type SQL, sql } from "drizzle-orm";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Clock, systemClock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { createRunsHandlers, type RunSummary, type RunsPage } from "../../src/handlers/runs.ts";
import { append } from "../../src/store/append.ts";
import { createReader } from "../../src/store/reader.ts";
import {
  createRunsReader,
  RUN_ROWS_LOOKED_AT_MAX,
  runOpenAtStatement,
  runsStatement,
} from "../../src/store/runs.ts";
import { newPush, newRow, type NewRow, useLedger } from "../support/ledger.ts";
import { properties } from "../support/random.ts";

const STALE_AFTER_MS = 600_000;
const SECOND = 1_000_000n;

const ledger = await useLedger();

/** Calls that are never cancelled. */
const patient = { principal: ANONYMOUS, signal: new AbortController().signal, hasEnded: false };

interface ListOptions {
  readonly runsMax?: number;
  readonly afterSeq?: bigint;
  /** Rows that one statement looks at. */
  readonly rowsMax?: number;
  readonly clock?: Clock;
}

function list(sessionId: string, options: ListOptions = {}): Promise<RunsPage> {
  const { runsMax = 100, afterSeq = 0n, rowsMax, clock = systemClock } = options;
  const runs = createRunsReader(ledger.database, rowsMax === undefined ? {} : { rowsMax });
  const reader = { ...createReader(ledger.database), ...runs };
  // No fold has room, so the status is what the rows of the run say.
  const full = new ServiceError("overloaded", "TRANSCRIPT_TOO_LARGE", "full");
  const transcripts = { read: () => Promise.reject(full) };
  const limits = { runStaleAfterMs: STALE_AFTER_MS };
  const handlers = createRunsHandlers({ reader, transcripts, clock }, limits);
  return handlers.listRuns({ sessionId, afterSeq, runsMax }, patient);
}

/** Follows the cursors to the end. */
async function listAll(sessionId: string, options: ListOptions = {}): Promise<RunSummary[]> {
  const runs: RunSummary[] = [];
  let { afterSeq = 0n } = options;
  for (;;) {
    const page = await list(sessionId, { ...options, afterSeq });
    runs.push(...page.runs);
    if (!page.hasMore) return runs;
    expect(page.nextAfter).toBeGreaterThan(afterSeq);
    afterSeq = page.nextAfter;
  }
}

async function store(sessionId: string, rows: readonly NewRow[]): Promise<void> {
  for (const row of rows) {
    await append(ledger.database, [newPush(sessionId, { rows: [row] })], {
      createMissing: true,
      wait: false,
    });
  }
}

const started = (runId: string, more: object = {}, row: Partial<NewRow> = {}): NewRow =>
  newRow({
    eventType: "RUN_STARTED",
    payload: JSON.stringify({ type: "RUN_STARTED", threadId: "t", runId, ...more }),
    mark: { kind: "open", runId },
    ...row,
  });
const finished = (more: object = {}, row: Partial<NewRow> = {}): NewRow =>
  newRow({
    eventType: "RUN_FINISHED",
    payload: JSON.stringify({ type: "RUN_FINISHED", ...more }),
    mark: { kind: "close" },
    ...row,
  });
const failed = (): NewRow =>
  newRow({
    eventType: "RUN_ERROR",
    payload: '{"type":"RUN_ERROR","message":"m"}',
    mark: { kind: "close" },
  });

test("a run has its numbers, times, sizes and parent, and rows outside of runs are in none", async () => {
  const sessionId = "numbers";
  const at = (seconds: bigint) => ({ createdAtMicros: seconds * SECOND });
  const merged = newRow({
    ...at(102n),
    eventType: "TEXT_MESSAGE_CONTENT",
    payload: '{"é":1}',
    eventCount: 5,
    completedAtMicros: 103n * SECOND,
  });
  await store(sessionId, [
    newRow(),
    started("a", { parentRunId: "p" }, at(101n)),
    merged,
    finished({}, { ...at(104n), completedAtMicros: 105n * SECOND }),
    newRow(),
  ]);
  const { runs, nextAfter, hasMore } = await list(sessionId);
  const start = '{"type":"RUN_STARTED","threadId":"t","runId":"a","parentRunId":"p"}';
  expect(runs).toEqual([
    {
      runId: "a",
      parentRunId: "p",
      status: "finished",
      firstSeq: 2n,
      lastSeq: 8n,
      startedAtMicros: 101n * SECOND,
      endedAtMicros: 105n * SECOND,
      rawEvents: 7n,
      rows: 3n,
      bytes: BigInt(start.length + 8 + '{"type":"RUN_FINISHED"}'.length),
    },
  ]);
  expect({ nextAfter, hasMore }).toEqual({ nextAfter: 9n, hasMore: false });
});

test("the status is finished, interrupted, error, running, or stalled after a long silence", async () => {
  const sessionId = "statuses";
  await store(sessionId, [
    started("plain"),
    finished(),
    started("success"),
    finished({ outcome: { type: "success" } }),
    started("interrupt"),
    finished({ outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] } }),
    started("error"),
    failed(),
    started("open"),
  ]);
  const statuses = (runs: readonly RunSummary[]) =>
    runs.map(({ runId, status }) => `${runId} ${status}`);
  const ended = ["plain finished", "success finished", "interrupt interrupted", "error error"];
  expect(statuses((await list(sessionId)).runs)).toEqual([...ended, "open running"]);
  const ahead = (ms: number): Clock => ({
    ...systemClock,
    nowMicros: () => systemClock.nowMicros() + BigInt(ms) * 1_000n,
  });
  const soon = await list(sessionId, { clock: ahead(STALE_AFTER_MS - 60_000) });
  expect(statuses(soon.runs)).toEqual([...ended, "open running"]);
  const late = await list(sessionId, { clock: ahead(STALE_AFTER_MS + 60_000) });
  expect(statuses(late.runs)).toEqual([...ended, "open stalled"]);
  expect(late.runs.at(-1)?.endedAtMicros).toBeUndefined();
});

test("payloads larger than one read are read", async () => {
  const sessionId = "large payloads";
  const input = "x".repeat(1_000_000);
  const rows = Array.from({ length: 6 }, (_, n) => [
    started(`r${n}`, { parentRunId: `p${n}`, input }),
    finished({ outcome: { type: ["interrupt", "success", "cancelled"][n % 3] } }),
  ]);
  await store(sessionId.replace(" ", "-"), rows.flat());
  const { runs } = await list(sessionId.replace(" ", "-"));
  expect(runs.map(({ parentRunId, status }) => `${parentRunId} ${status}`)).toEqual(
    rows.map((_, n) => `p${n} ${["interrupted", "finished", "cancelled"][n % 3]}`),
  );
});

// Bug: the list of runs took a RUN_FINISHED and a RUN_ERROR that no version of AG-UI accepts for the end.
test("regression: an invalid end ends no run, and an invalid start begins none", async () => {
  const sessionId = "not-conformant";
  await store(sessionId, [
    started("a"),
    finished({}, NOT_CONFORMANT),
    started("b", {}, NOT_CONFORMANT),
    newRow(),
    finished(),
    started("b", {}, NOT_CONFORMANT),
  ]);
  const seen = { runId: "a", status: "finished", firstSeq: 1n, lastSeq: 5n, rows: 5n };
  for (const rowsMax of [1, 2, 100]) {
    expect(await listAll(sessionId, { rowsMax })).toMatchObject([seen]);
    expect(await listAll(sessionId, { rowsMax, afterSeq: 2n })).toEqual([]);
  }
});

/**
 * Any order of starts, ends and other events, also those that no runner should send, against a model
 * that goes through the rows one by one. However few rows a statement looks at and however few runs
 * a page has, following the cursors gives the same runs, and any cursor gives the runs that begin after it.
 */
test("property: pages of any size, read in parts of any size, have the runs of the rows", async () => {
  const step = fc.constantFrom(
    ...(["start a", "start b", "finish", "fail", "other", "merged"] as const),
    ...(["bad start", "bad finish", "bad fail"] as const),
  );
  let sessions = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 1, max: 7 }),
      fc.integer({ min: 1, max: 4 }),
      fc.bigInt({ min: 0n, max: 100n }),
      async (steps, rowsMax, runsMax, place) => {
        const sessionId = `property-${(sessions += 1)}`;
        await store(sessionId, steps.map(rowOf));
        const runs = await listAll(sessionId, { rowsMax, runsMax });
        const model = modelOf(steps);
        expect(runs.map(seenOf)).toEqual(model);
        const head = steps.reduce((sum, one) => sum + (one === "merged" ? 3n : 1n), 0n);
        const afterSeq = (head * place) / 100n;
        const behind = await listAll(sessionId, { rowsMax, runsMax, afterSeq });
        expect(behind.map(seenOf)).toEqual(model.filter(({ firstSeq }) => firstSeq > afterSeq));
      },
    ),
    properties({ runs: 60 }),
  );
});

type Step =
  | "start a"
  | "start b"
  | "finish"
  | "fail"
  | "other"
  | "merged"
  | "bad start"
  | "bad finish"
  | "bad fail";
const NOT_CONFORMANT = { conformant: false, mark: undefined } as const;
type Seen = Pick<RunSummary, "runId" | "status" | "firstSeq" | "lastSeq" | "rawEvents" | "rows">;

function rowOf(step: Step): NewRow {
  if (step === "start a") return started("a");
  if (step === "start b") return started("b");
  if (step === "finish") return finished();
  if (step === "fail") return failed();
  // As lenient mode stores them: what does not conform begins and ends nothing.
  if (step === "bad start") return started("c", {}, NOT_CONFORMANT);
  if (step === "bad finish") return finished({}, NOT_CONFORMANT);
  if (step === "bad fail") return { ...failed(), ...NOT_CONFORMANT };
  return step === "merged" ? newRow({ eventCount: 3 }) : newRow();
}

function modelOf(steps: readonly Step[]): readonly Seen[] {
  const runs: Seen[] = [];
  let open: string | undefined;
  let endedJustNow = false;
  let seq = 1n;
  for (const step of steps) {
    const count = step === "merged" ? 3n : 1n;
    const last = runs.at(-1);
    if (step.startsWith("start ")) {
      const runId = step.slice("start ".length);
      if (open !== runId || endedJustNow) runs.push(empty(runId, seq));
      open = runId;
    } else if (open === undefined || last === undefined) {
      seq += count;
      continue;
    }
    const run = runs[runs.length - 1] ?? empty("", 0n);
    const status = step === "finish" ? "finished" : step === "fail" ? "error" : run.status;
    runs[runs.length - 1] = {
      ...run,
      status,
      lastSeq: seq + count - 1n,
      rawEvents: run.rawEvents + count,
      rows: run.rows + 1n,
    };
    if (status !== "running") open = undefined;
    endedJustNow = status !== "running";
    seq += count;
  }
  const isLeft = ({ status }: Seen, at: number) => status === "running" && at < runs.length - 1;
  return runs.map((run, at) => (isLeft(run, at) ? { ...run, status: "stalled" } : run));
}

function empty(runId: string, firstSeq: bigint): Seen {
  return { runId, status: "running", firstSeq, lastSeq: 0n, rawEvents: 0n, rows: 0n };
}

function seenOf({ runId, status, firstSeq, lastSeq, rawEvents, rows }: RunSummary): Seen {
  return { runId, status, firstSeq, lastSeq, rawEvents, rows };
}

describe("large sessions", () => {
  const rows = 2 * RUN_ROWS_LOOKED_AT_MAX + 10;

  async function fill(sessionId: string, runId: string | null, count: number): Promise<void> {
    await ledger.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at, run_id)
      select ${sessionId}, n, gen_random_uuid(), 'RAW', '{}', now(), now(), ${runId}::text
      from generate_series(1, ${count}::int) n`);
    await ledger.database.run(sql`
      insert into sessions (id, created_at, updated_at, event_seq)
      values (${sessionId}, now(), now(), ${count}::int)`);
  }

  test("a run longer than the rows of one statement is one run", async () => {
    await fill("long-run", "a", rows);
    const { runs, hasMore } = await list("long-run");
    expect(runs).toMatchObject([{ runId: "a", rows: BigInt(rows), lastSeq: BigInt(rows) }]);
    expect(hasMore).toBe(false);
  });

  test("a payload larger than one read is read", async () => {
    await ledger.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at, run_id)
      values ('huge', 1, gen_random_uuid(), 'RUN_STARTED',
        '{"parentRunId":"p","x":"' || repeat('x', 3200000) || '"}', now(), now(), 'a')`);
    await ledger.database.run(sql`
      insert into sessions (id, created_at, updated_at, event_seq) values ('huge', now(), now(), 1)`);
    expect((await list("huge")).runs).toMatchObject([{ runId: "a", parentRunId: "p" }]);
  });

  test("a page looks at a bounded number of rows without a run, and the next page continues", async () => {
    const looks = 5;
    await fill("no-runs", null, 70);
    const page = await list("no-runs", { rowsMax: 10 });
    expect(page).toEqual({ runs: [], nextAfter: BigInt(10 * looks), hasMore: true });
    expect(await listAll("no-runs", { rowsMax: 10 })).toEqual([]);
  });

  test("the statement walks the primary key", async () => {
    await ledger.database.run(sql`analyze session_events`);
    const plan = await planOf(
      runsStatement("long-run", { after: 5_000n, rowsMax: RUN_ROWS_LOOKED_AT_MAX }),
    );
    expect(plan).toContain("Index Scan using session_events_session_id_seq_pk");
    expect(plan).not.toContain("Seq Scan");
  });

  test("the run that is open at a cursor is found by one row of the primary key", async () => {
    const plan = await planOf(runOpenAtStatement("long-run", 5_000n));
    expect(plan).toContain("Index Scan Backward using session_events_session_id_seq_pk");
  });

  test("regression: a cut run longer than a page is skipped in bounded pages", async () => {
    const looks = 5n;
    const page = await list("long-run", { afterSeq: 10n, rowsMax: 10 });
    expect(page).toEqual({ runs: [], nextAfter: 10n + 10n * looks, hasMore: true });
    expect(await listAll("long-run", { afterSeq: 39_000n, rowsMax: 100 })).toEqual([]);
  });

  async function planOf(statement: SQL): Promise<string> {
    const lines = await ledger.database.run(sql`explain ${statement}`);
    return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  }
});
