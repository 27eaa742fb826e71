/**
 * Whatever is pushed, claimed, ended and erased, a session's turns are what a model of fifty lines
 * says. Each claim is made for a state that was read before, as the service does: pushes may come
 * between the reading and the claim, and pushes may share its batch.
 */
import * as fc from "fast-check";
import type postgres from "postgres";
import { expect, test } from "vitest";
import { nextStep } from "../../src/handlers/turns/next-step.ts";
import { eraseBatch } from "../../src/maintenance/erase.ts";
import { sql } from "../../src/store/database.ts";
import type { Push } from "../../src/store/rows.ts";
import { createTurnStore } from "../../src/store/turns.ts";
import { appendAll, countsOf, newPush, newRow, useLedger, useSql } from "../support/ledger.ts";

const PUSHES = ["user", "assistant", "started", "event", "meta", "finished"] as const;
type Pushed = (typeof PUSHES)[number];

interface ClaimStep {
  readonly kind: "claim";
  /** Above the highest epoch; 0: none is named. */
  readonly epoch: "none" | "lower" | "same" | "higher";
  readonly messagesMax: number;
  readonly redeliver: boolean;
  /** Committed between the reading and the claim. */
  readonly between: readonly Pushed[];
  /** In the batch of the claim, after it. */
  readonly behind: readonly Pushed[];
}
type Step = Pushed | "erase" | ClaimStep;

class Model {
  /** The numbers of the messages of users that are stored. */
  users: bigint[] = [];
  messages = 0n;
  turnSeq = 0n;
  hasClaimed = false;
  epoch: bigint | undefined;
  run: { readonly id: string; readonly from: bigint | undefined; hasOutput: boolean } | undefined;
  /** Changes that refuse a claim that was made before them. */
  events = 0;

  get pending(): readonly bigint[] {
    return this.users.filter((seq) => seq > this.turnSeq);
  }

  push(pushed: Pushed, runId: string): void {
    if (pushed === "user" || pushed === "assistant") {
      this.messages += 1n;
      if (pushed === "user") this.users.push(this.messages);
      return;
    }
    this.events += 1;
    if (pushed === "finished") this.run = undefined;
    else if (pushed === "started") {
      this.run = { id: runId, from: undefined, hasOutput: false };
      if (!this.hasClaimed) this.turnSeq = this.messages;
    } else if (pushed === "event" && this.run !== undefined) this.run.hasOutput = true;
  }

  /** The numbers that the turn takes, or why there is none. */
  claim({ messagesMax, redeliver }: ClaimStep, wanted: bigint): readonly bigint[] | string {
    const highest = this.epoch ?? 0n;
    const isHigher = wanted > highest;
    if (wanted !== 0n && wanted < highest) return "STALE_EPOCH";
    if (this.run !== undefined && !isHigher) return "RUN_OPEN";
    const goesBack = redeliver && this.run?.hasOutput === false;
    const from = (goesBack ? this.run?.from : undefined) ?? this.turnSeq;
    const taken = this.users.filter((seq) => seq > from).slice(0, messagesMax);
    return taken.length === 0 && this.run === undefined ? "wait" : taken;
  }

  take(taken: readonly bigint[], { step, runId }: { step: ClaimStep; runId: string }): void {
    const goesBack = step.redeliver && this.run?.hasOutput === false;
    const from = (goesBack ? this.run?.from : undefined) ?? this.turnSeq;
    this.epoch = epochOf(step, this.epoch) || (this.epoch ?? 0n) + 1n;
    this.hasClaimed = true;
    this.events += 1;
    this.run = undefined;
    const last = taken.at(-1);
    if (last === undefined) return;
    this.turnSeq = last;
    this.run = { id: runId, from, hasOutput: false };
  }

  /** Retention of all messages that it may erase. */
  erase(): void {
    const spared = this.hasClaimed ? (this.run?.from ?? this.turnSeq) : this.messages;
    this.users = this.users.filter((seq) => seq > spared);
  }

  get row(): readonly unknown[] {
    const { turnSeq, hasClaimed, epoch, run } = this;
    const count = this.pending.length;
    return [turnSeq, count, count > 0, hasClaimed, epoch, run?.id, run?.from];
  }
}

/** 0: none is named. */
function epochOf({ epoch }: ClaimStep, highest = 0n): bigint {
  if (epoch === "none") return 0n;
  return highest + { lower: highest > 1n ? -1n : 0n, same: 0n, higher: 3n }[epoch];
}

const some = fc.array(fc.constantFrom(...PUSHES), { maxLength: 3 });
const claimStep: fc.Arbitrary<ClaimStep> = fc.record({
  kind: fc.constant("claim"),
  epoch: fc.constantFrom("none", "none", "same", "higher", "higher", "lower"),
  messagesMax: fc.integer({ min: 1, max: 3 }),
  redeliver: fc.boolean(),
  between: fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, some),
  behind: fc.oneof({ weight: 2, arbitrary: fc.constant([]) }, some),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...PUSHES, "user") },
  { weight: 3, arbitrary: claimStep },
  { weight: 1, arbitrary: fc.constant("erase") },
);

