/**
 * Every watcher of the real live.ts gets every committed row after its cursor exactly once and in
 * order, and nothing else, in any order of commits, publications, polls and reads, with failed reads, with true,
 * false and lost hints, and with watchers that come, pull and leave at any time.
 *
 * Method: the table is in memory. A step answers each read, as of its beginning or as of now, or
 * with an error. Commits "elsewhere" are never published. fast-check picks the steps;
 * at the end the table is fast, the timers run, every watcher pulls until it waits, and what each got
 * must be the table from its cursor.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { Live } from "../../src/live/live.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import type { Delivery, Watcher } from "../../src/live/watcher.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { lastSeqOf, type StoredRow, type StreamName } from "../../src/store/rows.ts";
import { properties } from "../support/random.ts";
import { databaseAway, ManualTimers, settled, SlowTable } from "../support/slow-table.ts";

const RUNS = properties({ runs: 300 });

const SESSIONS = ["a", "b"] as const;
const LIMITS = {
  ...LIVE_LIMITS,
  windowRowsMax: 4,
  windowBytesMax: 5_000,
  windowsBytesMax: 7_000,
  pageRowsMax: 3,
  pageReadsMax: 2,
};

type Step =
  | { kind: "commit"; session: 0 | 1; stream: StreamName; count: number; here: boolean }
  | { kind: "publish" | "publishAgain"; rows: number }
  | { kind: "answer"; pick: number; as: "began" | "now" }
  | { kind: "fail"; pick: number }
  | { kind: "timer"; pick: number }
  | { kind: "missed" | "lost" | "regained" }
  | { kind: "hint"; session: 0 | 1; stream: StreamName; beyond: number; deleted: boolean }
  | { kind: "watch"; session: 0 | 1; stream: StreamName; back: number; snapshot: boolean }
  | { kind: "pull"; pick: number }
  | { kind: "leave"; pick: number };

const pick = fc.nat({ max: 20 });
const session = fc.constantFrom(0 as const, 1 as const);
const stream = fc.constantFrom<StreamName>("messages", "events");
const count = fc.integer({ min: 1, max: 3 });
const kind = <K extends Step["kind"]>(name: K) => fc.constant(name);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: kind("commit"), session, stream, count, here: fc.boolean() }),
  },
  { weight: 3, arbitrary: fc.record({ kind: kind("publish"), rows: count }) },
  { weight: 1, arbitrary: fc.record({ kind: kind("publishAgain"), rows: count }) },
  {
    weight: 5,
    arbitrary: fc.record({ kind: kind("answer"), pick, as: fc.constantFrom("began", "now") }),
  },
  { weight: 1, arbitrary: fc.record({ kind: kind("fail"), pick }) },
  { weight: 2, arbitrary: fc.record({ kind: kind("timer"), pick }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom("missed" as const, "lost", "regained") }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("hint"),
      session,
      stream,
      beyond: fc.integer({ min: -3, max: 3 }),
      deleted: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("watch"),
      session,
      stream,
      back: fc.nat({ max: 6 }),
      snapshot: fc.boolean(),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: kind("pull"), pick }) },
  { weight: 1, arbitrary: fc.record({ kind: kind("leave"), pick }) },
);

/** A caller of a watch: pulls at its steps, and keeps the rows. */
class Caller {
  readonly controller = new AbortController();
  readonly got: StoredRow[] = [];
  readonly after: bigint;
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly snapshot: boolean;
  until: bigint | undefined;
  refused = false;
  ended = false;
  pulling = false;
  error: unknown;
  #deliveries: AsyncGenerator<Delivery<StreamName>> | undefined;

  constructor(live: Live, request: Extract<Step, { kind: "watch" }>, head: bigint) {
    this.stream = request.stream;
    this.sessionId = SESSIONS[request.session];
    this.snapshot = request.snapshot;
    this.after = head > BigInt(request.back) ? head - BigInt(request.back) : 0n;
    void this.#attach(live);
  }

  async #attach(live: Live): Promise<void> {
    const { stream: streamName, sessionId } = this;
    const { signal } = this.controller;
    try {
      const watcher: Watcher<StreamName> = await live.attach({
        stream: streamName,
        sessionId,
        signal,
      });
      const head = streamName === "messages" ? watcher.head?.messageSeq : watcher.head?.eventSeq;
      if (this.snapshot) this.until = head ?? 0n;
      this.#deliveries = watcher.follow({ after: this.after, until: this.until });
    } catch {
      this.refused = true; // The question for the head failed; the caller would come again.
    }
  }

  async pull(): Promise<void> {
    if (this.#deliveries === undefined || this.pulling || this.ended) return;
    this.pulling = true;
    try {
      const { value, done } = await this.#deliveries.next();
      if (done === true) this.ended = true;
      else if (value.kind === "rows") this.got.push(...value.rows);
      else this.saw(value.seq);
    } catch (error) {
      this.ended = true;
      this.error = error;
    }
    this.pulling = false;
  }

  /** A standing must not claim to have looked further than what was given, nor less far. */
  saw(seq: bigint): void {
    const last = this.got.at(-1);
    const looked = last === undefined ? this.after : lastSeqOf(last);
    if (looked !== seq) throw new Error(`a standing says ${seq} at ${looked}`);
  }
}

class World {
  readonly table = new SlowTable();
  readonly timers = new ManualTimers();
  readonly callers: Caller[] = [];
  readonly live: Live;
  readonly #unpublished: StoredRow[] = [];

