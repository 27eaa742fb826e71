/**
 * Each rule of the checkers finds a history that breaks it. That a history which keeps all rules has no
 * problem is shown by each test that uses them, and by test/e2e/faults.test.ts.
 */
import { expect, test } from "vitest";
import {
  type CancelledSession,
  cancelProblemsOf,
  type TurnedSession,
  turnProblemsOf,
} from "../support/turn-check.ts";
import {
  History,
  plan,
  type PushKind,
  type PushRecord,
  type Reader,
  type Row,
} from "../support/history.ts";
import { problemsOf } from "../support/history-check.ts";
import {
  lastSeqOf,
  passProblemsOf,
  type StoredRow,
  type StoredSession,
  streamProblemsOf,
  type WriterRecord,
} from "../support/stream-check.ts";

function at<T>(list: readonly T[], index: number): T {
  const found = list[index];
  if (found === undefined) throw new RangeError(`nothing at ${index}`);
  return found;
}

// Pushes and readers.

type Step = PushKind | { readonly kind: PushKind; readonly epoch: bigint };

class Ledger {
  readonly history = new History();
  readonly pushes: PushRecord[] = [];
  readonly rows: Row[] = [];
  readonly used = { messages: 0n, events: 0n };
  /** The rows of `history-check.ts` that a standby did not have. */
  readonly lost: Row[] = [];

  async write(steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      const { kind, ...fence } = typeof step === "string" ? { kind: step } : step;
      const sent = plan(this.history, { sessionId: "s", kind, keyed: true, ...fence });
      const { stream, sessionId, eventType, payload } = sent;
      const own = Array.from({ length: sent.rows }, (_, part): Row => {
        const eventCount = sent.rows === 1 ? sent.numbers : part === 1 ? sent.numbers - 2 : 1;
        const seq = this.used[stream] + 1n;
        this.used[stream] += BigInt(eventCount);
        const base = { stream, sessionId, seq, eventCount, id: `${stream} ${seq}` };
        return { ...base, eventType, payload, createdAtMicros: 1n, runId: "" };
      });
      const push = this.history.push(sent);
      const row = at(own, 0);
      await this.history.attempt(push, () => Promise.resolve({ row, deduplicated: false }));
      this.rows.push(...own);
      this.pushes.push(push);
    }
  }

  edit(index: number, changes: Partial<Row>): void {
    this.rows[index] = { ...at(this.rows, index), ...changes };
  }

  add(changes: Partial<Row>): void {
    this.rows.push({ ...at(this.rows, 0), ...changes });
  }

  reader(rows: readonly Row[] = []): Reader {
    const reader = this.history.reader("watch", { stream: "events", sessionId: "s" });
    for (const row of rows) reader.saw(row);
    return reader;
  }

  problems(): readonly string[] {
    const witness = { rows: this.rows, counters: new Map([["s", this.used]]) };
    return problemsOf(this.history, witness, { lost: this.lost });
  }
}

/** Events at 1 and 2, a group of three rows from 3 to 7, a message. */
const STEPS: readonly Step[] = ["event", "event", "grouped", "message"];

