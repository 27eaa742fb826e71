import { describe, expect, test } from "vitest";
import {
  EXPANDED_BYTES_MAX,
  checkFragments,
  type FragmentIndex,
} from "@session-ledger/compressor/fragments";

type MergedRow = Parameters<typeof checkFragments>[0];

function row(
  payload: object | string,
  eventCount: number,
  eventType = "TEXT_MESSAGE_CHUNK",
): MergedRow {
  const text = typeof payload === "string" ? payload : JSON.stringify(payload);
  return { eventType, payload: text, eventCount };
}

function index(
  lengths: readonly number[],
  timestampDeltasMs: readonly bigint[] = [],
): FragmentIndex {
  return { lengths, timestampDeltasMs };
}

function descriptions(merged: MergedRow, fragments: FragmentIndex): readonly string[] {
  return checkFragments(merged, fragments).map(({ description }) => description);
}

describe("lengths", () => {
  test.each<[string, MergedRow, FragmentIndex]>([
    ["add up to the delta", row({ delta: "Hello" }, 3), index([3, 1, 4])],
    ["count UTF-16 units, and may cut a pair", row({ delta: "😀é" }, 3), index([2, 2, 2])],
    [
      "count the decoded characters of escapes",
      row('{"delta":"\\ud83d\\u0000\\n\\""}', 2),
      index([3, 3]),
    ],
    ["are 1 for empty fragments", row({ delta: "" }, 2), index([1, 1])],
    ["are 0 for fragments without a delta", row({}, 2), index([0, 0])],
    ["may be given for a row of one event", row({ delta: "a" }, 1), index([2])],
  ])("%s", (_, merged, fragments) => {
    expect(checkFragments(merged, fragments)).toEqual([]);
  });

  test.each<[MergedRow, FragmentIndex, string]>([
    [row({ delta: "ab" }, 2), index([3]), "fragments.lengths must be 2 numbers, as event_count is"],
    [row({ delta: "ab" }, 2), index([2, 1, 1]), "fragments.lengths must be 2 numbers"],
    [row({ delta: "ab" }, 2), index([]), "fragments.lengths must be 2 numbers"],
    [
      row({ delta: "ab" }, 2),
      index([2, 1]),
      "must be 2 UTF-16 units in all, as the delta is, but is 1",
    ],
    [row({ delta: "ab" }, 2), index([2, 3]), "but is 3"],
    [row({ delta: "é" }, 2), index([2, 2]), "must be 1 UTF-16 units in all"],
    [
      row({ delta: "ab" }, 2),
      index([0, 3]),
      "above 0 for each fragment, as the payload has a delta",
    ],
    [row({ delta: "" }, 2), index([0, 0]), "above 0 for each fragment"],
    [row({}, 2), index([0, 1]), "0 for each fragment, as the payload has no delta"],
    [row({ delta: 1 }, 2), index([0, 0]), "payload.delta must be a string, or left out"],
    [row({ delta: null }, 1), index([0]), "payload.delta must be a string, or left out"],
  ])("of %o are refused with %o", (merged, fragments, description) => {
    const found = descriptions(merged, fragments);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(description);
  });
});

describe("timestamps", () => {
  test.each<[string | number, number, readonly bigint[]]>([
    [1_770_389_237_000, 3, [15n, -1n]],
    [0, 2, [0n]],
    ["-12", 2, [1n]],
    ["9007199254740993", 2, [1n]],
    [1_770_389_237_000, 2, []],
    ["1.0", 2, []],
    [5, 1, []],
  ])("are accepted for %s with %i events and %o", (timestamp, eventCount, deltas) => {
    const merged = row(`{"timestamp": ${timestamp} }`, eventCount);
    expect(checkFragments(merged, index(Array<number>(eventCount).fill(0), deltas))).toEqual([]);
  });

  test("are one fewer than the events", () => {
    const field = "fragments.timestamp_deltas_ms must be empty, or 1 numbers, but is 2";
    expect(descriptions(row({ timestamp: 1 }, 2), index([0, 0], [1n, 1n]))).toEqual([field]);
    expect(descriptions(row({ timestamp: 1 }, 1), index([0], [1n]))).toHaveLength(1);
  });

  test.each(["1.0", "1e5", "1.5", "-0", '"1"', "null"])(
    "are refused for a payload with the timestamp %s",
    (timestamp) => {
      const merged = row(`{"timestamp":${timestamp}}`, 2);
      expect(descriptions(merged, index([0, 0], [1n]))).toEqual([
        "fragments.timestamp_deltas_ms must be empty where the payload's timestamp is absent or not a plain integer",
      ]);
    },
  );

  test("are refused for a payload without a timestamp", () => {
    expect(descriptions(row({ rawEvent: { timestamp: 1 } }, 2), index([0, 0], [1n]))).toHaveLength(
      1,
    );
  });
});

describe("the expanded size", () => {
  /** A row whose payload has `bytes` bytes beside its delta. */
  function sized(bytes: number, eventCount: number, delta = ""): MergedRow {
    const empty = '{"delta":"","pad":""}';
    return row(`{"delta":"${delta}","pad":"${"x".repeat(bytes - empty.length)}"}`, eventCount);
  }
  const KIB = 1_024;
  const lengths = Array<number>(64 * KIB).fill(1);

  test("is at most 64 MiB, without the delta", () => {
    expect(checkFragments(sized(KIB, 64 * KIB), index(lengths))).toEqual([]);
    expect(checkFragments(sized(KIB, 64 * KIB, "é\\n"), index([3, ...lengths.slice(1)]))).toEqual(
      [],
    );
    const violations = checkFragments(sized(KIB + 1, 64 * KIB), index(lengths));
    expect(violations).toEqual([
      {
        field: "payload",
        description: `payload must be at most ${EXPANDED_BYTES_MAX} bytes when expanded, but is ${(KIB + 1) * 64 * KIB}`,
      },
    ]);
  });

  test("is counted in UTF-8", () => {
    const pad = (text: string): MergedRow => row({ pad: text.repeat(256) }, 64 * KIB);
    const none = index(Array<number>(64 * KIB).fill(0));
    const over = (text: string): string => checkFragments(pad(text), none)[0]?.description ?? "";
    // Fewer units than the limit has bytes.
    expect(checkFragments(row({ pad: "€".repeat(1_000) }, 64 * KIB), none)).toHaveLength(1);
    const frame = Buffer.byteLength('{"pad":""}');
    for (const text of ["é€😀", "😀€x"])
      expect(over(text)).toContain(`but is ${(frame + 256 * Buffer.byteLength(text)) * 64 * KIB}`);
  });
});

test("an index is allowed only for types that merge, and all faults are reported", () => {
  expect(checkFragments(row({ delta: [] }, 1, "STATE_DELTA"), index([0]))).toEqual([
    {
      field: "fragments",
      description: "fragments must be absent: STATE_DELTA carries no fragment of a text",
    },
  ]);
  expect(checkFragments(row({}, 1, "FOREIGN"), index([0]))).toHaveLength(1);
  expect(
    checkFragments(row({ delta: "a" }, 2), index([1], [1n])).map(({ field }) => field),
  ).toEqual(["fragments.lengths", "fragments.timestamp_deltas_ms"]);
});
