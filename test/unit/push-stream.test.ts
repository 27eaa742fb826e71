/** One push stream, with an ingest, a reader and timers under the control of the test. */
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { OpenGroups } from "../../src/handlers/push-stream/open-groups.ts";
import {
  type AllowSession,
  createPushSessionEvents,
  type PushStreamOptions,
} from "../../src/handlers/push-stream/push-streams.ts";
import type { Acknowledged } from "../../src/ingest/queue.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { sessionNotFound } from "../../src/store/failure.ts";
import { lastSeqOf, type Push, type StoredRow } from "../../src/store/rows.ts";
import { fragments, type RawEventFields, whole } from "../support/push-stream.ts";

type Frame = MessageInitShape<typeof PushSessionEventsRequestSchema>["frame"];

const BAD: RawEventFields = { payload: "{}" };
const OPENED = { epoch: 2n, stream: 5n, lastClientSeq: 10n, refused: 0n, isCancelled: false };

class Bench implements Clock {
  readonly pushes: Push[] = [];
  readonly said: PushSessionEventsResponse["frame"][] = [];
  readonly groups = new OpenGroups();
  /** How the call ended; "OK" or the reason. */
  ended: string | undefined;
  /** Whether the stream reads its caller. */
  listens = false;
  unsentBytes = 0;
  bytesASend = 0;
  /** The charged bytes, and the wait that the next charge causes. */
  readonly charged: number[] = [];
  waitMs = 0;
  nowMs = 1_000;
  /** The time that passes with each reading of the clock. */
  msALook = 0;
  readonly timers: { readonly delayMs: number; readonly action: () => void }[] = [];
  readonly #settles: PromiseWithResolvers<Acknowledged>[] = [];
  #seq = 1n;
  readonly call;

  /** The openings that ingest got. */
  opened = 0;

