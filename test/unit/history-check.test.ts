/**
 * The checker reports no problem for a history that agrees with its database, and each way in which
 * a ledger can break a promise.
 */
import { describe, expect, test } from "vitest";
import { History, type PushRecord, type Row } from "../support/history.ts";
import { problemsOf, type Witness } from "../support/history-check.ts";
import { plan, type PushKind } from "../support/history-pushes.ts";

interface Step {
  readonly kind?: PushKind;
  readonly epoch?: bigint;
}

/**
 * Pushes one after the other, each acknowledged before the next begins, and the rows they became.
 */
async function written(steps: readonly Step[]) {
  const history = new History();
  const rows: Row[] = [];
  const pushes: PushRecord[] = [];
  const used = { messages: 0n, events: 0n };
  for (const { kind = "event", ...rest } of steps) {
    const sent = plan(history, { sessionId: "s", kind, keyed: true, ...rest });
    const push = history.push(sent);
    const own = Array.from({ length: sent.rows }, (_, at): Row => {
      const eventCount = sent.rows === 1 ? sent.numbers : at === 1 ? sent.numbers - 2 : 1;
      const { stream, sessionId, eventType, payload } = sent;
      const seq = used[stream] + 1n;
      used[stream] += BigInt(eventCount);
      const base = { stream, sessionId, seq, eventCount, id: `${stream} ${seq}` };
      return { ...base, eventType, payload, createdAtMicros: 1n, runId: "" };
    });
    const [row] = own;
    if (row === undefined) throw new Error("a push without a row");
    await history.attempt(push, () => Promise.resolve({ row, deduplicated: false }));
    rows.push(...own);
    pushes.push(push);
  }
  const witness: Witness = { rows, counters: new Map([["s", used]]) };
  return { history, rows, pushes, witness };
}

/** The same witness with other rows, and counters that fit them. */
function holding(rows: readonly Row[]): Witness {
  const sum = (stream: Row["stream"]): bigint =>
    rows
      .filter((row) => row.stream === stream)
      .reduce((total, { eventCount }) => total + BigInt(eventCount), 0n);
  return { rows, counters: new Map([["s", { messages: sum("messages"), events: sum("events") }]]) };
}

function fails(history: History, push: PushRecord, reason: string): Promise<unknown> {
  const failure = Object.assign(new Error(reason), { reason });
  return history.attempt(push, () => Promise.reject(failure)).catch(() => undefined);
}

const KINDS: readonly Step[] = [
  { kind: "message" },
  { kind: "event" },
  { kind: "merged" },
  { kind: "grouped" },
  { kind: "event" },
];

test("a consistent history has no problem, with retries, refusals and losses", async () => {
  const { history, rows, pushes, witness } = await written(KINDS);
  const [again] = pushes;
  const [row] = rows;
  if (again === undefined || row === undefined) throw new Error("nothing was written");
  await history.attempt(again, () => Promise.resolve({ row, deduplicated: true }));
  for (const reason of ["QUEUE_FULL", "UNAVAILABLE"]) {
    const push = history.push(plan(history, { sessionId: "s", kind: "event", keyed: false }));
    await fails(history, push, reason);
  }
  const reader = history.reader("watch", { stream: "events", sessionId: "s" });
  for (const seen of rows.slice(1)) reader.saw(seen);
  reader.ends.push({ began: history.now(), upTo: reader.cursor });
  expect(problemsOf(history, witness)).toEqual([]);
});

test("other writers of a shared session are counted, but not checked", async () => {
  const { history, rows, witness } = await written(KINDS);
  const last = rows.findLast(({ stream }) => stream === "events");
  if (last === undefined) throw new Error("nothing was written");
  const other: Row = { ...last, seq: last.seq + 1n, id: "another", payload: '{"type":"RAW"}' };
  const shared = new Set(["s"]);
  expect(problemsOf(history, holding([...rows, other]), { shared })).toEqual([]);
  expect(problemsOf(history, holding([...rows, other]))).toEqual(["s events 11: nobody sent it"]);
  const uncounted = { ...witness, rows: [...rows, other] };
  expect(problemsOf(history, uncounted, { shared })).toHaveLength(1);
});