test.each<[string, (ledger: Ledger) => unknown, steps?: readonly Step[]]>([
  ["mark-2. (s events): acknowledged, and not there", ({ rows }) => rows.splice(1, 1)],
  [
    "mark-1. (s events): refused, and stored",
    ({ pushes }) =>
      Object.assign(at(at(pushes, 0).attempts, 0), { answer: { kind: "refused", reason: "" } }),
  ],
  ["mark-1. (s events): 2 rows, and not 1", (ledger) => ledger.add({ seq: 8n })],
  ["mark-3. (s events): 2 rows, and not 3", ({ rows }) => rows.splice(4, 1)],
  ["mark-3. (s events): takes 6 numbers", (ledger) => ledger.edit(3, { eventCount: 4 })],
  [
    "mark-3. (s events): its rows do not follow each other",
    (ledger) => ledger.edit(4, { seq: 9n }),
  ],
  [
    "mark-1. (s events): other payload",
    (ledger) => ledger.edit(0, { payload: `${at(ledger.rows, 0).payload} ` }),
  ],
  [
    "mark-1. (s events): answered with another createdAtMicros",
    (ledger) => ledger.edit(0, { createdAtMicros: 2n }),
  ],
  [
    "mark-1. (s events): answered as new more than once",
    ({ pushes }) => at(pushes, 0).attempts.push(at(at(pushes, 0).attempts, 0)),
  ],
  [
    "mark-1. (s events): never answered as new",
    ({ pushes }) => Object.assign(at(at(pushes, 0).attempts, 0).answer, { deduplicated: true }),
  ],
  ["s events 8: nobody sent it", (ledger) => ledger.add({ seq: 8n, payload: "{}" })],
  [
    "s events 9: does not connect to the row before it",
    (ledger) => ledger.add({ seq: 9n, payload: "{}" }),
  ],
  ['s events 1: in run "", not "mark-1."', () => undefined, ["run_started"]],
  ["s events: 7 numbers in rows, counter at 8", ({ used }) => Object.assign(used, { events: 8n })],
  [
    "s events 1: began after a push with a higher number was acknowledged",
    (ledger) => {
      ledger.edit(0, { seq: 2n });
      ledger.edit(1, { seq: 1n });
    },
  ],
  [
    "s events 2: of epoch 1, behind a higher one",
    () => undefined,
    [
      { kind: "event", epoch: 2n },
      { kind: "event", epoch: 1n },
    ],
  ],
  [
    "s messages 1: of epoch 1, behind a higher one",
    () => undefined,
    [
      { kind: "event", epoch: 2n },
      { kind: "message", epoch: 1n },
    ],
  ],
  [
    "watch of s events: failed with CURSOR_BEYOND_HEAD",
    (ledger) => ledger.reader().failed(new Error("CURSOR_BEYOND_HEAD")),
  ],
  ["watch of s events: row 2 after nothing", (ledger) => ledger.reader(ledger.rows.slice(1, 2))],
  [
    "watch of s events: row 1 after 1",
    (ledger) => ledger.reader([at(ledger.rows, 0), at(ledger.rows, 0)]),
  ],
  [
    "watch of s events: row 1: another payload",
    (ledger) => ledger.reader([{ ...at(ledger.rows, 0), payload: "{}" }]),
  ],
  [
    "watch of s events: row 8: another row, which is not there",
    (ledger) => ledger.reader([{ ...at(ledger.rows, 0), seq: 8n }]),
  ],
  [
    "watch of s events: found its end at 0, when 7 was there",
    (ledger) => ledger.reader().ends.push({ began: ledger.history.now(), upTo: 0n }),
    ["event", "event", "event", "event", "event", "event", "event"],
  ],
  [
    "mark-1. (s events): acknowledged, and not there",
    (ledger) => ledger.lost.push(...ledger.rows.splice(0, 2).slice(1)), // Only the second may be lost.
  ],
  [
    "watch of s events: row 2: another row, which is not there",
    (ledger) => {
      ledger.reader(ledger.rows.slice(0, 2)); // Nobody told it that the second is lost.
      ledger.lost.push(...ledger.rows.splice(1, 1));
    },
  ],
])("of pushes and readers: %s", async (problem, happen, steps = STEPS) => {
  const ledger = new Ledger();
  await ledger.write(steps);
  happen(ledger);
  expect(ledger.problems()).toContain(problem);
});

// Push streams.

const EVENTS = ["a", "b", "c", "d", "e", "f"];

/** Rows of `counts` events each. */
function holding(names: readonly string[], counts = names.map(() => 1)): StoredSession {
  const events = names.map((name, index): StoredRow => {
    const payload = JSON.stringify({ type: "CUSTOM", name, value: 1 });
    return { seq: BigInt(index) + 1n, eventCount: 1, eventType: "CUSTOM", payload };
  });
  let next = 0;
  const rows = counts.map((eventCount) => {
    const first = at(events, next);
    next += eventCount;
    return { ...first, eventCount };
  });
  return { rows, events, counter: BigInt(names.length) };
}

/** A writer that came to its end; an empty name has to be refused. */
function writing(names: readonly string[], changes: Partial<WriterRecord> = {}): WriterRecord {
  return {
    name: "w",
    epoch: 1n,
    firstClientSeq: 1n,
    sent: names.map((name) =>
      name === "" ? undefined : { eventType: "CUSTOM", value: { value: 1, type: "CUSTOM", name } },
    ),
    openings: [{ lastClientSeq: 0n, refused: 0n }],
    acknowledged: [],
    refused: [],
    isWhole: true,
    ...changes,
  };
}

const SIX = holding(EVENTS);
const acknowledging = (clientSeq: bigint, seq: bigint | undefined) => ({
  isWhole: false,
  acknowledged: [{ clientSeq, seq }],
});