  constructor(options: Partial<PushStreamOptions> = {}, allow: AllowSession = () => undefined) {
    const pushSessionEvents = createPushSessionEvents(
      {
        ingest: {
          open: async () => {
            this.opened += 1;
            return OPENED;
          },
          push: (push) => {
            this.pushes.push(push);
            const settle = Promise.withResolvers<Acknowledged>();
            this.#settles.push(settle);
            return settle.promise;
          },
        },
        lostAfter: () => Promise.resolve(undefined),
        onCancelledRun: () => undefined,
        rates: {
          charge: (_payer, _sessionId, bytes) => {
            this.charged.push(bytes);
            return this.waitMs;
          },
        },
        groups: this.groups,
        clock: this,
        timers: {
          after: (delayMs, action) => {
            const timer = { delayMs, action };
            this.timers.push(timer);
            return () => void this.timers.splice(this.timers.indexOf(timer), 1);
          },
        },
        metrics: createMetrics(),
      },
      {
        validation: "strict",
        payloadBytesMax: 1_048_576,
        pushStreamBytesMax: 1_048_576,
        pushStreamsMax: 2,
        ...options,
      },
    );
    this.call = pushSessionEvents(this.#caller(), allow);
  }

  static async opened(options: Partial<PushStreamOptions> = {}): Promise<Bench> {
    const bench = new Bench(options);
    bench.send({ case: "open", value: { sessionId: "s" } });
    await settled();
    const answer = bench.said.shift();
    if (answer?.case !== "opened") throw new Error("the stream did not open");
    return bench;
  }

  nowMicros(): bigint {
    return 1_700_000_000_000_000n;
  }

  monotonicMs(): number {
    this.nowMs += this.msALook;
    return this.nowMs;
  }

  send(frame: Frame): void {
    const request = create(PushSessionEventsRequestSchema, frame === undefined ? {} : { frame });
    this.listens = this.call.onMessage(request);
  }

  batch(firstClientSeq: number, events: readonly RawEventFields[]): void {
    this.send({
      case: "batch",
      value: { firstClientSeq: BigInt(firstClientSeq), events: [...events] },
    });
  }

  /** Commits or refuses the oldest push under way. */
  async settle(error?: ServiceError): Promise<void> {
    const settle = this.#settles.shift();
    const push = this.pushes[this.pushes.length - this.#settles.length - 1];
    if (error !== undefined) settle?.reject(error);
    else settle?.resolve({ rows: this.#stored(push), deduplicated: false });
    await settled();
  }

  /** The reader takes all sent frames. */
  taken(): void {
    this.unsentBytes = 0;
    this.call.onDrain();
  }

  #caller() {
    const unsentBytes = (): number => this.unsentBytes;
    return {
      principal: ANONYMOUS,
      send: ({ frame }: PushSessionEventsResponse) => {
        this.said.push(frame);
        this.unsentBytes += this.bytesASend;
      },
      get unsentBytes() {
        return unsentBytes();
      },
      resume: () => {
        this.listens = true;
      },
      end: (error?: ServiceError) => {
        this.ended = error?.reason ?? "OK";
      },
    };
  }

  #stored(push: Push | undefined): readonly StoredRow[] {
    return (push?.rows ?? []).map((row) => {
      const seq = this.#seq;
      this.#seq = lastSeqOf({ ...row, seq }) + 1n;
      return { ...row, sessionId: "s", seq };
    });
  }
}

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

function rangeOf(push: Push | undefined): readonly unknown[] {
  const { range, rows = [] } = push ?? {};
  const counts = rows.map((row) => Number(lastSeqOf(row) - row.seq) + 1);
  return [range?.firstClientSeq, range?.lastClientSeq, range?.refused, counts];
}

describe("an opening", () => {
  const open: Frame = { case: "open", value: { sessionId: "s" } };

  test("of a session that is allowed at once waits for no look-up", () => {
    const asked: string[] = [];
    const bench = new Bench({}, (sessionId) => void asked.push(sessionId));
    bench.send(open);
    expect(asked).toEqual(["s"]);
    expect(bench.opened).toBe(1);
  });

  test("of an unknown session continues after the look-up", async () => {
    const looked = Promise.withResolvers<void>();
    const bench = new Bench({}, () => looked.promise);
    bench.send(open);
    await settled();
    expect(bench.listens).toBe(false);
    expect(bench.charged).toEqual([]);
    expect(bench.opened).toBe(0);
    expect(bench.call.record.sessionId).toBe("s");
    looked.resolve();
    await settled();
    expect(bench.listens).toBe(true);
    expect(bench.said.map(({ case: name }) => name)).toEqual(["opened"]);
  });

  test.each(["at once", "later"])(
    "of a foreign session ends before it begins, %s",
    async (when) => {
      const bench = new Bench({}, (sessionId) => {
        if (when === "at once") throw sessionNotFound(sessionId);
        return Promise.reject(sessionNotFound(sessionId));
      });
      bench.send(open);
      expect(bench.listens).toBe(false);
      await settled();
      expect(bench.ended).toBe("SESSION_NOT_FOUND");
      expect([bench.opened, bench.charged, bench.said]).toEqual([0, [], []]);
    },
  );

  test("does nothing when its caller leaves during the look-up", async () => {
    const looked = Promise.withResolvers<void>();
    const bench = new Bench({}, () => looked.promise);
    bench.send(open);
    bench.call.onClose(new ServiceError("cancelled", "CANCELLED", "the caller left"));
    looked.resolve();
    await settled();
    expect([bench.opened, bench.charged, bench.ended]).toEqual([0, [], undefined]);
  });

  test("without a session in its first frame is refused, and no session is looked up", () => {
    const bench = new Bench({}, () => {
      throw new Error("nobody should ask for this");
    });
    bench.send({ case: "flush", value: {} });
    expect(bench.ended).toBe("INVALID_REQUEST");
  });
});

describe("a handover", () => {
  test("waits for the previous commit, and then takes everything that closed meanwhile", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1)]);
    bench.batch(12, [whole(2)]);
    bench.batch(13, [BAD, ...fragments(["a", "b"]), whole(3)]);
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 11n, 0, [1]]]);
    expect(bench.pushes[0]?.range).toMatchObject({ epoch: 2n, stream: 5n });
    await bench.settle();
    expect(bench.pushes.slice(1).map(rangeOf)).toEqual([[12n, 16n, 1, [1, 2, 1]]]);
    await bench.settle();
    expect(bench.said.map(({ case: name }) => name)).toEqual(["refused", "committed", "committed"]);
    expect(bench.said.at(-1)).toMatchObject({ value: { lastClientSeq: 16n, lastSeq: 5n } });
  });

  test("overlaps with the previous one when much waits, and then the caller waits", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1)]);
    bench.batch(
      12,
      Array.from({ length: 600 }, (_, n) => whole(n)),
    );
    expect(bench.pushes.map(rangeOf).map(([first, last]) => [first, last])).toEqual([
      [11n, 11n],
      [12n, 267n],
    ]);
    expect(bench.listens).toBe(false);
    await bench.settle();
    await bench.settle();
    await bench.settle();
    expect(bench.pushes.map(({ range }) => range?.lastClientSeq).at(-1)).toBe(611n);
    expect(bench.listens).toBe(true);
  });

  test("of a refused event waits for the open group before it", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1), ...fragments(["a"]), BAD]);
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 11n, 0, [1]]]);
    await bench.settle();
    bench.send({ case: "flush", value: {} });
    expect(bench.pushes.slice(1).map(rangeOf)).toEqual([[12n, 13n, 1, [1]]]);
  });
});