describe("the checker reports", () => {
  test("an acknowledged push that is missing", async () => {
    const { history, rows } = await written([{}, {}]);
    expect(problemsOf(history, holding(rows.slice(0, 1)))).toEqual([
      "mark-2. (s events): acknowledged, and not there",
    ]);
  });

  test("a push that is stored twice", async () => {
    const { history, rows } = await written([{}]);
    const twice = rows.flatMap((row) => [row, { ...row, seq: 2n, id: "other" }]);
    expect(problemsOf(history, holding(twice))).toEqual(["mark-1. (s events): 2 rows, and not 1"]);
  });

  test("a grouped push that is stored in part", async () => {
    const { history, rows } = await written([{ kind: "grouped" }]);
    expect(problemsOf(history, holding(rows.slice(0, 2)))).toEqual([
      "mark-1. (s events): 2 rows, and not 3",
    ]);
  });

  test("a refused push that is stored", async () => {
    const { history, rows, pushes } = await written([{}]);
    const push = pushes[0];
    if (push === undefined) throw new Error("nothing was written");
    push.attempts.length = 0;
    await fails(history, push, "QUEUE_FULL");
    expect(problemsOf(history, holding(rows))).toEqual(["mark-1. (s events): refused, and stored"]);
  });

  test("two attempts that were both answered as new, or with different rows", async () => {
    const { history, rows, pushes, witness } = await written([{}]);
    const [push] = pushes;
    const [row] = rows;
    if (push === undefined || row === undefined) throw new Error("nothing was written");
    const other = { ...row, createdAtMicros: 2n };
    await history.attempt(push, () => Promise.resolve({ row: other, deduplicated: false }));
    expect(problemsOf(history, witness)).toEqual([
      "mark-1. (s events): answered with another createdAtMicros",
      "mark-1. (s events): answered as new more than once",
    ]);
  });

  test("a push that was never answered as new", async () => {
    const { history, pushes, witness } = await written([{}]);
    for (const { answer } of pushes[0]?.attempts ?? [])
      Object.assign(answer, { deduplicated: true });
    expect(problemsOf(history, witness)).toEqual(["mark-1. (s events): never answered as new"]);
  });

  test("a row without a push", async () => {
    const { history, rows } = await written([{}]);
    const foreign = rows.map((row) => ({ ...row, payload: "{}", seq: 2n }));
    expect(problemsOf(history, holding([...rows, ...foreign]))).toEqual([
      "s events 2: nobody sent it",
    ]);
  });

  test("a gap in the numbers, and a wrong counter", async () => {
    const { history, rows } = await written([{}, {}]);
    const shifted = rows.map((row) => (row.seq === 2n ? { ...row, seq: 3n } : row));
    const problems = problemsOf(history, {
      rows: shifted,
      counters: new Map([["s", { messages: 0n, events: 3n }]]),
    });
    expect(problems).toContain("s events 3: does not connect to the row before it");
    expect(problems).toContain("s events: 2 numbers in rows, counter at 3");
  });

  test("a row in the wrong run", async () => {
    const { history, rows, witness } = await written([{ kind: "run_started" }]);
    const [row] = rows;
    expect(row?.runId).toBe("");
    expect(problemsOf(history, witness)).toEqual(['s events 1: in run "", not "mark-1."']);
  });

  test("a later push with a lower number", async () => {
    const { history, rows, pushes } = await written([{}, {}]);
    const [first, second] = rows;
    if (first === undefined || second === undefined) throw new Error("nothing was written");
    const swapped: readonly Row[] = [
      { ...second, seq: first.seq },
      { ...first, seq: second.seq },
    ];
    for (const push of pushes) {
      for (const { answer } of push.attempts) {
        if (answer.kind !== "acknowledged") continue;
        Object.assign(answer.row, { seq: answer.row.seq === 1n ? 2n : 1n });
      }
    }
    expect(problemsOf(history, holding(swapped))).toEqual([
      "s events 1: began after a push with a higher number was acknowledged",
    ]);
  });

  test.each([
    ["one stream", "event"],
    ["both streams", "message"],
  ] as const)("a replaced writer that still stores rows, in %s", async (_, kind) => {
    const { history, witness } = await written([{ epoch: 2n }, { kind, epoch: 1n }]);
    expect(problemsOf(history, witness)).toEqual([
      expect.stringContaining("of epoch 1, behind a higher one"),
    ]);
  });

  test("a reader that saw a gap, a repetition or another row", async () => {
    const { history, rows, witness } = await written([{}, {}, {}]);
    const reader = history.reader("watch", { stream: "events", sessionId: "s" });
    const [first, , third] = rows;
    if (first === undefined || third === undefined) throw new Error("nothing was written");
    for (const row of [first, { ...third, payload: "{}" }, third]) reader.saw(row);
    expect(problemsOf(history, witness)).toEqual([
      "watch of s events: row 3 after 1",
      "watch of s events: row 3: another payload",
      "watch of s events: row 3 after 3",
    ]);
  });

  test("a reader that was refused", async () => {
    const { history, witness } = await written([{}]);
    const reader = history.reader("watch", { stream: "events", sessionId: "s" });
    const waiting = reader.until(1n);
    reader.failed(Object.assign(new Error("above the head"), { reason: "CURSOR_BEYOND_HEAD" }));
    await waiting;
    expect(problemsOf(history, witness)).toEqual([
      "watch of s events: failed with CURSOR_BEYOND_HEAD",
    ]);
  });

  test("a read that missed an earlier acknowledged row", async () => {
    const { history, witness } = await written([{}]);
    const reader = history.reader("poll", { stream: "events", sessionId: "s" });
    reader.ends.push({ began: history.now(), upTo: 0n });
    expect(problemsOf(history, witness)).toEqual([
      "poll of s events: found its end at 0, when 1 was there",
    ]);
  });
});

describe("rows that a promoted standby does not have", () => {
  async function halfLost() {
    const { history, rows } = await written([{}, {}, {}]);
    const kept = rows.slice(0, 2);
    const lost = rows.slice(2);
    return { history, rows, lost, witness: holding(kept) };
  }

  test("may be acknowledged and missing, but no other rows may", async () => {
    const { history, lost, rows, witness } = await halfLost();
    expect(problemsOf(history, witness)).toHaveLength(1);
    expect(problemsOf(history, witness, { lost })).toEqual([]);
    const fewer = holding(rows.slice(0, 1));
    expect(problemsOf(history, fewer, { lost })).toEqual([
      expect.stringContaining("acknowledged, and not there"),
    ]);
  });

  test("may have been seen by a reader that was informed, and by no other", async () => {
    const { history, lost, rows, witness } = await halfLost();
    const reader = history.reader("watch", { stream: "events", sessionId: "s" });
    for (const row of rows) reader.saw(row);
    expect(problemsOf(history, witness, { lost })).toEqual([
      "watch of s events: row 3: another row, which is not there",
    ]);
    reader.toldOfLoss();
    expect(problemsOf(history, witness, { lost })).toEqual([]);
  });
});