/** Rare among random steps. */
const claimed = (fields: Partial<ClaimStep> = {}): ClaimStep => ({
  kind: "claim",
  epoch: "higher",
  messagesMax: 1,
  redeliver: true,
  between: [],
  behind: [],
  ...fields,
});
const EXAMPLES: readonly (readonly Step[])[] = [
  // The lost run gets its output while the next claim is made, and its messages stay with it.
  ["user", claimed(), claimed({ between: ["event"] }), claimed()],
  ["user", claimed(), claimed({ between: ["meta"] }), claimed()],
  // Retention spares the waiting messages, and those of the open run.
  [
    "user",
    "user",
    "user",
    claimed(),
    "finished",
    claimed(),
    "erase",
    claimed(),
    "finished",
    "erase",
  ],
  // A run that no claim began has no messages to take again.
  ["user", claimed(), "started", "user", claimed(), claimed({ behind: ["started", "user"] })],
];

const ledger = await useLedger();

const OPTIONS = {
  createMissing: true,
  wait: true,
  limits: { sessionRowsMax: 2_000_000, sessionBytesMax: 4_294_967_296, pendingMax: 1_000 },
};

function pushOf(sessionId: string, pushed: Pushed, runId: string): Push {
  if (pushed === "user" || pushed === "assistant") {
    return newPush(sessionId, { stream: "messages", rows: [newRow({ eventType: pushed })] });
  }
  const row = {
    started: { eventType: "RUN_STARTED", mark: { kind: "open", runId } },
    finished: { eventType: "RUN_FINISHED", mark: { kind: "close" } },
    event: { eventType: "RAW" },
    meta: { eventType: "META" },
  } as const;
  return newPush(sessionId, { rows: [newRow(row[pushed])] });
}

/** One session, and the model of it. */
class Played {
  readonly model = new Model();
  /** What the table had, and what the model says, in the order of the steps. */
  readonly found: unknown[] = [];
  readonly expected: unknown[] = [];
  readonly #sessionId: string;
  #runs = 0;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  async play(one: Step): Promise<void> {
    if (one === "erase") await this.#erase();
    else if (typeof one === "string") await this.#push(one);
    else await this.#claim(one);
    this.#note(await this.#row(), this.model.row);
  }

  async #push(pushed: Pushed): Promise<void> {
    const runId = this.#nextRun();
    const push = pushOf(this.#sessionId, pushed, runId);
    const [outcome] = await appendAll(ledger.database, [push], OPTIONS);
    this.#note(outcome?.kind, "stored");
    this.model.push(pushed, runId);
  }

  async #claim(asked: ClaimStep): Promise<void> {
    const { model } = this;
    const runId = this.#nextRun();
    const wanted = epochOf(asked, model.epoch);
    const state = await createTurnStore(ledger.database).readTurn({
      sessionId: this.#sessionId,
      key: `claim:${runId}`,
      upToSeq: 2n ** 62n,
      rowsMax: asked.messagesMax,
      bytesMax: 1_000_000,
      redeliver: asked.redeliver,
    });
    if (state === undefined) return this.#note(0n, model.messages);
    const next = nextStep(state, wanted);
    const expected = model.claim(asked, wanted);
    if (next.kind !== "claim") {
      return this.#note(next.kind === "refuse" ? next.error.reason : next.kind, expected);
    }
    const taken = next.arrivals.map(({ seq }) => seq);
    this.#note(taken, expected);
    const before = [model.turnSeq, model.run?.id, model.epoch, next.seen.eventSeq && model.events];
    for (const pushed of asked.between) await this.#push(pushed);
    const after = [model.turnSeq, model.run?.id, model.epoch, next.seen.eventSeq && model.events];
    const lost = next.lostRunId === "" ? [] : [newRow({ mark: { kind: "close" } })];
    const started = { eventType: "RUN_STARTED", mark: { kind: "open", runId } } as const;
    const push = newPush(this.#sessionId, {
      key: taken.length === 0 ? undefined : `claim:${runId}`,
      digest: Uint8Array.of(1),
      epoch: next.epoch,
      seen: next.seen,
      claim: next.claim,
      rows: [...lost, ...(taken.length === 0 ? [] : [newRow(started)])],
    });
    const runIds = asked.behind.map(() => this.#nextRun());
    const behind = asked.behind.map((pushed, at) =>
      pushOf(this.#sessionId, pushed, runIds[at] ?? ""),
    );
    const [outcome] = await appendAll(ledger.database, [push, ...behind], OPTIONS);
    const isMoved = before.some((value, at) => value !== after[at]);
    this.#note(outcome?.kind, isMoved ? "turn_moved" : "stored");
    if (!isMoved) model.take(taken, { step: asked, runId });
    asked.behind.forEach((pushed, at) => model.push(pushed, runIds[at] ?? ""));
  }

  async #erase(): Promise<void> {
    await eraseBatch(ledger.database, {
      sessionId: this.#sessionId,
      stream: "messages",
      recordedUpToMicros: 4_000_000_000_000_000n,
      sparesTurns: true,
    });
    this.model.erase();
  }

  async #row(): Promise<readonly unknown[]> {
    const [row] = await ledger.database.run(sql`
      select turn_seq, pending_count, waiting_since is not null as waits, has_claimed, producer_epoch,
        open_run_id, open_turn_seq from sessions where id = ${this.#sessionId}`);
    if (row === undefined) return new Model().row;
    return [
      BigInt(String(row["turn_seq"])),
      Number(row["pending_count"]),
      row["waits"],
      row["has_claimed"],
      row["producer_epoch"] === null ? undefined : BigInt(String(row["producer_epoch"])),
      row["open_run_id"] ?? undefined,
      row["open_turn_seq"] === null ? undefined : BigInt(String(row["open_turn_seq"])),
    ];
  }

  #note(found: unknown, expected: unknown): void {
    this.found.push(found);
    this.expected.push(expected);
  }

  #nextRun(): string {
    return `r${(this.#runs += 1)}`;
  }
}

