/**
 * A client parses whatever it is served, and is served the very bytes where it could have parsed them.
 *
 * Method: events are drawn in the shape of their type with now and then anything in any of their fields,
 * so that some version of the protocol accepts most of them, and few pass all. What is served is put to
 * the published schemas of 1.0.0 and 0.0.59; as streams, to the clients themselves.
 */
import { EventSchema } from "@ag-ui/core/schemas";
import { EventSchemas } from "agui-core-0";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { eventIn } from "@session-ledger/agui/canonical/usable";
import { servedTo, type Generation } from "@session-ledger/agui/generation/served";
import { parseObject, type JsonObject } from "@session-ledger/agui/json";
import { splitEvent } from "@session-ledger/agui/split-event";
import { runClient, type ClientVersion } from "../../../test/support/agui-reducers.ts";
import { drawnEvent, type DrawnEvent } from "../../../test/support/agui-shapes.ts";
import { properties } from "../../../test/support/random.ts";
import { useQuietConsole } from "../../../test/support/quiet-console.ts";

useQuietConsole();

const GENERATIONS = ["1.0.0", "0.0.59"] as const;

/** As it is stored, in lenient mode also what no version accepts. */
function rowOf({ type, payload }: DrawnEvent) {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType: type, payload, eventCount: 0, ...times, hasFragments: false };
  const result = splitEvent(push, { mode: "lenient", nowMicros: 0n });
  return result.ok ? result.rows[0] : undefined;
}

/** Media of before 1.0.0, which its client translates by itself. */
function withoutBinary(this: object, key: string, value: unknown): unknown {
  const isBinary = (part: unknown): boolean =>
    typeof part === "object" && part !== null && "type" in part && part.type === "binary";
  const isOfUser = key === "content" && "role" in this && this.role === "user";
  return isOfUser && Array.isArray(value) ? value.filter((part) => !isBinary(part)) : value;
}

function passes(generation: Generation, text: string): boolean {
  if (generation === "1.0.0") return EventSchema.safeParse(JSON.parse(text)).success;
  const answers = [
    EventSchema.safeParse(JSON.parse(text, withoutBinary)),
    EventSchemas.safeParse(JSON.parse(text)),
  ];
  return answers.every(({ success }) => success);
}

test("served events pass the schemas of their generation", () => {
  const seen = { bytes: 0, changed: 0, custom: 0, nothing: 0 };
  fc.assert(
    fc.property(drawnEvent, fc.constantFrom(...GENERATIONS), (drawn, generation) => {
      const row = rowOf(drawn);
      if (row?.conformant !== true) return;
      const value = eventIn(row.payload);
      const texts = servedTo(generation, { value, text: row.payload });
      for (const text of texts)
        expect({ text, passes: passes(generation, text) }).toEqual({ text, passes: true });
      const [served] = texts;
      expect(texts).toHaveLength(served === undefined ? 0 : 1);
      if (served === undefined) seen.nothing += 1;
      else if (served === row.payload) seen.bytes += 1;
      else if (parseObject(served)["type"] === value["type"]) seen.changed += 1;
      else seen.custom += 1;
    }),
    properties({ runs: 5_000 }),
  );
  expect(Math.min(seen.bytes, seen.changed, seen.custom)).toBeGreaterThan(3);
});

test("an event that a client can parse is served as it was stored", () => {
  let unchanged = 0;
  fc.assert(
    fc.property(drawnEvent, fc.constantFrom(...GENERATIONS), (drawn, generation) => {
      const row = rowOf(drawn);
      if (row?.conformant !== true || !passes(generation, row.payload)) return;
      const value = parseObject(row.payload);
      // What checks the order of events minds; an infinite number is null in a client.
      if (isNullInJson(value["subagentRunId"])) return;
      unchanged += 1;
      expect(servedTo(generation, { value, text: row.payload })).toEqual([row.payload]);
    }),
    properties({ runs: 3_000 }),
  );
  expect(unchanged).toBeGreaterThan(100);
});

const CLIENTS: readonly (readonly [ClientVersion, Generation])[] = [
  ["0.0.59", "0.0.59"],
  ["1.0.0", "1.0.0"],
  ["1.0.0", "0.0.59"],
];

const RUN_STARTED = {
  type: "RUN_STARTED",
  payload: '{"type":"RUN_STARTED","threadId":"t","runId":"r"}',
};

function servedStream(
  generation: Generation,
  events: readonly DrawnEvent[],
): readonly JsonObject[] {
  const canonical = new Canonical("session");
  return events
    .flatMap((event) => rowOf(event) ?? [])
    .flatMap((row, index) => canonical.next({ ...row, seq: BigInt(index + 1) }))
    .filter(({ inRun }) => inRun)
    .flatMap((event) => servedTo(generation, event))
    .map(parseObject);
}

test("clients accept streams of any stored events", async () => {
  const events = fc.array(drawnEvent, { minLength: 5, maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(events, async (drawn) => {
      for (const [version, generation] of CLIENTS) {
        const { error } = await runClient(
          version,
          servedStream(generation, [RUN_STARTED, ...drawn]),
        );
        expect(error).toBeUndefined();
      }
    }),
    properties({ runs: 200 }),
  );
});

test("a client makes the same of a served event and of the event itself", async () => {
  const types = ["MESSAGES_SNAPSHOT", "RUN_STARTED", "ACTIVITY_SNAPSHOT", "STATE_SNAPSHOT"];
  const one = drawnEvent.filter(({ type }) => types.includes(type));
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(one, async (drawn) => {
      for (const [version, generation] of CLIENTS.slice(0, 2)) {
        const row = rowOf(drawn);
        if (row?.conformant !== true) continue;
        const begins = drawn.type === "RUN_STARTED" ? [] : [RUN_STARTED];
        const raw = [...begins.map(({ payload }) => payload), row.payload].map(parseObject);
        const known = await runClient(version, raw);
        if (known.error !== undefined) continue;
        compared += 1;
        const served = await runClient(version, servedStream(generation, [...begins, drawn]));
        expect(served.shown).toEqual(known.shown);
      }
    }),
    properties({ runs: 500 }),
  );
  expect(compared).toBeGreaterThan(50);
});

function isNullInJson(value: unknown): boolean {
  return value !== undefined && JSON.stringify(value) === "null";
}
