/**
 * What we accept is what the versions of the protocol accept, as their own published schemas say:
 * all that one of them takes, and nothing that none of them takes. VALIDATION=exact takes what 1.0.0 takes,
 * and VALIDATION=lenient marks what strict refuses.
 *
 * Method: events are drawn in the shape of their type, where each field is mostly right, now and then
 * absent, and now and then anything at all, at every level. Each is put to the schemas of 1.0.0 and
 * 0.0.59, and to what 0.0.57 was, and to `splitEvent`. Ours beside theirs is also what makes a new
 * version of @ag-ui/core visible that accepts other things.
 *
 * Not here: META, which no version has, and two spellings of a field that differ, which the versions
 * take for a field and an unknown key.
 */
import { EventSchema } from "@ag-ui/core/schemas";
import { EventSchemas } from "agui-core-0";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { splitEvent } from "@session-ledger/agui/split-event";
import { drawnEvent } from "../../../test/support/agui-shapes.ts";
import { properties } from "../../../test/support/random.ts";

type EventRows = ReturnType<typeof splitEvent>;

function stored(eventType: string, payload: string, mode: ValidationMode = "strict"): EventRows {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, ...times, hasFragments: false };
  return splitEvent(push, { mode, nowMicros: 0n });
}

/** What came after 0.0.57, for which these were unknown keys, and could hold anything. */
const NEW_SINCE_0_0_57 = ["metadata", "subagentRunId", "usage"];

function before(this: object, key: string, value: unknown): unknown {
  // That of an interrupt, which has a reason, and that of a tool, which has a description, are older.
  if (key === "metadata" && ("reason" in this || "description" in this)) return value;
  // An outcome took no unknown keys.
  if ("type" in this && (this.type === "interrupt" || this.type === "success")) return value;
  return NEW_SINCE_0_0_57.includes(key) ? undefined : value;
}

function versionsThatAccept(payload: string): readonly string[] {
  const answers = {
    "1.0.0": EventSchema.safeParse(JSON.parse(payload)).success,
    "0.0.59": EventSchemas.safeParse(JSON.parse(payload)).success,
    // It had no SUBAGENT_*: they require a field that is taken away here.
    "0.0.57": EventSchemas.safeParse(JSON.parse(payload, before)).success,
  };
  return Object.entries(answers).flatMap(([version, accepts]) => (accepts ? [version] : []));
}

test("what one version accepts we accept, and what we store one version accepts", () => {
  const options = properties({ runs: 5_000 });
  const seen = { inAll: 0, inOne: 0, changed: 0, refused: 0, wider: 0 };
  fc.assert(
    fc.property(drawnEvent, ({ type, payload }) => {
      const versions = versionsThatAccept(payload);
      const result = stored(type, payload);
      const exact = stored(type, payload, "exact");
      if (versions.includes("1.0.0") && !exact.ok) return false;
      if (exact.ok && !versionsThatAccept(exact.rows[0].payload).includes("1.0.0")) return false;
      const lenient = stored(type, payload, "lenient");
      if (lenient.ok && lenient.rows[0].conformant !== result.ok) return false;
      if (!exact.ok && result.ok) seen.wider += 1;
      if (!result.ok) {
        seen.refused += 1;
        return versions.length === 0 && result.violations.length > 0;
      }
      const { payload: kept } = result.rows[0];
      if (versions.length === 1) seen.inOne += 1;
      if (versions.length === 3) seen.inAll += 1;
      if (kept !== payload) seen.changed += 1;
      // What is stored is normal: pushed once more, it is the very text.
      return versionsThatAccept(kept).length > 0 && isSame(stored(type, kept), result);
    }),
    options,
  );
  // A property over events that are all refused, or all fine, would say little.
  expect(Math.min(...Object.values(seen))).toBeGreaterThan(options.numRuns / 50);
});

function isSame(again: EventRows, first: EventRows): boolean {
  return again.ok && first.ok && again.rows[0].payload === first.rows[0].payload;
}