test.each<[string, WriterRecord | readonly WriterRecord[], StoredSession]>([
  ["w: 3 is lost", writing(EVENTS), holding(["a", "b", "d", "e", "f"])],
  ["w: 3 is lost", writing(EVENTS, { isWhole: false }), holding(["a", "b", "d"])],
  ["w: 6 is lost", writing(EVENTS), holding(EVENTS.slice(0, 5))],
  [
    "w: seq 3 is there a second time",
    writing(EVENTS),
    holding(["a", "b", "b", "c", "d", "e", "f"]),
  ],
  [
    "w: 3 is before what was sent before it",
    writing(EVENTS),
    holding(["a", "c", "b", "d", "e", "f"]),
  ],
  ["seq 7: nobody sent it", writing(EVENTS), holding([...EVENTS, "x"])],
  ["seq 2: nobody sent it", writing(["a", ""]), holding(["a", "b"])],
  ["w: 3 acknowledged, and not there", writing(EVENTS, acknowledging(3n, 3n)), holding(["a", "b"])],
  [
    "w: 3 acknowledged, and not there",
    writing(EVENTS, acknowledging(3n, undefined)),
    holding(["a", "b"]),
  ],
  ["w: 3 acknowledged with seq 4, and is at 3", writing(EVENTS, acknowledging(3n, 4n)), SIX],
  ["w: 3 acknowledged with seq 0, and is at 3", writing(EVENTS, acknowledging(3n, 0n)), SIX],
  [
    "w: 3 acknowledged after 4",
    writing(EVENTS, {
      acknowledged: [
        { clientSeq: 4n, seq: 4n },
        { clientSeq: 3n, seq: undefined },
      ],
    }),
    SIX,
  ],
  ["w: 7 acknowledged, and never sent", writing(EVENTS, acknowledging(7n, undefined)), SIX],
  ["w: 2 refused, and has to be accepted", writing(EVENTS, { refused: [2n] }), SIX],
  [
    "w: 2 refused without a word",
    writing(["a", "", "b"], acknowledging(3n, 2n)),
    holding(["a", "b"]),
  ],
  [
    "w: opened at 4 with 1 refused, and not 0",
    writing(EVENTS, {
      openings: [
        { lastClientSeq: 0n, refused: 0n },
        { lastClientSeq: 4n, refused: 1n },
      ],
    }),
    SIX,
  ],
  [
    "row 5 where 3 comes next",
    writing(EVENTS),
    { ...SIX, rows: holding(EVENTS, [2, 2, 2]).rows.toSpliced(1, 1) },
  ],
  ["counter at 7, rows up to 6", writing(EVENTS), { ...SIX, counter: 7n }],
  ["5 events expanded, counter at 6", writing(EVENTS), { ...SIX, events: SIX.events.slice(0, 5) }],
  ["expanded event 2 does not connect", writing(EVENTS), { ...SIX, events: SIX.events.slice(1) }],
  [
    "w: seq 3 is behind 2, the first of v",
    [writing(["a", "b"]), writing(["x"], { name: "v" })],
    holding(["a", "x", "b"]),
  ],
  [
    "w: its epoch began with number 3",
    [writing(["a", "b"]), writing(["c"], { epoch: 2n, firstClientSeq: 3n })],
    holding(["a", "b", "c"]),
  ],
])("of push streams: %s", (problem, writers, session) => {
  expect(streamProblemsOf([writers].flat(), session)).toContain(problem);
});

const ROWS = holding(EVENTS, [1, 4, 1]);

test.each<[string, expand: boolean, after: bigint, seen: readonly StoredRow[]]>([
  ["seq 4, where 3 comes next", true, 0n, ROWS.events.toSpliced(2, 1)],
  ["seq 2, where 3 comes next", true, 0n, ROWS.events.toSpliced(2, 0, at(ROWS.events, 1))],
  ["ended at 4, before 6", true, 0n, ROWS.events.slice(0, 4)],
  [
    "seq 1, where 1 comes next",
    true,
    0n,
    ROWS.events.with(0, { ...at(ROWS.events, 0), payload: "{}" }),
  ],
  // A cursor inside a row gets the row again; a cursor at its first event does not.
  ["seq 6, where 2 comes next", false, 3n, ROWS.rows.slice(2)],
  ["seq 2, where 6 comes next", false, 2n, ROWS.rows.slice(1)],
])("of a pass over the events: %s", (problem, expand, after, seen) => {
  const pass = { name: "p", expand, after, seen, upTo: 6n };
  expect(passProblemsOf(pass, ROWS)).toContain(`p after ${after}: ${problem}`);
  const kept = (expand ? ROWS.events : ROWS.rows).filter(
    (row) => row.seq > after || (row.seq < after && after < lastSeqOf(row)),
  );
  expect(passProblemsOf({ ...pass, seen: kept }, ROWS)).toEqual([]);
});

