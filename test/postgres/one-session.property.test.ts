/**
 * On a sharded engine a call of the store has one session (ENGINE=citus). Whatever is pushed and claimed, callers
 * get the same answers as from batches of many sessions, and the tables have the same rows and counters.
 *
 * The same pushes go to two ingests over one database, each with its own sessions. Waves of pushes are sent at
 * once, so that they share batches; small batches and limits make refusals, repeats and later tries.
 */
import * as fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { nextStep } from "../../src/handlers/turns/next-step.ts";
import { Ingest } from "../../src/ingest/ingest.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { append } from "../../src/store/append.ts";
import { createDatabase, type Database, sql } from "../../src/store/database.ts";
import type { Push } from "../../src/store/rows.ts";
import { openStream } from "../../src/store/streams.ts";
import { createTurnStore } from "../../src/store/turns.ts";
import { newPush, newRow, useLedger } from "../support/ledger.ts";

const SESSIONS = ["s1", "s2", "s3", "s4"];
/** Batches in flight of the ingest with one session a call. */
const CALLS_MAX = 3;
const LIMITS = { sessionRowsMax: 14, sessionBytesMax: 500, pendingMax: 3 };

interface Claim {
  readonly kind: "claim";
  readonly session: string;
  readonly messagesMax: number;
  readonly redeliver: boolean;
}
/** Makes the push of a session. */
type Pushed = (prefix: string) => Push;
type Wave = readonly (Pushed | Claim)[];

const mark = fc.oneof(
  { weight: 4, arbitrary: fc.constant(undefined) },
  fc.constantFrom("r1", "r2").map((runId) => ({ kind: "open", runId }) as const),
  fc.constant({ kind: "close" } as const),
);
const payload = fc.oneof(
  fc.constantFrom("", "{}", "ünï ☃ 𝄞"),
  fc.nat(60).map((n) => "é".repeat(n)),
);
const event = fc.record({ eventCount: fc.integer({ min: 1, max: 3 }), mark, payload }).map(newRow);
const message = fc
  .record({ eventType: fc.constantFrom("user", "user", "assistant"), payload })
  .map(newRow);
const session = fc.constantFrom(...SESSIONS);
const pushed: fc.Arbitrary<Pushed> = fc
  .record({
    session,
    key: fc.option(fc.constantFrom("k1", "k2", "k3"), { nil: undefined }),
    digest: fc.constantFrom(1, 2),
    epoch: fc.option(fc.bigInt({ min: 0n, max: 4n }), { nil: undefined }),
    body: fc.oneof(
      fc.tuple(message).map((rows) => ({ stream: "messages", rows }) as const),
      fc.tuple(event).map((rows) => ({ stream: "events", rows }) as const),
      fc.tuple(event, event).map((rows) => ({ stream: "events", rows }) as const),
    ),
  })
  .map(({ session: id, key, digest, epoch, body }) => (prefix) => {
    const keyDigest = key === undefined ? undefined : Uint8Array.of(digest);
    return newPush(`${prefix}${id}`, { ...body, key, digest: keyDigest, epoch });
  });
const claim: fc.Arbitrary<Claim> = fc.record({
  kind: fc.constant("claim"),
  session,
  messagesMax: fc.integer({ min: 1, max: 3 }),
  redeliver: fc.boolean(),
});
const wave = fc.array(fc.oneof({ weight: 5, arbitrary: pushed }, { weight: 1, arbitrary: claim }), {
  maxLength: 16,
});

const ledger = await useLedger();
const [plain, sharded] = [await open({ isSharded: false }), await open({ isSharded: true })];

async function open(engine: { readonly isSharded: boolean }): Promise<Database> {
  const limits = { connectionsMax: CALLS_MAX, statementTimeoutMs: 5_000, lockTimeoutMs: 500 };
  const database = createDatabase({ url: () => ledger.url, ...limits, ...engine });
  await database.start();
  afterAll(() => database.stop());
  return database;
}

/** One of the two ledgers, whose sessions begin with its name. */
class Side {
  readonly #prefix: string;
  readonly #database: Database;
  readonly #ingest: Ingest;
  /** The sessions of each call. */
  readonly calls: number[] = [];
  readonly answers: unknown[] = [];
  #runs = 0;