describe("the end of a stream", () => {
  test("hands over all received events when the caller leaves, and waits for nothing", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1), ...fragments(["a", "b"])]);
    bench.call.onClose(new ServiceError("cancelled", "CANCELLED", "left"));
    expect(bench.pushes.map(rangeOf)).toEqual([
      [11n, 11n, 0, [1]],
      [12n, 13n, 0, [2]],
    ]);
    expect(bench.timers).toEqual([]);
    await bench.settle();
    await bench.settle();
    expect(bench.said).toEqual([]);
    expect(bench.ended).toBeUndefined();
  });

  test("follows a refusal of ingest, and nothing more is handed over", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1)]);
    bench.batch(12, [whole(2), ...fragments(["a"])]);
    await bench.settle(new ServiceError("overloaded", "QUEUE_FULL", "full"));
    expect(bench.ended).toBe("QUEUE_FULL");
    expect(bench.pushes).toHaveLength(1);
    expect(bench.timers).toEqual([]);
    bench.groups.close("s");
    expect(bench.pushes).toHaveLength(1);
  });

  test("reaches the older of two streams by the order of the table, whichever opens first", async () => {
    const groups = new OpenGroups();
    const fenced: string[] = [];
    const stream = (name: string, epoch: bigint, number: bigint) => ({
      sessionId: "s",
      opened: { ...OPENED, epoch, stream: number },
      closeGroup: () => undefined,
      send: () => undefined,
      fence: ({ reason }: ServiceError) => void fenced.push(`${name} ${reason}`),
    });
    const newer = stream("newer", 1n, 8n);
    expect(groups.enter(newer)).toBe(true);
    expect(groups.enter(stream("older", 1n, 7n))).toBe(false);
    expect(groups.enter(stream("next", 2n, 9n))).toBe(true);
    groups.leave(newer); // This must not remove the next stream.
    groups.onDelete("s");
    expect(fenced).toEqual(["older STREAM_REPLACED", "newer STALE_EPOCH", "next SESSION_DELETED"]);
  });
});