// Turns and cancels.

function rowOf(stream: Row["stream"], fields: Partial<Row>): Row {
  const base = { stream, sessionId: "s", seq: 1n, eventCount: 1, id: "1", eventType: "" };
  return { ...base, payload: "{}", createdAtMicros: 1n, runId: "", ...fields };
}

/** `u` a message of a person, `a` another; `2-4 r1` a turn, `! r1` a lost run, `. r1` an end, `* r1` output. */
function turned(
  messages: string,
  events: readonly string[],
  rest: Partial<TurnedSession> = {},
): TurnedSession {
  const types = new Map([
    ["!", "RUN_ERROR"],
    [".", "RUN_FINISHED"],
    ["*", "CUSTOM"],
  ]);
  let open = "";
  return {
    sessionId: "s",
    messages: Array.from(messages, (type, index) =>
      rowOf("messages", {
        seq: BigInt(index) + 1n,
        eventType: type === "u" ? "user" : "assistant",
      }),
    ),
    events: events.map((line, index) => {
      const [what = "", runId = ""] = line.split(" ");
      const seq = BigInt(index) + 1n;
      const eventType = types.get(what) ?? "RUN_STARTED";
      if (eventType === "RUN_STARTED") open = runId;
      const [first, last] = what.split("-").map(Number);
      const metadata = { session: { consumed: { first, last } } };
      const payload = JSON.stringify({ runId, value: runId, metadata });
      return rowOf("events", { seq, eventType, payload, runId: open });
    }),
    claims: [],
    turnSeq: 4n,
    pending: 0n,
    ...rest,
  };
}

const GOOD = ["1-3 r1", "* r1", ". r1", "4-4 r2", "! r2", "4-4 r3"];

test.each([
  ["had its turn before", turned("uauu", ["1-3 r1", ". r1", "3-4 r2"])],
  ["had its turn before", turned("uauu", ["1-4 r1", "* r1", "! r1", "1-4 r2"])],
  ["had its turn before", turned("uauu", ["1-4 r1", "! r1", "* ", "1-4 r2"])],
  ["is not the next", turned("uauu", ["3-4 r1"])],
  ["begins while r1 is open", turned("uauu", ["1-3 r1", "4-4 r2"])],
  ["begins twice", turned("uauu", ["1-3 r1", ". r1", "4-4 r1"])],
  ["of r0, in r1", turned("uauu", ["1-4 r1", "* r0"])],
  ["ends r0, not r1", turned("uauu", ["1-4 r1", ". r0"])],
  ["ends at 2", turned("uauu", ["1-2 r1"], { turnSeq: 2n, pending: 2n })],
  ["is not there", turned("uauu", GOOD, { claims: [{ runId: "r8", taken: [1n] }] })],
  ["was given 1, not 1,3", turned("uauu", GOOD, { claims: [{ runId: "r1", taken: [1n] }] })],
  ["stands at message 3", turned("uauu", GOOD, { turnSeq: 3n })],
  ["counts 1 messages", turned("uauu", GOOD, { pending: 1n })],
])("of turns: %s", (problem, session) => {
  expect(turnProblemsOf(session).join("\n")).toContain(problem);
  expect(turnProblemsOf(turned("uauu", GOOD))).toEqual([]);
});

const asked = (seq: bigint, runId: string): Row =>
  rowOf("messages", {
    seq,
    payload: JSON.stringify({ event: "cancel_requested", run_id: runId }),
  });
const ended = (runId: string): Row => rowOf("events", { eventType: "RUN_FINISHED", runId });

test.each<[string, Partial<CancelledSession>]>([
  ["a 1 is not there as message 1", { messages: [asked(2n, "a 10")] }],
  ["a 1 is there 2 times", { messages: [asked(1n, "a 1"), asked(2n, "a 10"), asked(3n, "a 1")] }],
  ["a 10 was answered, and the run has 0 ends", { events: [ended("a 1")] }],
  [
    "a 10 was answered, and the run has 2 ends",
    { events: [ended("a 1"), ended("a 10"), ended("a 10")] },
  ],
])("of cancels: %s", (problem, changes) => {
  const session = {
    sessionId: "s",
    messages: [asked(1n, "a 1"), asked(2n, "a 10")],
    events: [ended("a 1"), ended("a 10")],
    cancels: [
      { runId: "a 1", seq: 1n },
      { runId: "a 10", seq: 2n },
    ],
  };
  expect(cancelProblemsOf(session)).toEqual([]);
  expect(cancelProblemsOf({ ...session, ...changes })).toEqual([`s: the cancel of run ${problem}`]);
});