test("pushes, claims, take-overs, ends and erasures leave the state of the model", async () => {
  let sessions = 0;
  const seed = process.env["SEED"];
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const played = new Played(`s${(sessions += 1)}`);
      for (const one of steps) {
        await played.play(one);
        expect(played.found).toEqual(played.expected);
      }
    }),
    {
      numRuns: Number(process.env["PROPERTY_RUNS"] ?? 60),
      examples: EXAMPLES.map((steps): [Step[]] => [[...steps]]),
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    },
  );
});

test("a claim reads only its session, also with a plan made for almost empty tables", async () => {
  const client = useSql(ledger.url, 1);
  const read = (s: string) => (on: postgres.TransactionSql) => {
    const claims = JSON.stringify([{ n: 0, s, k: "claim:r", u: 9, r: 10, b: 1, a: true }]);
    return on`select * from ledger_read_turns(${claims}::text::json)`;
  };
  for (const id of ["plan-first", "plan-second"]) {
    await client`insert into sessions (id, open_turn_seq, created_at, updated_at) values (${id}, 0, now(), now())`;
    await appendAll(ledger.database, [newPush(id), newPush(id, { stream: "messages" })], OPTIONS);
  }
  await client.begin(read("plan-first"));
  await client`
    insert into session_messages (session_id, seq, id, event_type, payload, created_at, recorded_at)
    select 'many-' || n, 1, gen_random_uuid(), 'user', 'hi', now(), now() from generate_series(1, 5000) n`;
  await client`
    insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
    select 'many-' || n, 1, gen_random_uuid(), 'RAW', '{}', now(), now() from generate_series(1, 5000) n`;
  for (const table of ["sessions", "session_messages", "session_events"]) {
    const counts = await countsOf(client, table, read("plan-second"));
    expect(counts.seqScans).toBe(0);
    expect(counts.rowsByIndex).toBeLessThan(10);
  }
});

test("claims that are read in one statement each get the state of their own session", async () => {
  const turns = createTurnStore(ledger.database);
  await ledger.database.run(sql`
    insert into sessions (id, message_seq, pending_count, created_at, updated_at)
    select 'shared-' || n, n, n, now(), now() from generate_series(1, 40) n`);
  await ledger.database.run(sql`
    insert into session_messages (session_id, seq, id, event_type, payload, created_at, recorded_at)
    select 'shared-' || n, m, gen_random_uuid(), 'user', n || '/' || m, now(), now()
    from generate_series(1, 40) n, generate_series(1, n) m`);
  const limits = { upToSeq: 30n, rowsMax: 25, bytesMax: 1_000_000, redeliver: true };
  const read = (n: number) => turns.readTurn({ sessionId: `shared-${n}`, key: "k", ...limits });
  const numbers = Array.from({ length: 42 }, (_, at) => at);
  const states = await Promise.all(numbers.map(read));
  const found = states.map((state) => state?.arrivals.map(({ payload }) => payload));
  expect(found).toEqual(
    numbers.map((n) =>
      n === 0 || n === 41
        ? undefined
        : Array.from({ length: Math.min(n, 25) }, (_, at) => `${n}/${at + 1}`),
    ),
  );
  expect(states.map((state) => state?.pending)).toEqual(
    numbers.map((n) => (n === 41 ? undefined : n || undefined)),
  );
});
