/**
 * The horizon never passes a row that is not visible: writers and looks take their steps in any order,
 * as PostgreSQL lets them. A writer is listed, takes its time, becomes visible, and leaves the list; a
 * look reads the clock, and lists the writers later. The clock moves with every step, or stands still.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { horizonAfter, NO_HORIZON } from "../../src/live/horizon.ts";
import { properties } from "../support/random.ts";

const WRITERS = 4;
const LOOK = WRITERS;

interface Writer {
  readonly name: string;
  stage: "listed" | "timed" | "visible";
  atMicros: bigint | undefined;
}

const steps = fc.array(fc.record({ who: fc.nat(WRITERS), ticks: fc.nat(2) }), {
  maxLength: 300,
  size: "max",
});

test("every row before the horizon is visible when the horizon passes it, and none comes after", () => {
  let advanced = 0;
  fc.assert(
    fc.property(steps, (drawn) => {
      const running = new Map<number, Writer>();
      let clock = 1n;
      let begun = 0;
      let look: { readonly atMicros: bigint } | undefined;
      let state = NO_HORIZON;
      const wrong: string[] = [];
      for (const { who, ticks } of drawn) {
        clock += BigInt(ticks);
        const writer = running.get(who);
        if (who === LOOK) {
          if (look === undefined) {
            look = { atMicros: clock };
            continue;
          }
          const writers = [...running.values()].map(({ name }) => name);
          const before = state.micros ?? 0n;
          state = horizonAfter(state, { ...look, writers });
          look = undefined;
          const now = state.micros ?? 0n;
          if (now < before) wrong.push(`back from ${before} to ${now}`);
          if (now > before) advanced += 1;
          for (const { stage, atMicros = 0n } of running.values()) {
            if (stage === "timed" && atMicros < now) wrong.push(`${now} passes ${atMicros}`);
          }
        } else if (writer === undefined) {
          running.set(who, { name: `w${(begun += 1)}`, stage: "listed", atMicros: undefined });
        } else if (writer.stage === "listed") {
          Object.assign(writer, { stage: "timed", atMicros: clock });
          if (clock < (state.micros ?? 0n)) wrong.push(`${clock} comes after ${state.micros}`);
        } else if (writer.stage === "timed") {
          writer.stage = "visible";
        } else {
          running.delete(who);
        }
      }
      expect(wrong).toEqual([]);
    }),
    properties({ runs: 800 }),
  );
  expect(advanced).toBeGreaterThan(500);
});