  constructor() {
    const log = createLogTo({ write: () => undefined }, "silent");
    this.table.fast = false;
    this.live = new Live(
      { reader: this.table, clock: systemClock, timers: this.timers, log },
      LIMITS,
    );
  }

  run(one: Step): void {
    const { table } = this;
    switch (one.kind) {
      case "commit": {
        const sessionId = SESSIONS[one.session];
        const row =
          one.stream === "messages"
            ? table.message(sessionId, { payload: "x".repeat(one.count * 300) })
            : table.event(sessionId, { eventCount: one.count });
        if (one.here) this.#unpublished.push(row);
        return;
      }
      case "publish":
        return this.live.onCommit(this.#unpublished.splice(0, one.rows));
      case "publishAgain":
        return this.live.onCommit(table.rows.slice(-one.rows));
      case "answer":
        return chosen(table.pending, one.pick)?.answer(one.as);
      case "fail":
        return chosen(table.pending, one.pick)?.fail(databaseAway());
      case "timer":
        return chosen(this.timers.pending, one.pick)?.fire();
      case "missed":
        return this.live.onMissed();
      case "lost":
        return this.live.onLost();
      case "regained":
        return this.live.onRestored();
      case "hint":
        return this.hint(one);
      case "watch": {
        const head = table.head(SESSIONS[one.session]);
        const end = one.stream === "messages" ? head.messageSeq : head.eventSeq;
        this.callers.push(new Caller(this.live, one, end));
        return;
      }
      case "pull":
        return void chosen(this.callers, one.pick)?.pull();
      case "leave":
        return chosen(this.callers, one.pick)?.controller.abort();
    }
  }

  /** Of one stream, too low, right or too high; and that it was deleted, which no session is here. */
  hint({
    session: at,
    stream: streamName,
    beyond,
    deleted,
  }: Extract<Step, { kind: "hint" }>): void {
    const head = this.table.head(SESSIONS[at]);
    const nothing = { messageSeq: 0n, eventSeq: 0n };
    const said = (seq: bigint): bigint => (seq + BigInt(beyond) > 0n ? seq + BigInt(beyond) : 0n);
    const one =
      streamName === "messages"
        ? { messageSeq: said(head.messageSeq) }
        : { eventSeq: said(head.eventSeq) };
    this.live.onHint(SESSIONS[at], { ...nothing, ...one, deleted });
  }

  async comeToRest({ withTimers }: { readonly withTimers: boolean }): Promise<void> {
    this.table.fast = true;
    if (!withTimers) {
      // The last commit of every stream is made here, after whatever was made elsewhere.
      const last = SESSIONS.flatMap((id) => [this.table.message(id), this.table.event(id)]);
      this.live.onCommit([...this.#unpublished, ...last]);
    }
    for (let round = 0; round < 12 + this.table.rows.length; round += 1) {
      const reads = [...this.table.pending];
      for (const read of reads) read.answer("now");
      if (withTimers) this.timers.fireAll();
      for (const caller of this.callers) void caller.pull();
      await settled();
    }
  }

  /** The rows that a caller must have: all, or for one that has left, the first ones. */
  expected(caller: Caller): readonly StoredRow[] {
    const { sessionId, stream: streamName, until } = caller;
    return this.table.rows.filter(
      (row) =>
        row.sessionId === sessionId &&
        row.stream === streamName &&
        lastSeqOf(row) > caller.after &&
        (until === undefined || row.seq <= until),
    );
  }
}

function chosen<T>(among: readonly T[], at: number): T | undefined {
  return among.length === 0 ? undefined : among[at % among.length];
}

async function check(steps: readonly Step[], rest: { readonly withTimers: boolean }) {
  const world = new World();
  for (const one of steps) {
    world.run(one);
    await settled();
  }
  await world.comeToRest(rest);
  for (const caller of world.callers) {
    const left = caller.controller.signal.aborted;
    const expected = world.expected(caller);
    const wanted = left || caller.refused ? expected.slice(0, caller.got.length) : expected;
    expect(caller.got).toEqual(wanted);
    expect(caller.ended).toBe(!caller.refused && (left || caller.snapshot));
    expect(caller.error).toBeUndefined();
  }
  const open = world.callers.filter((caller) => !caller.refused && !caller.ended);
  await world.live.stop();
  await settled();
  for (const { error } of open) expect(error).toMatchObject({ reason: "SHUTTING_DOWN" });
  expect(world.live.counts()).toEqual({ watchers: 0, sessions: 0, windowBytes: 0 });
  expect(world.timers.pending).toEqual([]);
}

const steps = fc.array(step, { minLength: 10, maxLength: 120, size: "max" });

test("every watcher gets every committed row once and in order", async () => {
  const property = fc.asyncProperty(steps, (all) => check(all, { withTimers: true }));
  await expect(fc.assert(property, RUNS)).resolves.toBeUndefined();
});

test("rows of this replica, and rows before them, never wait for the poll", async () => {
  const polls = (one: Step): boolean =>
    ["fail", "timer", "missed", "lost", "regained"].includes(one.kind) ||
    (one.kind === "hint" && one.deleted);
  const noPoll = steps.map((all) => all.filter((one) => !polls(one)));
  const property = fc.asyncProperty(noPoll, (all) => check(all, { withTimers: false }));
  await expect(fc.assert(property, RUNS)).resolves.toBeUndefined();
});
