/**
 * Compression loses nothing, whatever the stream: the invariants of docs/compression.md.
 *
 * Method: streams of fragments in all the spellings that JSON knows, pushed under random limits at
 * random times with random flushes; then every row must be what the service accepts and within the
 * limits, and all of them must expand to the very events. Where no limit is in the way, the rows must
 * also be as few as a model of a few lines says, or a compressor that merges nothing would pass. And
 * recorded streams, with CORPUS.
 */
import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isCompressible } from "@session-ledger/agui/catalogue";
import {
  type CompressedRow,
  Compressor,
  COMPRESSOR_LIMITS,
  type CompressorLimits,
} from "@session-ledger/compressor/compressor";
import { checkFragments } from "@session-ledger/compressor/fragments";
import { compressAll, expandAll } from "../../../test/support/merging.ts";
import { properties } from "../../../test/support/random.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../../../test/support/streams.ts";
import { type WildEvent, wildStream } from "../../../test/support/wild-streams.ts";

type Row = CompressedRow<WildEvent>;

const someLimits: fc.Arbitrary<CompressorLimits> = fc.record({
  textBytesMax: fc.constantFrom(0, 1, 4, 9, 10_240),
  maxAgeMs: fc.constantFrom(0, 10, 250, Number.POSITIVE_INFINITY),
  eventsMax: fc.constantFrom(1, 2, 3, 7, 65_536),
  payloadBytesMax: fc.constantFrom(0, 60, 120, 1024 * 1024),
});

/** No size and no age is in the way; JSON is far smaller than the others. */
const NO_LIMITS = { ...COMPRESSOR_LIMITS, maxAgeMs: Number.POSITIVE_INFINITY };

/** What happens before an event. */
interface Pause {
  readonly waitMs: number;
  readonly isFlushed: boolean;
}

const somePauses: fc.Arbitrary<readonly Pause[]> = fc.array(
  fc.record({
    waitMs: fc.constantFrom(0, 0, 0, 9, 10, 250),
    isFlushed: fc.constantFrom(false, false, true),
  }),
  { minLength: 1, maxLength: 9 },
);

interface Cut {
  readonly limits: CompressorLimits;
  readonly pauses: readonly Pause[];
}

const someCut: fc.Arbitrary<Cut> = fc.record({ limits: someLimits, pauses: somePauses });

/** The rows of a stream that was pushed with these pauses, after each event. */
function* pushed(
  events: readonly WildEvent[],
  { limits, pauses }: Cut,
): Generator<{ readonly rows: readonly Row[]; readonly compressor: Compressor<WildEvent> }> {
  const compressor = new Compressor<WildEvent>(limits);
  const rows: Row[] = [];
  let nowMs = 1_000;
  for (const [at, event] of events.entries()) {
    const pause = pauses[at % pauses.length];
    nowMs += pause?.waitMs ?? 0;
    const flushed = pause?.isFlushed === true ? compressor.flush() : undefined;
    if (flushed !== undefined) rows.push(flushed);
    rows.push(...compressor.push(event, nowMs));
    yield { rows, compressor };
  }
}

