/**
 * However streams are opened and pushed to, several in one session, beside unary pushes with and
 * without a key and an epoch, in whatever batches, again after a lost answer or after an earlier range was lost:
 * every answer, and the session in the end, is what a ledger of a few lines says that handles one after
 * the other.
 */
import * as fc from "fast-check";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import type { Push, SessionLimits, StreamRange } from "../../src/store/rows.ts";
import { openStream, type OpeningResult } from "../../src/store/streams.ts";
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
import { properties } from "../support/random.ts";

class Model {
  epoch: bigint | undefined;
  stream = 0n;
  done = 0n;
  refused = 0n;
  readonly held = { rows: 0, bytes: 0 };
  readonly #limits: SessionLimits;
  #next = 1n;
  readonly #seqs = new Map<string | undefined, bigint>();

  constructor(limits: SessionLimits) {
    this.#limits = limits;
  }

  open(wanted: bigint): OpeningResult {
    if (wanted !== 0n && wanted < (this.epoch ?? 0n))
      return { kind: "stale_epoch", highest: this.epoch ?? 0n };
    this.#raise(wanted === 0n ? (this.epoch ?? 0n) + 1n : wanted);
    this.stream += 1n;
    const { epoch = 0n, stream, done, refused } = this;
    return { kind: "opened", epoch, stream, lastClientSeq: done, refused, isCancelled: false };
  }

  push({ range, key, epoch, rows }: Push): ModelOutcome {
    const id = key ?? rows[0]?.id;
    if (key !== undefined && this.#seqs.has(key))
      return { kind: "deduplicated", seq: this.#seqs.get(key) };
    if ((range?.epoch ?? epoch ?? this.epoch ?? 0n) < (this.epoch ?? 0n))
      return { kind: "stale_epoch" };
    if (range !== undefined) {
      if (range.stream !== this.stream) return { kind: "stream_replaced" };
      if (range.lastClientSeq <= this.done)
        return { kind: "deduplicated", seq: this.#seqs.get(id) };
      if (range.firstClientSeq > this.done + 1n) return { kind: "gap" };
    }
    const full = this.#add(rows);
    if (full !== undefined) return full;
    if (range !== undefined) {
      this.done = range.lastClientSeq;
      this.refused += BigInt(range.refused);
    } else if (epoch !== undefined) this.#raise(epoch);
    const places = rows.map((row) => ({
      seq: this.#take(row.stream === "events" ? row.eventCount : 1),
      runId: "",
    }));
    if (id !== undefined) this.#seqs.set(id, places[0]?.seq ?? 0n);
    return { kind: "stored", places };
  }

  /** Nothing adds nothing, however much there is. */
  #add(rows: Push["rows"]): ModelOutcome | undefined {
    const count = this.held.rows + rows.length;
    const bytes = rows.reduce((sum, row) => sum + Buffer.byteLength(row.payload), this.held.bytes);
    const { sessionRowsMax, sessionBytesMax } = this.#limits;
    if (count > sessionRowsMax) return { kind: "full", of: "rows", max: sessionRowsMax };
    if (bytes > sessionBytesMax) return { kind: "full", of: "bytes", max: sessionBytesMax };
    Object.assign(this.held, { rows: count, bytes });
    return undefined;
  }

  #raise(epoch: bigint): void {
    if (epoch !== this.epoch) this.done = this.refused = 0n;
    this.epoch = epoch;
  }

  #take(numbers: number): bigint {
    const seq = this.#next;
    this.#next += BigInt(numbers);
    return seq;
  }
}

/** `of` picks one of the streams that were opened so far, from the newest backwards. */
type Step =
  | { readonly kind: "open"; readonly epoch: bigint }
  | { readonly kind: "unary"; readonly key: string | undefined; readonly epoch: bigint | undefined }
  | { readonly kind: "range"; readonly of: number; readonly counts: readonly number[] }
  | { readonly kind: "refused"; readonly of: number; readonly numbers: number }
  | { readonly kind: "again"; readonly of: number; readonly back: number }
  /** A range that is lost on the way: those after it find a gap. */
  | { readonly kind: "lost"; readonly of: number };

const of = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(3));
const kind = <K extends string>(name: K) => fc.constant(name);
const epoch = fc.bigInt({ min: 0n, max: 4n });
const counts = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 3 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ kind: kind("open"), epoch }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kind("unary"),
      key: fc.option(fc.constantFrom("k1", "k2"), { nil: undefined }),
      epoch: fc.option(epoch, { nil: undefined }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: kind("range"), of, counts }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: kind("refused"), of, numbers: fc.constantFrom(1, 2) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: kind("again"), of, back: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ kind: kind("lost"), of }) },
);

