/**
 * The spool keeps records up to its limit, in order, and counts every dropped one. Method: random
 * offers and settlements against a model that remembers every record and its fate. After each step
 * the counts are those of the model, the limit holds, and the queues hold the accepted records.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SpoolQueue } from "@session-ledger/runner/internal/spool/queue";
import {
  type Counts,
  eventRecord,
  type Producer,
  messageRecord,
  newProducer,
  sendableUpTo,
  Spool,
} from "@session-ledger/runner/internal/spool/spool";
import { properties } from "../../../test/support/random.ts";

const BYTES_MAX = 8_192;

function message(payload: string) {
  return { eventType: "user", payload, key: "k", sentAtMicros: undefined, sender: undefined };
}

type Step =
  | { readonly kind: "event" | "message"; readonly bytes: number }
  | { readonly kind: "settleEvents"; readonly count: number; readonly refused: number }
  | { readonly kind: "settleMessage"; readonly fate: "committed" | "refused" }
  | { readonly kind: "lose" };

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant("event"), bytes: fc.nat(900) }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant("message"), bytes: fc.nat(900) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("settleEvents"),
        count: fc.nat(20),
        refused: fc.nat(3),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("settleMessage"),
        fate: fc.constantFrom("committed", "refused"),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("lose") }) },
  ),
  { maxLength: 200 },
);

/** The expected fate of every offered record. */
class Model {
  offered = 0;
  committed = 0;
  refused = 0;
  dropped = 0;
  pending: string[] = [];

  get counts(): Counts {
    const { offered, committed, refused, dropped, pending } = this;
    const accepted = committed + refused + pending.length + this.lostLater;
    if (committed + refused + dropped + pending.length !== offered)
      throw new Error("a record is gone");
    return { accepted, committed, refused, dropped, pending: pending.length };
  }
  lostLater = 0;
}

function take(model: Model, count: number, fate: "committed" | "refused" | "dropped"): void {
  const taken = model.pending.splice(0, count).length;
  model[fate] += taken;
  if (fate === "dropped") model.lostLater += taken;
}

test("counts are exact, the limit holds, and accepted records stay", () => {
  fc.assert(
    fc.property(steps, (sequence) => {
      const spool = new Spool({ bytesMax: BYTES_MAX });
      const lane = newProducer();
      const events = new Model();
      const messages = new Model();
      let at = 0;
      for (const step of sequence) {
        at += 1;
        switch (step.kind) {
          case "event":
          case "message": {
            const model = step.kind === "event" ? events : messages;
            const payload = String(at).padEnd(step.bytes, "x");
            model.offered += 1;
            const isTaken =
              step.kind === "event"
                ? spool.offerEvent(lane, payload, BigInt(at))
                : spool.offerMessage(lane, message(payload), BigInt(at));
            if (isTaken) model.pending.push(payload);
            else model.dropped += 1;
            break;
          }
          case "settleEvents": {
            const count = Math.min(step.count, lane.events.length);
            const refused = Math.min(step.refused, count);
            const number = lane.events.frontNumber + BigInt(count) - 1n;
            spool.settleEvents(lane, number, { refused });
            take(events, refused, "refused");
            take(events, count - refused, "committed");
            break;
          }
          case "settleMessage":
            spool.settleMessage(lane, step.fate);
            take(messages, 1, step.fate);
            break;
          case "lose":
            spool.dropProducer(lane);
            take(events, events.pending.length, "dropped");
            take(messages, messages.pending.length, "dropped");
        }
        expect(spool.events).toEqual(events.counts);
        expect(spool.messages).toEqual(messages.counts);
        expect(spool.pendingBytes).toBeLessThanOrEqual(BYTES_MAX);
        expect(payloadsOf(lane)).toEqual([events.pending, messages.pending]);
      }
    }),
    properties({ runs: 300 }),
  );
});

function payloadsOf({ events, messages }: Producer): readonly (readonly string[])[] {
  return [listOf(events), listOf(messages)].map((all) => all.map(({ payload }) => payload));
}

function listOf<T>(queue: SpoolQueue<T>): readonly T[] {
  const all: T[] = [];
  for (let at = queue.frontNumber; at <= queue.lastNumber; at += 1n) {
    const record = queue.at(at);
    if (record !== undefined) all.push(record);
  }
  return all;
}

const LARGE = "x".repeat(500);

function flood(spool: Spool, lane: Producer): number {
  let accepted = 0;
  while (spool.offerEvent(lane, LARGE, 7n)) accepted += 1;
  return accepted;
}