/** The first `count` events, and then the end of the stream. */
function rowsOf(events: readonly WildEvent[], cut: Cut, count = events.length): readonly Row[] {
  let latest: readonly Row[] = [];
  let compressor: Compressor<WildEvent> | undefined;
  for (const step of pushed(events.slice(0, count), cut)) {
    latest = step.rows;
    ({ compressor } = step);
  }
  const last = compressor?.flush();
  return last === undefined ? latest : [...latest, last];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What came back other than it was sent; nothing, as a rule. */
function differences(rows: readonly Row[], events: readonly WildEvent[]): readonly unknown[] {
  const expanded = expandAll(rows);
  if (expanded.length !== events.length) return [`${expanded.length} of ${events.length} events`];
  return expanded
    .map((came, at) => ({ came, sent: events[at], seq: BigInt(at) + 1n }))
    .filter(
      ({ came, sent, seq }) =>
        came.seq !== seq ||
        came.eventType !== sent?.eventType ||
        !isSame({ came: came.payload, sent: sent.payload }),
    );
}

/** The very bytes; where they had no UTF-8, the same JSON in bytes that have. */
function isSame({ came, sent }: { readonly came: string; readonly sent: string }): boolean {
  if (sent.isWellFormed() || parsed(sent) === undefined) return came === sent;
  // Only what is no object stays as it is, half of a pair or not.
  return isDeepStrictEqual(parsed(came), parsed(sent)) && (came.isWellFormed() || came === sent);
}

/** What is wrong with a row of these events; nothing, as a rule. */
function faultsOf(
  row: Row,
  events: readonly WildEvent[],
  limits: CompressorLimits,
): readonly unknown[] {
  const { first, last, createdAtMicros, eventCount, payload } = row;
  const times = events.map((event) => event.createdAtMicros);
  const shared = {
    ends: first === events[0] && last === events.at(-1),
    created: createdAtMicros === times[0],
  };
  if (eventCount === 1)
    return Object.entries({
      ...shared,
      alone: row.fragments === undefined && row.completedAtMicros === undefined,
    }).filter(([, isRight]) => !isRight);
  const latest = times.reduce((a, b) => (a > b ? a : b));
  const value: unknown = JSON.parse(payload);
  const texts = events.map((event) => textOf(JSON.parse(event.payload)));
  return Object.entries({
    ...shared,
    completed: row.completedAtMicros === latest,
    fragments: events.every(
      ({ eventType, merges }) => isCompressible(eventType) && merges !== false,
    ),
    text: textOf(value) === (texts.includes(undefined) ? undefined : texts.join("")),
    textBytes: Buffer.byteLength(textOf(value) ?? "") <= limits.textBytesMax,
    payloadBytes: Buffer.byteLength(payload) <= limits.payloadBytesMax,
    events: eventCount <= limits.eventsMax,
    utf8: payload.isWellFormed(),
    expands: row.fragments !== undefined && checkFragments(row, row.fragments).length === 0,
  }).filter(([, isRight]) => !isRight);
}

function textOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null || !("delta" in value)) return undefined;
  return typeof value.delta === "string" ? value.delta : "not a string";
}

function allFaults(
  rows: readonly Row[],
  events: readonly WildEvent[],
  limits: CompressorLimits,
): readonly unknown[] {
  const faults = rows.map((row, at) => {
    const from = borders(rows)[at] ?? 0;
    return faultsOf(row, events.slice(from, from + row.eventCount), limits);
  });
  const count = rows.reduce((sum, { eventCount }) => sum + eventCount, 0);
  return count === events.length ? faults.flat() : [`${count} of ${events.length} events`];
}

/** Without times, which follow from those of the rows. */
function textsOf(rows: readonly Row[]): readonly string[] {
  return expandAll(rows).map(({ seq, eventType, payload }) => `${seq} ${eventType} ${payload}`);
}

/** Where rows begin. */
function borders(rows: readonly Row[]): readonly number[] {
  let from = 0;
  return rows.map(({ eventCount }) => {
    from += eventCount;
    return from - eventCount;
  });
}

/** Where rows must begin when nothing but the events themselves parts them. */
function modelBorders(events: readonly WildEvent[]): readonly number[] {
  return events.flatMap((event, at) => {
    const before = events[at - 1];
    const isJoined =
      before !== undefined && before.shape !== undefined && before.shape === event.shape;
    if (!isJoined) return [at];
    const deltaMs = (event.timestampMs ?? 0n) - (before.timestampMs ?? 0n);
    return BigInt.asIntN(64, deltaMs) === deltaMs ? [] : [at];
  });
}

