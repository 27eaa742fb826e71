/**
 * Whatever batches are appended, the table is what a ledger of forty lines says that handles one push
 * after the other: numbers, runs, repeated keys, reused keys, fencing, both streams, several sessions,
 * how much each of them holds and may hold.
 */
import { sql } from "drizzle-orm";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Outcome, Push, SessionLimits } from "../../src/store/rows.ts";
import {
  appendAll,
  modelOutcomesOf,
  type ModelOutcome,
  batchesOf,
  heldBy,
  newPush,
  newRow,
  useLedger,
} from "../support/ledger.ts";

interface StoredKey {
  readonly digest: number;
  readonly seq: bigint;
}

class Model {
  readonly held = { rows: 0, bytes: 0 };
  /** The number and the run of each row. */
  readonly rows: { readonly stream: string; readonly seq: bigint; readonly runId: string }[] = [];
  readonly #limits: SessionLimits;
  readonly #next = { messages: 1n, events: 1n };
  readonly #keys = new Map<string, StoredKey>();
  #epoch = -1n;
  #run = "";

  constructor(limits: SessionLimits) {
    this.#limits = limits;
  }

  push(push: Push): ModelOutcome {
    const key = push.key === undefined ? undefined : `${push.stream} ${push.key}`;
    const kept = key === undefined ? undefined : this.#keys.get(key);
    if (kept !== undefined) {
      if (kept.digest !== push.digest?.[0]) return { kind: "key_reused" };
      return { kind: "deduplicated", seq: kept.seq };
    }
    if (push.epoch !== undefined && push.epoch < this.#epoch) return { kind: "stale_epoch" };
    const rows = this.held.rows + push.rows.length;
    let run = this.#run;
    let { bytes } = this.held;
    for (const row of push.rows) {
      bytes += Buffer.byteLength(row.payload);
      if (row.stream === "messages") continue;
      if (row.eventType === "RUN_STARTED") run = row.runId;
      bytes += Buffer.byteLength(run);
      if (row.eventType === "RUN_FINISHED") run = "";
    }
    const { sessionRowsMax, sessionBytesMax } = this.#limits;
    if (rows > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
    if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
    Object.assign(this.held, { rows, bytes });
    this.#epoch = push.epoch ?? this.#epoch;
    const places = push.rows.map((row) => {
      const { stream, eventType } = row;
      const seq = this.#next[stream];
      if (stream === "events" && eventType === "RUN_STARTED") this.#run = row.runId;
      this.#next[stream] += BigInt(stream === "events" ? row.eventCount : 1);
      const place = { seq, runId: stream === "events" ? this.#run : "" };
      if (eventType === "RUN_FINISHED") this.#run = "";
      this.rows.push({ stream, ...place });
      return place;
    });
    if (key !== undefined)
      this.#keys.set(key, { digest: push.digest?.[0] ?? 0, seq: places[0]?.seq ?? 0n });
    return { kind: "stored", places };
  }
}

/** Of two limits that both say no, a batch may name the other one. */
function named(outcome: ModelOutcome): ModelOutcome | "full" {
  return outcome.kind === "full" ? "full" : outcome;
}

const mark = fc.oneof(
  { weight: 4, arbitrary: fc.constant(undefined) },
  fc.constantFrom("r1", "r2").map((runId) => ({ kind: "open", runId }) as const),
  fc.constant({ kind: "close" } as const),
);
const payload = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom("", "{}", "ünï ☃ 𝄞") },
  fc.nat(120).map((length) => "é".repeat(length)),
);
const event = fc.record({ eventCount: fc.integer({ min: 1, max: 4 }), mark, payload }).map(newRow);
const limits = fc.record({
  sessionRowsMax: fc.oneof(fc.constant(2_000_000), fc.integer({ min: 1, max: 12 })),
  sessionBytesMax: fc.oneof(fc.constant(4_294_967_296), fc.integer({ min: 1, max: 400 })),
  pendingMax: fc.constant(1_000),
});
const push = fc
  .record({
    session: fc.constantFrom("s1", "s2"),
    key: fc.option(fc.constantFrom("k1", "k2", "k3"), { nil: undefined }),
    digest: fc.constantFrom(1, 2),
    epoch: fc.option(fc.bigInt({ min: 0n, max: 3n }), { nil: undefined }),
    body: fc.oneof(
      payload.map((text) => ({ stream: "messages", rows: [newRow({ payload: text })] }) as const),
      fc.tuple(event).map((rows) => ({ stream: "events", rows }) as const),
      fc.tuple(event, event).map((rows) => ({ stream: "events", rows }) as const),
    ),
  })
  .map(
    ({ session, key, digest, epoch, body }) =>
      (prefix: string) =>
        newPush(`${prefix}${session}`, {
          ...body,
          key,
          digest: key === undefined ? undefined : Uint8Array.of(digest),
          epoch,
        }),
  );

const ledger = await useLedger();

type Row = Model["rows"][number];
const inOrder = (a: Row, b: Row): number => (printed(a) < printed(b) ? -1 : 1);
const printed = ({ stream, seq, runId }: Row): string =>
  `${stream} ${String(seq).padStart(4, "0")} ${runId}`;

async function rowsOf(sessionId: string): Promise<readonly string[]> {
  const rows = await ledger.database.run(sql`
    select 'messages' as stream, seq, '' as run from session_messages where session_id = ${sessionId}
    union all select 'events', seq, run_id from session_events where session_id = ${sessionId}`);
  return rows
    .map(({ stream, seq, run }) =>
      printed({ stream: String(stream), seq: BigInt(String(seq)), runId: String(run ?? "") }),
    )
    .toSorted();
}

test("a batch does the same as its pushes one after the other", async () => {
  let runs = 0;
  const seed = process.env["SEED"];
  await fc.assert(
    fc.asyncProperty(
      fc.array(push, { maxLength: 30 }),
      fc.integer({ min: 1, max: 8 }),
      limits,
      async (made, size, limit) => {
        const prefix = `${(runs += 1)}:`;
        const pushes = made.map((make) => make(prefix));
        const models = new Map<string, Model>();
        const expected = pushes.map((one) => {
          const model = models.get(one.sessionId) ?? new Model(limit);
          models.set(one.sessionId, model);
          return model.push(one);
        });
        const outcomes: Outcome[] = [];
        for (const batch of batchesOf(pushes, size)) {
          outcomes.push(
            ...(await appendAll(ledger.database, batch, {
              createMissing: true,
              wait: true,
              limits: limit,
            })),
          );
        }
        expect(modelOutcomesOf(outcomes, pushes).map(named)).toEqual(expected.map(named));
        for (const [sessionId, { held, rows }] of models) {
          expect(await heldBy(ledger, sessionId)).toEqual({ counted: held, found: held });
          expect(await rowsOf(sessionId)).toEqual(rows.toSorted(inOrder).map(printed));
        }
      },
    ),
    {
      numRuns: Number(process.env["PROPERTY_RUNS"] ?? 150),
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    },
  );
});

type Step = "open" | "ask" | "finished" | "interrupted" | "error" | "other";

/** As runners of the words above write: a graph asks, and its run ends as if it had finished. */
function outcomeAfter(steps: readonly Step[]): string | null {
  let [isOpen, hasAsked] = [false, false];
  let outcome: string | null = null;
  for (const step of steps) {
    if (step === "other") continue;
    if (step === "ask") hasAsked ||= isOpen;
    else if (step === "open") [isOpen, hasAsked] = [true, false];
    else {
      outcome = step === "finished" && hasAsked ? "interrupted" : step;
      [isOpen, hasAsked] = [false, false];
    }
  }
  if (!isOpen) return outcome;
  return hasAsked ? "asked" : null;
}

function stepRow(step: Step) {
  if (step === "open") return newRow({ mark: { kind: "open", runId: "run" } });
  if (step === "ask") return newRow({ mark: { kind: "ask" }, runOutcome: "asked" });
  if (step === "other") return newRow();
  return newRow({ mark: { kind: "close" }, runOutcome: step });
}

/** Only an open run ends. */
const steps = fc
  .array(fc.constantFrom<Step>("open", "ask", "finished", "interrupted", "error", "other"), {
    minLength: 1,
    maxLength: 10,
  })
  .map((all) => {
    let isOpen = false;
    return all.filter((step) => {
      if (step === "ask" || step === "other") return true;
      const isPossible = step === "open" || isOpen;
      isOpen = step === "open";
      return isPossible;
    });
  });

test("how the last run ended does not depend on the batches", async () => {
  let runs = 0;
  const seed = process.env["SEED"];
  await fc.assert(
    fc.asyncProperty(
      fc.array(steps, { minLength: 1, maxLength: 3 }),
      fc.integer({ min: 1, max: 12 }),
      fc.boolean(),
      async (sessions, size, hasChains) => {
        const prefix = `outcome-${(runs += 1)}:`;
        const pushes = sessions.flatMap((all, at) =>
          all.map((step) => newPush(`${prefix}${at}`, { rows: [stepRow(step)] })),
        );
        const options = { createMissing: true, wait: true, hasChains };
        for (const batch of batchesOf(pushes, size))
          await appendAll(ledger.database, batch, options);
        for (const [at, all] of sessions.entries()) {
          const id = `${prefix}${at}`;
          const [found] = await ledger.database.run(
            sql`select run_outcome from sessions where id = ${id}`,
          );
          expect(found?.["run_outcome"] ?? null).toBe(outcomeAfter(all));
        }
      },
    ),
    {
      numRuns: Number(process.env["PROPERTY_RUNS"] ?? 150),
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    },
  );
});