describe("a slow reader", () => {
  test("gets one acknowledgement for many commits", async () => {
    const bench = await Bench.opened();
    bench.bytesASend = 10;
    for (const number of [11, 12, 13]) {
      bench.batch(number, [whole(number)]);
      await bench.settle();
    }
    expect(bench.said).toMatchObject([{ case: "committed", value: { lastClientSeq: 11n } }]);
    bench.taken();
    expect(bench.said.slice(1)).toMatchObject([{ value: { lastClientSeq: 13n } }]);
  });

  test("gets everything before the end, even if it has taken little", async () => {
    const bench = await Bench.opened();
    bench.bytesASend = 10;
    bench.batch(11, [whole(11)]);
    await bench.settle();
    bench.batch(12, [whole(12)]);
    bench.call.onHalfClose();
    await bench.settle();
    expect(bench.said).toMatchObject([
      { case: "committed", value: { lastClientSeq: 11n } },
      { case: "committed", value: { lastClientSeq: 12n } },
    ]);
    expect(bench.ended).toBe("OK");
  });

  test("pauses the caller while many refusals wait, also within a batch", async () => {
    const bench = await Bench.opened();
    bench.bytesASend = 200;
    bench.batch(
      11,
      Array.from({ length: 1_000 }, () => BAD),
    );
    const before = bench.said.length;
    expect(before).toBeLessThan(400);
    expect(bench.listens).toBe(false);
    bench.taken();
    expect(bench.said.length).toBeGreaterThan(before);
    while (!bench.listens) {
      await bench.settle();
      bench.taken();
    }
    expect(bench.said.filter((frame) => frame.case === "refused")).toHaveLength(1_000);
  });
});

describe("limits", () => {
  test("close the group at the maximum of uncommitted bytes, and pause the caller", async () => {
    const bench = await Bench.opened({ pushStreamBytesMax: 1_000 });
    bench.batch(11, fragments(["x".repeat(500)]));
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 11n, 0, [1]]]); // Above half of it.
    bench.batch(12, fragments(["x".repeat(500)]));
    expect(bench.listens).toBe(false);
    await bench.settle();
    expect(bench.listens).toBe(true);
  });

  test("pause the caller at the maximum of uncommitted events", async () => {
    const bench = await Bench.opened({ pushStreamBytesMax: 2 ** 30 });
    const events = fragments(Array.from({ length: 1_024 }, () => ""));
    const heard: boolean[] = [];
    for (let sent = 0; sent < 65_536; sent += events.length) {
      bench.batch(11 + sent, events);
      heard.push(bench.listens);
    }
    expect(heard).toEqual([...Array.from({ length: 63 }, () => true), false]);
    expect(bench.pushes.length).toBeGreaterThan(0);
  });
});

describe("a slow frame", () => {
  test("is processed in slices, so that other work runs in between", async () => {
    const bench = await Bench.opened({ pushStreamBytesMax: 4_194_304 });
    bench.msALook = 10;
    bench.batch(
      11,
      [1, 2, 3].map((value) => whole(String(value).repeat(70_000))),
    );
    const counted = (): unknown => bench.call.record.counts["events"];
    for (const events of [1, 2, 3]) {
      expect(counted()).toBe(events);
      expect(bench.listens).toBe(events === 3);
      const [timer] = bench.timers.splice(0);
      expect(timer?.delayMs).toBe(events === 3 ? undefined : 0);
      timer?.action();
    }
    for (let under = 0; under < bench.pushes.length; under += 1) await bench.settle();
    expect(bench.pushes.map(rangeOf).flatMap((range) => range[3])).toEqual([1, 1, 1]);
  });

  test("is abandoned when the caller leaves between two slices", async () => {
    const bench = await Bench.opened({ pushStreamBytesMax: 4_194_304 });
    bench.msALook = 10;
    bench.batch(
      11,
      [1, 2].map((value) => whole(String(value).repeat(70_000))),
    );
    bench.call.onClose(new ServiceError("cancelled", "CANCELLED", "gone"));
    for (const { action } of bench.timers) action();
    await bench.settle();
    expect(bench.call.record.counts["events"]).toBe(1);
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 11n, 0, [1]]]);
  });
});