// Ten minutes: what a hundred thousand runs of one may take.
describe("a stream in any spelling", () => {
  test("comes back event by event from valid rows within their limits", () => {
    fc.assert(
      fc.property(wildStream, someCut, (events, cut) => {
        const rows = rowsOf(events, cut);
        expect(allFaults(rows, events, cut.limits)).toEqual([]);
        expect(differences(rows, events)).toEqual([]);
      }),
      properties({ runs: 400 }),
    );
  });

  test("becomes as few rows as its events allow", () => {
    fc.assert(
      fc.property(wildStream, (drawn) => {
        const events = drawn.filter(({ shape }) => shape !== "broken");
        const rows = compressAll(events, NO_LIMITS);
        expect(borders(rows)).toEqual(modelBorders(events));
      }),
      properties({ runs: 400 }),
    );
  });

  test("after any cursor expands to the events after it", () => {
    fc.assert(
      fc.property(wildStream, someCut, (events, cut) => {
        const rows = rowsOf(events, cut);
        const all = expandAll(rows);
        for (let after = 0n; after <= BigInt(events.length) + 1n; after += 1n)
          expect(expandAll(rows, after)).toEqual(all.filter(({ seq }) => seq > after));
      }),
      properties({ runs: 100 }),
    );
  });

  test("gets more row borders where it is cut, and nothing else changes", () => {
    fc.assert(
      fc.property(wildStream, somePauses, somePauses, (events, some, others) => {
        const whole = compressAll(events, NO_LIMITS);
        for (const pauses of [some, others]) {
          const cut = rowsOf(events, { limits: NO_LIMITS, pauses });
          const isCut = (at: number): boolean => pauses[at % pauses.length]?.isFlushed === true;
          const expected = new Set([
            ...borders(whole),
            ...events.flatMap((_, at) => (isCut(at) ? [at] : [])),
          ]);
          expect(borders(cut)).toEqual([...expected].toSorted((a, b) => a - b));
          expect(textsOf(cut)).toEqual(textsOf(whole));
        }
      }),
      properties({ runs: 200 }),
    );
  });

  test("is complete up to its last flush, wherever that is", () => {
    fc.assert(
      fc.property(wildStream, someCut, fc.nat(), (events, cut, where) => {
        const count = where % (events.length + 1);
        expect(differences(rowsOf(events, cut, count), events.slice(0, count))).toEqual([]);
      }),
      properties({ runs: 400 }),
    );
  });

  test("has at most one group held back, within its limits, with its due time", () => {
    fc.assert(
      fc.property(wildStream, someCut, (events, cut) => {
        let at = 0;
        for (const { rows, compressor } of pushed(events, cut)) {
          at += 1;
          const from = rows.reduce((sum, { eventCount }) => sum + eventCount, 0);
          const held = events.slice(from, at);
          expect(compressor.dueAtMs === undefined).toBe(held.length === 0);
          expect(held.length === 0 || held.length < cut.limits.eventsMax).toBe(true);
          const together = compressAll(held, { ...cut.limits, maxAgeMs: Number.POSITIVE_INFINITY });
          expect(together.length).toBe(Math.min(held.length, 1));
        }
      }),
      properties({ runs: 200 }),
    );
  });
});

test("of any text, type and time throws nothing and loses nothing", () => {
  const anyEvent = fc.record({
    eventType: fc.oneof(fc.constantFrom("TEXT_MESSAGE_CHUNK", "TOOL_CALL_ARGS"), fc.string()),
    payload: fc.oneof(fc.string({ unit: "binary" }), fc.json(), fc.string()),
    createdAtMicros: fc.bigInt(),
  });
  fc.assert(
    fc.property(fc.array(fc.tuple(anyEvent, fc.double()), { maxLength: 5 }), (steps) => {
      const compressor = new Compressor();
      const rows = steps.flatMap(([event, nowMs]) => compressor.push(event, nowMs));
      const last = compressor.flush();
      const all = last === undefined ? rows : [...rows, last];
      const texts = expandAll(all).map(({ payload }) => payload);
      expect(texts).toEqual(steps.map(([{ payload }]) => payload));
    }),
    properties({ runs: 300 }),
  );
});

const streams = [...ownStreams(), ...(recordedStreams() ?? [])];
const timed = ({ eventType, payload }: StreamEvent, at: number) => ({
  eventType,
  payload,
  createdAtMicros: BigInt(at),
});

test.each([1, 2, 7, COMPRESSOR_LIMITS.eventsMax])(
  "streams of agents come back byte for byte, up to %i events a row",
  (eventsMax) => {
    for (const { agent, scenario, events } of streams) {
      const rows = compressAll(events.map(timed), { eventsMax });
      const violations = rows.map((row) => row.fragments && checkFragments(row, row.fragments));
      expect(violations.flat().filter((found) => found !== undefined)).toEqual([]);
      const came = expandAll(rows).map(({ eventType, payload }) => ({ eventType, payload }));
      expect(came, `${agent} ${scenario}`).toEqual(events);
    }
  },
);