  constructor(prefix: string, database: Database, rowsMax: number) {
    this.#prefix = prefix;
    this.#database = database;
    const options = { createMissing: true };
    this.#ingest = new Ingest(
      {
        writer: {
          sessionCallsMax: database.sessionCallsMax,
          append: (pushes, { wait }) => {
            this.calls.push(new Set(pushes.map(({ sessionId }) => sessionId)).size);
            return append(database, pushes, { ...options, wait, limits: LIMITS });
          },
          openStream: (request, { wait }) => openStream(database, request, { ...options, wait }),
        },
        publish: () => undefined,
        clock: systemClock,
        metrics: createMetrics(),
      },
      {
        batch: { rowsMax, bytesMax: 1_000_000 },
        queueRowsMax: 1_000,
        queueBytesMax: 10_000_000,
      },
    );
  }

  /** The claims are made for the state before the wave, and pushed with it. */
  async play(steps: Wave): Promise<void> {
    const turns = createTurnStore(this.#database);
    const pushes = await Promise.all(
      steps.map(async (step) => {
        if (typeof step === "function") return step(this.#prefix);
        const runId = `claimed-${(this.#runs += 1)}`;
        const sessionId = `${this.#prefix}${step.session}`;
        const state = await turns.readTurn({
          sessionId,
          key: `claim:${runId}`,
          upToSeq: 2n ** 62n,
          rowsMax: step.messagesMax,
          bytesMax: 1_000_000,
          redeliver: step.redeliver,
        });
        const epoch = (state?.epoch ?? 0n) + 1n;
        const next = state && nextStep(state, epoch);
        if (next?.kind !== "claim") return next?.kind ?? "no session";
        const lost = next.lostRunId === "" ? [] : [newRow({ mark: { kind: "close" } })];
        const isTurn = next.arrivals.length > 0;
        const start = { eventType: "RUN_STARTED", mark: { kind: "open", runId } } as const;
        return newPush(sessionId, {
          key: isTurn ? `claim:${runId}` : undefined,
          digest: Uint8Array.of(1),
          epoch: next.epoch,
          seen: next.seen,
          claim: next.claim,
          rows: [...lost, ...(isTurn ? [newRow(start)] : [])],
        });
      }),
    );
    const answers = withoutRepeats(pushes).map((push) => this.#answerOf(push));
    this.answers.push(await Promise.all(answers));
  }

  /** Or the reason why no claim was made. */
  async #answerOf(push: Push | string): Promise<unknown> {
    if (typeof push === "string") return push;
    try {
      const { rows, deduplicated } = await this.#ingest.push(push, () => false);
      return { places: rows.map(({ seq }) => seq), deduplicated };
    } catch (error) {
      return ServiceError.from(error).reason;
    }
  }

  async rows(): Promise<readonly unknown[]> {
    await this.#ingest.stop();
    const own = sql`like ${`${this.#prefix}%`}`;
    const from = sql`substr(session_id, ${this.#prefix.length + 1}::int) as session`;
    return Promise.all([
      ledger.database.run(sql`
        select substr(id, ${this.#prefix.length + 1}::int) as session, message_seq, event_seq,
          producer_epoch, open_run_id, turn_seq, open_turn_seq, has_claimed, pending_count,
          waiting_since is not null as waits, row_count, payload_bytes
        from sessions where id ${own} order by id`),
      ledger.database.run(sql`
        select ${from}, seq, event_type, payload, idempotency_key from session_messages
        where session_id ${own} order by session_id, seq`),
      ledger.database.run(sql`
        select ${from}, seq, event_type, payload, idempotency_key, event_count, run_id from session_events
        where session_id ${own} order by session_id, seq`),
    ]);
  }
}

/** A repeat that waits in the queue gets the answer of the first one: the store never has it. */
function withoutRepeats(pushes: readonly (Push | string)[]): readonly (Push | string)[] {
  const found = new Set<string>();
  return pushes.filter((push) => {
    if (typeof push === "string" || push.key === undefined) return true;
    const { sessionId, stream, key, digest } = push;
    const name = `${sessionId} ${stream} ${key} ${digest?.join()}`;
    return !found.has(name) && found.add(name);
  });
}

test("calls of one session each do the same as a call of many sessions", async () => {
  let runs = 0;
  const counts = { batches: 0, alone: 0 };
  const seed = process.env["SEED"];
  await fc.assert(
    fc.asyncProperty(
      fc.array(wave, { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 2, max: 24 }),
      async (waves, rowsMax) => {
        runs += 1;
        const together = new Side(`${runs}a:`, plain, rowsMax);
        const alone = new Side(`${runs}b:`, sharded, rowsMax);
        for (const steps of waves) {
          await together.play(steps);
          await alone.play(steps);
        }
        expect(alone.answers).toEqual(together.answers);
        expect(await alone.rows()).toEqual(await together.rows());
        expect(alone.calls.every((sessions) => sessions === 1)).toBe(true);
        counts.alone += alone.calls.length;
        counts.batches += together.calls.filter((sessions) => sessions > 1).length;
      },
    ),
    {
      numRuns: Number(process.env["PROPERTY_RUNS"] ?? 60),
      ...(seed === undefined ? {} : { seed: Number(seed) }),
    },
  );
  // Otherwise both would have been called in the same way.
  expect(counts.batches).toBeGreaterThan(runs);
});