describe("the age of a group", () => {
  test("has one timer, which is set again for the next group", async () => {
    const bench = await Bench.opened();
    bench.batch(11, fragments(["a"]));
    expect(bench.timers).toMatchObject([{ delayMs: 250 }]);
    bench.nowMs += 100;
    bench.batch(12, fragments(["b"], "m2")); // Closes the first group, and opens one.
    expect(bench.timers).toHaveLength(1);
    const [timer] = bench.timers.splice(0);
    bench.nowMs += 150;
    timer?.action();
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 11n, 0, [1]]]);
    expect(bench.timers).toMatchObject([{ delayMs: 100 }]);
    await bench.settle();
    const [next] = bench.timers.splice(0);
    bench.nowMs += 100;
    next?.action();
    expect(bench.pushes.slice(1).map(rangeOf)).toEqual([[12n, 12n, 0, [1]]]);
    expect(bench.timers).toEqual([]);
  });
});

describe("a caller above its rate", () => {
  test("is not read until its debt is paid, and its received events are stored meanwhile", async () => {
    const bench = await Bench.opened();
    bench.waitMs = 70;
    bench.batch(11, [whole(1), whole(2)]);
    const bytes = 2 * Buffer.byteLength(whole(1).payload ?? "");
    expect(bench.charged).toEqual([0, bytes]); // The first charge is for `open`.
    expect(bench.pushes.map(rangeOf)).toEqual([[11n, 12n, 0, [1, 1]]]);
    await bench.settle();
    expect(bench.said.at(-1)).toMatchObject({ case: "committed", value: { lastClientSeq: 12n } });
    expect(bench.listens).toBe(false);
    expect(bench.timers).toMatchObject([{ delayMs: 70 }]);
    for (const { action } of bench.timers.splice(0)) action();
    expect(bench.listens).toBe(true);
    bench.waitMs = 0;
    bench.batch(13, [whole(3)]);
    expect(bench.listens).toBe(true);
  });

  test("pays one message for a flush and for a repeated frame", async () => {
    const bench = await Bench.opened();
    bench.batch(11, [whole(1)]);
    bench.batch(11, [whole(1)]);
    bench.send({ case: "flush", value: {} });
    expect(bench.charged).toEqual([0, expect.any(Number), 0, 0]);
  });

  test("waits before its stream opens, and is forgotten when it leaves meanwhile", async () => {
    const bench = new Bench();
    bench.waitMs = 30;
    bench.send({ case: "open", value: { sessionId: "s" } });
    await settled();
    expect([bench.listens, bench.said]).toEqual([false, []]);
    for (const { action } of bench.timers.splice(0)) action();
    await settled();
    expect([bench.listens, bench.said]).toMatchObject([true, [{ case: "opened" }]]);

    const other = new Bench();
    other.waitMs = 30;
    other.send({ case: "open", value: { sessionId: "s" } });
    other.call.onClose(new ServiceError("cancelled", "CANCELLED", "left"));
    expect(other.timers).toEqual([]);
  });

  test("pays for the processed part of a frame when the stream ends within it", async () => {
    const bench = new Bench();
    bench.send({ case: "open", value: { sessionId: "s", stopOnRefused: true } });
    await settled();
    bench.batch(11, [whole(1), BAD, whole(2)]);
    await bench.settle();
    await bench.settle();
    const [taken = 0] = bench.charged.slice(1);
    expect(bench.ended).toBe("INVALID_REQUEST");
    expect(taken).toBe(Buffer.byteLength((whole(1).payload ?? "") + (BAD.payload ?? "")));
  });
});

test("committed events are acknowledged before the stream ends, even to a slow reader", async () => {
  const bench = await Bench.opened();
  bench.bytesASend = 100;
  bench.batch(11, [whole(1)]);
  bench.batch(
    12,
    Array.from({ length: 300 }, (_, n) => whole(n)),
  );
  bench.send({ case: "flush", value: {} });
  bench.unsentBytes = 100;
  await bench.settle();
  expect(bench.said).toEqual([]);
  await bench.settle(new ServiceError("failed_precondition", "SESSION_FULL", "full"));
  expect(bench.said).toMatchObject([{ case: "committed", value: { lastClientSeq: 11n } }]);
  expect(bench.ended).toBe("SESSION_FULL");
});
