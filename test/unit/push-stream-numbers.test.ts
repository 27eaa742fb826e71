import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { StreamCommits } from "../../src/handlers/push-stream/commits.ts";
import type { Ingest } from "../../src/ingest/ingest.ts";
import type { Acknowledged } from "../../src/ingest/queue.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { INT64_MAX } from "../../src/contract/checks.ts";
import { repeatedEvents } from "../../src/handlers/push-stream/accept-event.ts";
import { properties } from "../support/random.ts";

const STREAM = { epoch: 1n, stream: 1n };
const STEPS = ["none", "began", "joined", "refused", "close", "take", "commit"] as const;

/** One object for each event, with its state: a plain model of the counters in StreamCommits. */
interface Model {
  readonly bytes: number;
  refused: boolean;
  state: "open" | "settled" | "handed" | "committed";
}

const NOTHING: Acknowledged = { rows: [], deduplicated: false };
const metrics = createMetrics();

test("numbers are handed over once and in order, including those of refused events", async () => {
  const steps = fc.array(fc.tuple(fc.constantFrom(...STEPS), fc.nat(9)));
  await fc.assert(
    fc.asyncProperty(steps, fc.bigInt({ min: 0n, max: 2n ** 62n }), async (drawn, base) => {
      const pushed: { readonly range: unknown; readonly commit: () => void }[] = [];
      const push: Ingest["push"] = ({ range }) => {
        const { promise, resolve } = Promise.withResolvers<Acknowledged>();
        pushed.push({ range, commit: () => resolve(NOTHING) });
        return promise;
      };
      const opened = { ...STREAM, lastClientSeq: base, refused: 0n, isCancelled: false };
      const numbers = new StreamCommits(
        { ingest: { push }, lostAfter: () => Promise.resolve(undefined), metrics },
        { sessionId: "s", opened, actor: undefined, onSettle: () => undefined },
        { take: () => ({ rows: [], renamed: [], events: 0 }), rowsWaiting: 0 },
      );
      const events: Model[] = [];
      const handovers: unknown[][] = [];
      const inFlight: { readonly events: Model[]; readonly commit: () => void }[] = [];
      const settle = () => events.forEach((one) => one.state === "open" && (one.state = "settled"));
      const hasGroup = () => events.some(({ state }) => state === "open");
      for (const [step, bytes] of drawn) {
        if (step === "take") {
          const taken = events.filter(({ state }) => state === "settled");
          const before = pushed.length;
          numbers.handOver({ now: true });
          const handover = pushed[before];
          const first = BigInt(events.findIndex(({ state }) => state === "settled"));
          const whole = {
            firstClientSeq: base + first + 1n,
            lastClientSeq: base + first + BigInt(taken.length),
            refused: taken.filter(({ refused }) => refused).length,
          };
          const range = taken.length === 0 ? undefined : { ...STREAM, ...whole };
          handovers.push([handover?.range, range]);
          for (const one of taken) one.state = "handed";
          if (handover !== undefined) inFlight.push({ events: taken, commit: handover.commit });
        } else if (step === "commit") {
          const next = inFlight.shift();
          next?.events.forEach((one) => (one.state = "committed"));
          next?.commit();
          await Promise.resolve();
        } else if (step === "close") {
          settle();
          numbers.closeGroup();
        } else if (step === "refused") {
          events.push({ bytes, refused: true, state: hasGroup() ? "open" : "settled" });
          numbers.addRefused(bytes);
        } else {
          const joins = step === "joined" && hasGroup(); // It joins only an open group.
          if (!joins) settle();
          events.push({ bytes, refused: false, state: "open" });
          numbers.addAccepted(bytes, joins ? "joined" : step === "none" ? "none" : "began");
          if (step === "none") settle();
        }
        expect(handovers.map(([handover]) => handover)).toEqual(
          handovers.map(([, whole]) => whole),
        );
        const uncommitted = events.filter(({ state }) => state !== "committed");
        expect(numbers.next).toBe(base + BigInt(events.length) + 1n);
        expect(numbers.unacknowledgedEvents).toBe(uncommitted.length);
        expect(numbers.isCommitted).toBe(uncommitted.length === 0);
        expect(numbers.unacknowledgedBytes).toBe(
          uncommitted.reduce((sum, one) => sum + one.bytes, 0),
        );
        const bytesOf = (wanted: Model["state"]): number =>
          events.reduce((sum, { state, bytes: own }) => sum + (state === wanted ? own : 0), 0);
        expect(numbers.openBytes).toBe(bytesOf("open"));
      }
    }),
    properties({ runs: 300 }),
  );
});

describe("the number of known events of a batch", () => {
  const batch = (firstClientSeq: bigint, count: number) => ({
    firstClientSeq,
    events: Array.from({ length: count }, () => ({
      $typeName: "ambient.v1.RawEvent" as const,
      eventType: "",
      payload: "",
    })),
  });

  test.each<[string, bigint, number, bigint, number]>([
    ["is zero for the next batch", 4n, 3, 4n, 0],
    ["is a part for an overlapping batch", 2n, 3, 4n, 2],
    ["is all for an old batch", 1n, 3, 4n, 3],
    ["is all for a much older batch", 1n, 3, 2n ** 60n, 3],
    ["is zero for an empty batch", 9n, 0, 4n, 0],
    ["is zero for an empty batch at number 0", 0n, 0, 4n, 0],
    ["is zero for the last possible number", INT64_MAX, 1, INT64_MAX, 0],
  ])("%s", (_, first, count, next, known) => {
    expect(repeatedEvents(batch(first, count), next)).toBe(known);
  });

  test.each<[string, bigint, number, bigint, RegExp]>([
    ["a number below the first", 0n, 1, 4n, /at least 1/],
    ["a gap", 5n, 1, 4n, /at most 4, the next number, but is 5/],
    ["a gap at the top", 2n ** 64n - 1n, 1, 4n, /at most 4/],
    ["past the top", INT64_MAX, 2, INT64_MAX, /no number is above 9223372036854775807/],
    ["a number above the largest", INT64_MAX + 1n, 1, INT64_MAX + 1n, /no number is above/],
  ])("is refused for %s", (_, first, count, next, description) => {
    expect(repeatedEvents(batch(first, count), next)).toMatchObject({
      field: "batch.first_client_seq",
      description: expect.stringMatching(description),
    });
  });

  test("more events than a batch may have are refused", () => {
    expect(repeatedEvents(batch(1n, 65_536), 1n)).toBe(0);
    expect(repeatedEvents(batch(1n, 65_537), 1n)).toMatchObject({ field: "batch.events" });
  });
});
