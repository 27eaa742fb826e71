/**
 * Every commit and deletion is announced once the transport works, in any order of sent, failed and slow
 * texts. At most one text is on its way, and none begins before the interval of the last one is over.
 *
 * Method: the transport keeps a text until a step takes or refuses it, and time passes by steps. A taken
 * text counts from the moment when it was handed over: it cannot contain later commits.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  ANNOUNCE_INTERVAL_MS,
  Notifier,
  decodeAnnouncement,
} from "../../src/live/hints/notifier.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { lastSeqOf, type StoredRow } from "../../src/store/rows.ts";
import { properties } from "../support/random.ts";
import { ManualTimers, settled, SlowTable } from "../support/slow-table.ts";

const RUNS = properties({ runs: 300 });
const SESSIONS = ["a", "b", "c", "d"];

type Step =
  | { kind: "commit"; sessions: readonly number[]; messages: boolean }
  | { kind: "delete"; session: number }
  | { kind: "taken" | "refused" | "time" };

const session = fc.nat({ max: SESSIONS.length - 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("commit" as const),
      sessions: fc.array(session, { maxLength: 5 }),
      messages: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("delete" as const), session }) },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constantFrom("taken" as const, "refused", "time") }),
  },
);

class World {
  readonly timers = new ManualTimers();
  readonly table = new SlowTable();
  readonly onTheirWay: {
    readonly texts: readonly string[];
    readonly handedOver: number;
    done: Settle;
  }[] = [];
  /** The last change of each session and kind of news, and the last one that was announced. */
  readonly happened = new Map<string, { readonly at: number; readonly seq: bigint }>();
  readonly told = new Map<string, bigint>();
  toldAnythingAt = -1;
  mostOnTheirWay = 0;
  tooSoon = 0;
  readonly notifier: Notifier;
  #now = 0;

  constructor() {
    this.notifier = new Notifier({
      from: "me",
      wants: () => true,
      send: (messages) => this.#send(messages.map(({ text }) => text)),
      onSent: () => undefined,
      timers: this.timers,
      log: createLogTo({ write: () => undefined }, "silent"),
    });
  }

  #send(texts: readonly string[]): Promise<void> {
    // The interval of this one has begun; that of the last one must be over.
    const intervals = this.timers.pending.filter(({ delayMs }) => delayMs === ANNOUNCE_INTERVAL_MS);
    if (intervals.length > 1) this.tooSoon += 1;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.onTheirWay.push({ texts, handedOver: this.#now, done: { resolve, reject } });
    this.mostOnTheirWay = Math.max(this.mostOnTheirWay, this.onTheirWay.length);
    return promise;
  }

  run(one: Step): void {
    this.#now += 1;
    switch (one.kind) {
      case "commit": {
        const rows = one.sessions.map((at): StoredRow => {
          const id = SESSIONS[at] ?? "a";
          return one.messages ? this.table.message(id) : this.table.event(id, { eventCount: 2 });
        });
        for (const row of rows) this.#happens(`${row.sessionId} ${row.stream}`, lastSeqOf(row));
        return this.notifier.announceCommit(rows);
      }
      case "delete": {
        const id = SESSIONS[one.session] ?? "a";
        this.#happens(`${id} deleted`, 1n);
        return this.notifier.announceDelete(id);
      }
      case "taken":
        return this.take();
      case "refused":
        return this.onTheirWay.shift()?.done.reject(new Error("the transport is down"));
      case "time":
        return this.timers.fireAll();
    }
  }

  take(): void {
    const sent = this.onTheirWay.shift();
    if (sent === undefined) return;
    for (const text of sent.texts) {
      const { sessions } = decodeAnnouncement(text);
      if (sessions === "any") this.toldAnythingAt = Math.max(this.toldAnythingAt, sent.handedOver);
      else
        for (const [id, { messageSeq, eventSeq, deleted }] of sessions) {
          this.#tell(`${id} messages`, messageSeq);
          this.#tell(`${id} events`, eventSeq);
          this.#tell(`${id} deleted`, deleted ? 1n : 0n);
        }
    }
    sent.done.resolve();
  }

  #happens(what: string, seq: bigint): void {
    this.happened.set(what, { at: this.#now, seq });
  }

  #tell(what: string, seq: bigint): void {
    if (seq > (this.told.get(what) ?? 0n)) this.told.set(what, seq);
  }

  /** The changes that were not announced, or announced with too high a number. */
  untold(): readonly string[] {
    const news = [...this.happened].filter(
      ([what, { at, seq }]) => this.toldAnythingAt < at && this.told.get(what) !== seq,
    );
    const lies = [...this.told].filter(([what, seq]) => seq > (this.happened.get(what)?.seq ?? 0n));
    return [...news, ...lies].map(([what]) => what);
  }
}

interface Settle {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

test("every commit and deletion is announced, one text at a time", async () => {
  const property = fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (all) => {
    const world = new World();
    for (const one of all) {
      world.run(one);
      await settled();
    }
    for (let round = 0; round < 6; round += 1) {
      world.take();
      await settled();
      world.timers.fireAll();
      await settled();
    }
    expect(world.untold()).toEqual([]);
    expect(world.mostOnTheirWay).toBeLessThanOrEqual(1);
    expect(world.tooSoon).toBe(0);
    expect(world.onTheirWay).toEqual([]);
    expect(world.timers.pending).toEqual([]);
  });
  await expect(fc.assert(property, RUNS)).resolves.toBeUndefined();
});
