/** Watchers share raw events: the same objects while there is room, and equal ones without room. */
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { toRawEvents, toSessionEvent } from "../../src/contract/rows-to-wire.ts";
import { SHARED_EVENTS_LIMITS, SharedEvents } from "../../src/handlers/shared-events.ts";
import type { EventRow } from "../../src/store/rows.ts";
import { SlowTable } from "../support/slow-table.ts";

const table = new SlowTable();

function merged(count: number, pad = ""): EventRow {
  const lengths = Array<number>(count).fill(2);
  return table.event("s", {
    eventType: "TEXT_MESSAGE_CHUNK",
    payload: JSON.stringify({ delta: "x".repeat(count), rawEvent: pad }),
    eventCount: count,
    completedAtMicros: 1_700_000_000_000_001n,
    runId: "r",
    fragments: toBinary(FragmentsSchema, create(FragmentsSchema, { lengths })),
  });
}

function sharing(limits = SHARED_EVENTS_LIMITS): SharedEvents {
  return new SharedEvents((row) => toSessionEvent(row), limits);
}

const all = (events: Iterable<unknown>) => [...events];
const before = (row: EventRow) => row.seq - 1n;

test("all watchers get the same messages of a row from any cursor", () => {
  const shared = sharing();
  const row = merged(4);
  const first = all(shared.of(row, 0n));
  expect(first).toEqual(all(toRawEvents(row, 0n)));
  expect(first).toHaveLength(4);
  for (let after = before(row); after <= row.seq + 4n; after += 1n) {
    const rest = all(shared.of(row, after));
    const expected = first.slice(Number(after - before(row)));
    expect(rest).toHaveLength(expected.length);
    expect(rest.every((event, at) => event === expected[at])).toBe(true);
  }
});

test("a row without an index is one message, unless the cursor is at its number or above", () => {
  const shared = sharing();
  const row = table.event("s", { eventCount: 3 });
  expect(all(shared.of(row, before(row)))).toEqual([toSessionEvent(row)]);
  expect(all(shared.of(row, row.seq))).toEqual([]);
});

test("a row above the limit is expanded for each watcher, and not kept", () => {
  const shared = sharing({ rowBytesMax: 5_000, bytesMax: 50_000 });
  const row = merged(100);
  const [one, other] = [all(shared.of(row, 0n)), all(shared.of(row, 0n))];
  expect(one).toHaveLength(100);
  expect(one).toEqual(other);
  expect(one[0]).not.toBe(other[0]);
  expect(shared.bytes).toBe(0);
});

test("the oldest expanded row is dropped without room, and the total is limited", () => {
  const shared = sharing({ rowBytesMax: 5_000, bytesMax: 20_000 });
  const rows = Array.from({ length: 40 }, () => merged(4, "x".repeat(500)));
  const firsts = rows.map((row) => {
    const [first] = all(shared.of(row, before(row)));
    expect(shared.bytes).toBeLessThanOrEqual(20_000);
    return first;
  });
  const again = (at: number) => {
    const row = rows[at];
    return row === undefined ? undefined : all(shared.of(row, before(row)))[0];
  };
  expect(again(39)).toBe(firsts[39]);
  expect(again(0)).toEqual(firsts[0]);
  expect(again(0)).not.toBe(firsts[0]);
  expect(again(0)).toBe(again(0));
});

test("a paused reader continues at its place after its row was dropped", () => {
  const shared = sharing({ rowBytesMax: 5_000, bytesMax: 5_000 });
  const row = merged(8);
  const expected = all(toRawEvents(row, 0n));
  const kept = all(shared.of(row, before(row)));
  const reader = shared.of(row, row.seq)[Symbol.iterator]();
  expect(reader.next().value).toBe(kept[1]);
  expect(all(shared.of(merged(8, "x".repeat(200)), 0n))).toHaveLength(8);
  const rest = all({ [Symbol.iterator]: () => reader });
  expect(rest).toEqual(expected.slice(2));
  expect(rest[0]).not.toBe(kept[2]);
});