/** A client of one stream: it numbers on from what opening said and does not wait for answers. */
interface Client {
  readonly epoch: bigint;
  readonly stream: bigint;
  next: bigint;
  readonly sent: Push[];
}

type Act =
  | { readonly epoch: bigint; readonly expected: OpeningResult }
  | { readonly push: Push; readonly expected: ModelOutcome };

/** What the steps come to, and what is to become of it. */
function played(
  steps: readonly Step[],
  { sessionId, limits }: { readonly sessionId: string; readonly limits: SessionLimits },
): { readonly acts: readonly Act[]; readonly model: Model } {
  const model = new Model(limits);
  const clients: Client[] = [];
  const acts = steps.flatMap((one): Act[] => {
    if (one.kind === "open") {
      const expected = model.open(one.epoch);
      if (expected.kind === "opened") {
        const { epoch: given, stream, lastClientSeq } = expected;
        clients.unshift({ epoch: given, stream, next: lastClientSeq + 1n, sent: [] });
      }
      return [{ epoch: one.epoch, expected }];
    }
    const push = pushOf(one, sessionId, clients);
    return push === undefined ? [] : [{ push, expected: model.push(push) }];
  });
  return { acts, model };
}

function pushOf(
  one: Exclude<Step, { readonly kind: "open" }>,
  sessionId: string,
  clients: readonly Client[],
): Push | undefined {
  if (one.kind === "unary") return newPush(sessionId, { key: one.key, epoch: one.epoch });
  const client = clients[one.of % Math.max(1, clients.length)];
  if (client === undefined) return undefined;
  if (one.kind === "again") return client.sent.at(-1 - one.back);
  const eventCounts = one.kind === "range" ? one.counts : [];
  const events = eventCounts.reduce((sum, count) => sum + count, 0);
  const range: StreamRange = {
    epoch: client.epoch,
    stream: client.stream,
    firstClientSeq: client.next,
    lastClientSeq: client.next + BigInt(one.kind === "refused" ? one.numbers : events || 1) - 1n,
    refused: one.kind === "refused" ? one.numbers : 0,
  };
  client.next = range.lastClientSeq + 1n;
  if (one.kind === "lost") return undefined;
  const rows = eventCounts.map((eventCount) => newRow({ eventCount }));
  const push = newPush(sessionId, { range, rows });
  client.sent.push(push);
  return push;
}

const ledger = await useLedger();

interface Played {
  readonly sessionId: string;
  /** Of a batch. */
  readonly size: number;
  readonly limits: SessionLimits;
}

/** Pushes between two openings go in batches. */
async function answersTo(
  acts: readonly Act[],
  { sessionId, size, limits }: Played,
): Promise<readonly (OpeningResult | ModelOutcome)[]> {
  const options = { createMissing: true, wait: true, limits };
  const answers: (OpeningResult | ModelOutcome)[] = [];
  let waiting: Push[] = [];
  const flush = async (): Promise<void> => {
    for (const batch of batchesOf(waiting, size))
      answers.push(...modelOutcomesOf(await appendAll(ledger.database, batch, options), batch));
    waiting = [];
  };
  for (const act of acts) {
    if ("push" in act) waiting.push(act.push);
    else {
      await flush();
      answers.push(await openStream(ledger.database, { sessionId, epoch: act.epoch }, options));
    }
  }
  await flush();
  return answers;
}

test("batches of streams do the same as pushes and openings one after the other", async () => {
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 40 }),
      fc.integer({ min: 1, max: 8 }),
      fc.oneof(fc.constant(2_000_000), fc.integer({ min: 1, max: 20 })),
      async (steps, size, sessionRowsMax) => {
        const sessionId = `s${(runs += 1)}`;
        // The first makes the session.
        const limits = { sessionRowsMax, sessionBytesMax: 4_294_967_296, pendingMax: 1_000 };
        const opening = { kind: "open", epoch: 0n } as const;
        const { acts, model } = played([opening, ...steps], { sessionId, limits });
        const answers = await answersTo(acts, { sessionId, size, limits });
        expect(answers).toEqual(acts.map(({ expected }) => expected));
        const [row] = await ledger.database.run(sql`
          select producer_epoch::text as epoch, producer_stream::text as stream,
            producer_client_seq::text as done, producer_refused::text as refused
          from sessions where id = ${sessionId}`);
        expect(await heldBy(ledger, sessionId)).toEqual({ counted: model.held, found: model.held });
        const { epoch: highest, stream, done: last, refused } = model;
        expect(row).toEqual({
          epoch: `${highest}`,
          stream: `${stream}`,
          done: `${last}`,
          refused: `${refused}`,
        });
      },
    ),
    properties({ runs: 200 }),
  );
});