describe("a full spool", () => {
  test("keeps room for messages under any number of events", () => {
    const spool = new Spool({ bytesMax: BYTES_MAX });
    const lane = newProducer();
    flood(spool, lane);
    expect(spool.offerMessage(lane, message(LARGE), 8n)).toBe(true);
    expect(spool.events.dropped).toBe(1);
    expect(spool.messages.dropped).toBe(0);
  });

  test("drops records until enough room is free, and then reports the missing ones once", () => {
    const spool = new Spool({ bytesMax: BYTES_MAX });
    const lane = newProducer();
    const accepted = flood(spool, lane);
    expect(spool.offerEvent(lane, "small enough", 9n)).toBe(false);
    expect(spool.takeGap()).toBeUndefined();
    spool.settleEvents(lane, 1n, { refused: 0 });
    expect(spool.offerEvent(lane, "small enough", 10n)).toBe(false);
    expect(spool.takeGap()).toBeUndefined();
    spool.settleEvents(lane, BigInt(accepted), { refused: 0 });
    expect(spool.takeGap()).toEqual({ events: 3, messages: 0, sinceMicros: 7n });
    expect(spool.takeGap()).toBeUndefined();
    expect(spool.offerEvent(lane, LARGE, 11n)).toBe(true);
  });

  test("accepts records again after it has dropped those of an earlier process", () => {
    const spool = new Spool({ bytesMax: BYTES_MAX });
    const left = newProducer({ isLeft: true });
    flood(spool, left);
    const lane = newProducer();
    expect(spool.offerEvent(lane, LARGE, 1n)).toBe(false);
    spool.dropProducer(left);
    expect(spool.takeGap()).toMatchObject({ events: 2 });
    expect(spool.offerEvent(lane, LARGE, 2n)).toBe(true);
  });

  test("can hold a text up to its size, which is smaller for an event than for a message", () => {
    const spool = new Spool({ bytesMax: BYTES_MAX });
    const [eventMax, messageMax] = [(BYTES_MAX * 7) / 8 - 128, BYTES_MAX - 128];
    for (const [kind, max] of [
      ["events", eventMax],
      ["messages", messageMax],
    ] as const) {
      expect(spool.canHold(kind, "x".repeat(max))).toBe(true);
      expect(spool.canHold(kind, "x".repeat(max + 1))).toBe(false);
      expect(spool.canHold(kind, "\u20ac".repeat(Math.floor(max / 3)))).toBe(true);
      expect(spool.canHold(kind, "\u20ac".repeat(Math.floor(max / 3) + 1))).toBe(false);
    }
    expect(spool.offerEvent(newProducer(), "x".repeat(eventMax), 1n)).toBe(true);
  });

  test("does not count its own marks", () => {
    const spool = new Spool({ bytesMax: BYTES_MAX });
    const lane = newProducer();
    spool.addMark(lane, "mark", 1n);
    expect(spool.events.pending).toBe(0);
    spool.settleEvents(lane, 1n, { refused: 0 });
    expect(spool.events).toEqual({ accepted: 0, committed: 0, refused: 0, dropped: 0, pending: 0 });
    expect(spool.pendingBytes).toBe(0);
  });

  test("takes all records of a file above the limit, and new ones only afterwards", () => {
    const left = newProducer();
    for (let at = 0; at < 40; at += 1) {
      left.events.push({ payload: LARGE, atMicros: 1n, bytes: LARGE.length, isMark: at === 0 });
    }
    const spool = new Spool({ bytesMax: BYTES_MAX });
    spool.adopt(left);
    expect(spool.events.pending).toBe(39);
    expect(spool.pendingBytes).toBeGreaterThan(BYTES_MAX);
    const lane = newProducer();
    expect(spool.offerEvent(lane, "new", 2n)).toBe(false);
    spool.settleEvents(left, 40n, { refused: 0 });
    expect(spool.offerEvent(lane, "new", 3n)).toBe(true);
  });
});

test("a queue finds each record by its number while others are removed", () => {
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fc.constant("push"), fc.nat(5)), { maxLength: 300 }),
      fc.bigInt({ min: 1n, max: 2n ** 60n }),
      (moves, first) => {
        const queue = new SpoolQueue<bigint>();
        queue.skipTo(first);
        const model: bigint[] = [];
        let next = first;
        for (const move of moves) {
          const front = model[0] ?? next;
          const isPush = move === "push";
          const got = isPush ? [] : queue.takeUpTo(front + BigInt(move) - 1n);
          expect(got).toEqual(isPush ? [] : model.splice(0, move));
          if (isPush) {
            queue.push(next);
            model.push(next);
            next += 1n;
          }
          const shown = Array.from({ length: queue.length }, (_, at) =>
            queue.at(queue.frontNumber + BigInt(at)),
          );
          expect(shown).toEqual(model);
          expect([...queue]).toEqual(model);
          expect([queue.frontNumber, queue.lastNumber]).toEqual([model[0] ?? next, next - 1n]);
          expect([queue.at(queue.frontNumber - 1n), queue.at(next)]).toEqual([
            undefined,
            undefined,
          ]);
        }
      },
    ),
    properties({ runs: 200 }),
  );
});

test("an event of a lane with a file waits for the messages that it completes, and for those not derived yet", () => {
  const lane = newProducer();
  for (let at = 0; at < 9; at += 1) lane.events.push(eventRecord("{}", 0n, false));
  lane.messages.push(messageRecord(message("a")));
  lane.messages.push(messageRecord({ ...message("a"), after: 3n }));
  lane.messages.push(messageRecord({ ...message("a"), after: 5n }));
  lane.firstUnderived = 8n;
  expect(sendableUpTo(lane)).toBe(9n);
  const limits = [0n, 1n, 2n, 3n].map((inFile) => {
    lane.messagesInFile = inFile;
    return sendableUpTo(lane);
  });
  expect(limits).toEqual([2n, 2n, 4n, 7n]);
  lane.firstUnderived = undefined;
  expect(sendableUpTo(lane)).toBe(9n);
});
