/**
 * The reduced rows give the same messages and state as the reduced events: a reader that does not know
 * the compression misses nothing.
 *
 * Method: the real clients of both generations, their reducers alone and whole, are fed the events and
 * fed the rows, of drawn streams in order whose fragments were taken apart further, of the streams
 * written by hand, and with CORPUS of recorded ones.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { type Fields, legalEvents, stored } from "../../../test/support/agui-drawn.ts";
import { type ClientVersion, reduceBy, runClient } from "../../../test/support/agui-reducers.ts";
import { compressAll } from "../../../test/support/merging.ts";
import { properties } from "../../../test/support/random.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../../../test/support/streams.ts";
import { useQuietConsole } from "../../../test/support/quiet-console.ts";

useQuietConsole();

const VERSIONS: readonly ClientVersion[] = ["0.0.59", "1.0.0"];

function rowsOf(events: readonly StreamEvent[]): readonly JsonObject[] {
  const timed = events.map((event) => ({ ...event, createdAtMicros: 0n }));
  return compressAll(timed).map(({ payload }) => parseObject(payload));
}

function eventsOf(events: readonly StreamEvent[]): readonly JsonObject[] {
  return events.map(({ payload }) => parseObject(payload));
}

/** What a client ends with, by itself and as its reducer alone. */
async function shownOf(version: ClientVersion, events: readonly JsonObject[]) {
  const { shown, pendingInterrupts, error } = await runClient(version, events);
  // What the client refuses it names with the event, and rows are other events.
  return { shown, pendingInterrupts, isRefused: error !== undefined };
}

/** A reducer alone takes no chunks: the client makes others of them before. */
async function reducedOf(version: ClientVersion, events: readonly JsonObject[]) {
  const { shown, pendingInterrupts } = await reduceBy(version, events);
  return { shown, pendingInterrupts };
}

/** Texts of fragments in their place: a pair that is split, none, white space. */
const TEXTS = ["a", "", " ", "\n", "\ud83d", "\ude00", "é", '"', "{"];

/** Each fragment as one to four of its kind. */
const finerEvents: fc.Arbitrary<readonly StreamEvent[]> = fc
  .tuple(legalEvents, fc.array(fc.array(fc.constantFrom(...TEXTS), { maxLength: 3 })))
  .map(([events, texts]) =>
    events
      .flatMap((event, at): readonly Fields[] => {
        const { type, delta } = event;
        if (type === "STATE_DELTA" || typeof delta !== "string") return [event];
        const more = texts[at % Math.max(1, texts.length)] ?? [];
        return [event, ...more.map((text) => ({ ...event, delta: text }))];
      })
      .map((event) => ({ eventType: String(event["type"]), payload: JSON.stringify(event) })),
  );

test("rows and events of any ordered stream reduce to the same", async () => {
  let merged = 0;
  await fc.assert(
    fc.asyncProperty(finerEvents, async (events) => {
      const raw = eventsOf(events);
      const rows = rowsOf(events);
      const whole = events.filter(({ eventType }) => !eventType.endsWith("_CHUNK"));
      merged += raw.length - rows.length;
      for (const version of VERSIONS) {
        expect(await shownOf(version, rows)).toEqual(await shownOf(version, raw));
        expect(await reducedOf(version, rowsOf(whole))).toEqual(
          await reducedOf(version, eventsOf(whole)),
        );
      }
    }),
    properties({ runs: 100 }),
  );
  expect(merged).toBeGreaterThan(0);
});

const streams = [...ownStreams(), ...(recordedStreams() ?? [])];

test("rows and events of agent streams reduce to the same", async () => {
  let accepted = 0;
  for (const { agent, scenario, events } of streams) {
    // 1.0.0 gives thoughts without ids random ones.
    if (events.some(({ eventType }) => eventType.startsWith("THINKING_"))) continue;
    const log = stored(events);
    const name = `${agent} ${scenario}`;
    for (const version of VERSIONS) {
      const raw = await shownOf(version, eventsOf(log));
      if (!raw.isRefused) accepted += 1;
      expect({ name, ...(await shownOf(version, rowsOf(log))) }).toEqual({ name, ...raw });
    }
  }
  expect(accepted).toBeGreaterThan(streams.length / 2); // Of two looks at each.
});
