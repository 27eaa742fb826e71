/**
 * The rows of streams written by hand. In every case `rowsOf` checks that the rows give back the
 * exact events, and that the service accepts them.
 */
import { describe, expect, test } from "vitest";
import {
  compressAll,
  countsOf,
  eventOf,
  expandAll,
  type Fields,
  rowsOf,
  said,
} from "../support/merging.ts";

const called = (toolCallId: string, delta: string): Fields => ({
  type: "TOOL_CALL_ARGS",
  toolCallId,
  delta,
});
const started = (messageId: string): Fields => ({ type: "TEXT_MESSAGE_START", messageId });
const ended = (messageId: string): Fields => ({ type: "TEXT_MESSAGE_END", messageId });
const runStarted = (runId: string): Fields => ({ type: "RUN_STARTED", threadId: "t", runId });

describe("a row", () => {
  test("has the first event with the deltas of all, and the index that splits them again", () => {
    const first = eventOf(said("m", "Hello", { timestamp: 17 }), 5n);
    const last = eventOf(said("m", ", 😀", { timestamp: 20 }), 9n);
    expect(compressAll([first, last])).toEqual([
      {
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: JSON.stringify(said("m", "Hello, 😀", { timestamp: 17 })),
        eventCount: 2,
        createdAtMicros: 5n,
        completedAtMicros: 9n,
        fragments: { lengths: [6, 5], timestampDeltasMs: [3n] },
        first,
        last,
      },
    ]);
  });

  test("of a single event is that event, with its creation as its completion", () => {
    const alone = eventOf(said("m", "Hello"));
    expect(compressAll([alone])).toEqual([
      {
        ...alone,
        eventCount: 1,
        completedAtMicros: undefined,
        fragments: undefined,
        first: alone,
        last: alone,
      },
    ]);
  });

  test("completes at the latest of its times, also when a clock steps back", () => {
    const times = [7n, 9n, 3n].map((micros) => eventOf(said("m", "a"), micros));
    expect(compressAll(times)).toMatchObject([{ createdAtMicros: 7n, completedAtMicros: 9n }]);
    const back = [7n, 3n].map((micros) => eventOf(said("m", "a"), micros));
    expect(compressAll(back)).toMatchObject([{ createdAtMicros: 7n, completedAtMicros: 7n }]);
  });
});

describe("cases that are often wrong", () => {
  test("interleaved messages keep their order", () => {
    const order = [said("m1", "a"), said("m2", "b"), said("m1", "c"), said("m1", "d")];
    expect(countsOf(order)).toEqual([1, 1, 2]);
  });

  test("tool calls with alternating ARGS are not merged", () => {
    const calls = ["c1", "c2", "c1", "c2"].map((id, at) => called(id, `{"${at}`));
    expect(countsOf(calls)).toEqual([1, 1, 1, 1]);
  });

  test.each([
    { type: "RAW", event: { delta: "x" } },
    { type: "CUSTOM", name: "c", value: 1 },
  ])("$type between deltas starts a new row", (between) => {
    const order = [said("m", "a"), said("m", "b"), between, said("m", "c"), said("m", "d")];
    expect(countsOf(order)).toEqual([2, 1, 2]);
  });

  test("a CHUNK without an id merges only with other chunks without one", () => {
    const chunk = (more: Fields): Fields => ({ type: "TEXT_MESSAGE_CHUNK", ...more });
    const order = [
      chunk({ messageId: "m", role: "assistant", delta: "a" }),
      chunk({ delta: "b" }),
      chunk({ delta: "c" }),
      chunk({ messageId: "m", delta: "d" }),
    ];
    expect(countsOf(order)).toEqual([1, 2, 1]);
  });

  test("a second START of the same id starts a new row", () => {
    const order = [started("m"), said("m", "a"), started("m"), said("m", "b"), said("m", "c")];
    expect(countsOf(order)).toEqual([1, 1, 1, 2]);
  });

  test("ARGS without a START are merged", () => {
    expect(countsOf([called("lost", ""), called("lost", "{}")])).toEqual([2]);
  });

  test("RUN_ERROR with open messages separates them from a new run with the same ids", () => {
    const attempt = (runId: string): readonly Fields[] => [
      runStarted(runId),
      started("m"),
      said("m", "I was"),
      said("m", " sa"),
    ];
    const order = [...attempt("r1"), { type: "RUN_ERROR", message: "no" }, ...attempt("r2")];
    expect(countsOf(order)).toEqual([1, 1, 2, 1, 1, 1, 2]);
  });

  test("a split surrogate pair is joined, in either spelling of its halves", () => {
    const spelled = (half: string): string =>
      `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"${half}"}`;
    const split = [String.raw`a\ud83d`, String.raw`\uDE00`, String.raw`\uD83D`, "b", "😀"];
    const [row] = rowsOf(split.map(spelled));
    expect(row?.payload).toBe(spelled(String.raw`a\ud83d\uDE00\uD83Db😀`));
    expect(row?.fragments?.lengths).toEqual([3, 2, 2, 2, 3]);

    // A raw half of a pair has no UTF-8 form, so it is stored as an escape with the same meaning.
    const raw = ["a\ud83d", "\ude00", "\ud83d", "b"].map((half) => eventOf(spelled(half)));
    const rows = compressAll([...raw, eventOf('{"type":"RAW","event":"\ud83d"}')]);
    expect(rows.map(({ eventCount }) => eventCount)).toEqual([4, 1]);
    expect(rows.every(({ payload }) => payload.isWellFormed())).toBe(true);
    const texts = expandAll(rows).map(({ payload }) => payload);
    expect(texts.every((text) => text.isWellFormed())).toBe(true);
    expect(texts.map((text): unknown => JSON.parse(text))).toEqual(
      [...raw.map(({ payload }) => payload), '{"type":"RAW","event":"\ud83d"}'].map(
        (text): unknown => JSON.parse(text),
      ),
    );
  });

  test('a null delta never becomes "null"', () => {
    const rows = rowsOf([said("m", "a"), said("m", null), said("m", null), said("m", "b")]);
    expect(rows.map(({ eventCount }) => eventCount)).toEqual([1, 1, 1, 1]);
    const absent = rowsOf([said("m", undefined), said("m", undefined), said("m", "")]);
    expect(absent.map(({ eventCount }) => eventCount)).toEqual([2, 1]);
    expect(absent[0]?.payload).toBe('{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}');
    expect(absent[0]?.fragments).toEqual({ lengths: [0, 0], timestampDeltasMs: [] });
  });

  test("whitespace-only and empty deltas are fragments like any other", () => {
    const [row, ...others] = rowsOf(
      ["", " ", "\n\t", "", "a", ""].map((delta) => said("m", delta)),
    );
    expect(others).toEqual([]);
    expect(row?.fragments?.lengths).toEqual([1, 2, 3, 1, 2, 1]);
    expect(row?.payload).toContain(String.raw`" \n\ta"`);
  });

  test("different metadata starts a new row", () => {
    const order = [1, 1, 2, 2].map((n) => said("m", "a", { metadata: { n } }));
    expect(countsOf(order)).toEqual([2, 2]);
  });

  test.each([
    { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m", role: "assistant", content: "ab" }] },
    { type: "STATE_SNAPSHOT", snapshot: {} },
    { type: "STATE_DELTA", delta: [] },
    { type: "ACTIVITY_SNAPSHOT", messageId: "m", activityType: "P", content: {} },
  ])("$type in the middle of a message starts a new row", (snapshot) => {
    const order = [said("m", "a"), said("m", "b"), snapshot, snapshot, said("m", "c")];
    expect(countsOf(order)).toEqual([2, 1, 1, 1]);
  });

  test("START and END are never merged into the text", () => {
    const order = [started("m"), said("m", "a"), said("m", "b"), ended("m"), ended("m")];
    expect(countsOf(order)).toEqual([1, 2, 1, 1]);
  });
});

describe("fragments merge only with the same bytes", () => {
  const fragment = (members: string): string => `{"type":"TEXT_MESSAGE_CONTENT",${members}}`;

  test.each([
    ["another message", '"messageId":"m","delta":"a"', '"messageId":"n","delta":"a"'],
    ["another subagent", '"subagentRunId":"s","delta":"a"', '"subagentRunId":"t","delta":"a"'],
    ["a subagent or none", '"subagentRunId":"s","delta":"a"', '"delta":"a"'],
    ["an id or none", '"messageId":"m","delta":"a"', '"delta":"a"'],
    ["an unknown field", '"delta":"a","x":1', '"delta":"a","x":2'],
    ["a number's spelling", '"delta":"a","x":1.0', '"delta":"a","x":1'],
    ["a large number", '"delta":"a","x":9007199254740993', '"delta":"a","x":9007199254740992'],
    ["an escape elsewhere", '"delta":"a","x":"\\u0061"', '"delta":"a","x":"a"'],
    ["white space", '"delta":"a","x":1', '"delta":"a", "x":1'],
    ["the order of keys", '"delta":"a","timestamp":1', '"timestamp":1,"delta":"a"'],
    ["a key's spelling", '"delta":"a"', '"d\\u0065lta":"a"'],
    ["a delta or none", '"x":1,"delta":"a"', '"x":1'],
    ["a time or none", '"delta":"a","timestamp":1', '"delta":"a"'],
    ["snake_case", '"messageId":"m","delta":"a"', '"message_id":"m","delta":"a"'],
    ["a member after the delta", '"delta":"a"', '"delta":"a","delta2":"a"'],
  ])("and not with a difference in %s", (_, one, other) => {
    expect(countsOf([one, other, one].map(fragment))).toEqual([1, 1, 1]);
    expect(countsOf([one, one].map(fragment))).toEqual([2]);
  });

  test.each(["1.0", "1e5", "1.5", "-0", "01", '"1"', "null", "{}", "+1", "1".repeat(33)])(
    "and not with a timestamp spelled %s",
    (timestamp) => {
      const spelled = fragment(`"timestamp":${timestamp},"delta":"a"`);
      expect(countsOf([spelled, spelled])).toEqual([1, 1]);
      const plain = fragment('"timestamp":1,"delta":"a"');
      expect(countsOf([plain, plain, spelled, plain])).toEqual([2, 1, 1]);
    },
  );

  test.each(['"delta":"a","delta":"b"', '"timestamp":1,"delta":"a","timestamp":1', '"x":1,"x":1'])(
    "and not with a key twice: %s",
    (members) => {
      expect(countsOf([members, members].map(fragment))).toEqual([1, 1]);
    },
  );

  test.each(["null", "1", "[]", "{}", "true"])("and not with a delta of %s", (delta) => {
    expect(countsOf([delta, delta].map((value) => fragment(`"delta":${value}`)))).toEqual([1, 1]);
  });

  test("and not with a text that only begins like a fragment", () => {
    const whole = fragment('"delta":"a"');
    const cut = whole.slice(0, -2); // No closing quote.
    const texts = [`${cut}\n"}`, `${cut}\\x"}`, `${cut}\\u00g0"}`, `${cut}\\u12"}`];
    for (const broken of [cut, ...texts, `${whole}}`, `${whole} `])
      expect(countsOf([whole, whole, broken, whole])).toEqual([2, 1, 1]);
  });

  test("in any spelling of JSON, and inner `delta` and `timestamp` members stay as they are", () => {
    const spelled = (delta: string, timestamp: number): string =>
      `{ "type": "TEXT_MESSAGE_CONTENT" ,\n"rawEvent":{"delta":"x","timestamp":1.0}, "timestamp" :${timestamp}\t,"delta": "${delta}" , "x":[1e5, 1.0, 9007199254740993] }`;
    const [row, ...others] = rowsOf([spelled("\\u0061", 5), spelled("\\/", -7), spelled("b", 0)]);
    expect(others).toEqual([]);
    expect(row?.payload).toBe(spelled("\\u0061\\/b", 5));
    expect(row?.fragments?.timestampDeltasMs).toEqual([-12n, 7n]);
  });

  test("with timestamps of any size, as far apart as the index allows", () => {
    const at = (timestamp: bigint): string => fragment(`"delta":"a","timestamp":${timestamp}`);
    const large = [2n ** 53n + 1n, 2n ** 53n + 2n, -(10n ** 31n), 10n ** 15n].map(at);
    expect(countsOf(large)).toEqual([2, 1, 1]);
    const across = [
      2n ** 53n - 1n,
      2n ** 53n + 1n,
      2n ** 53n + 2n,
      1n - 2n ** 53n,
      -1n - 2n ** 53n,
    ];
    expect(countsOf(across.map(at))).toEqual([5]);
    const far = 2n ** 63n;
    expect(countsOf([at(0n), at(far - 1n), at(-1n)])).toEqual([3]);
    expect(countsOf([at(0n), at(far)])).toEqual([1, 1]);
    expect(countsOf([at(-1n), at(far - 1n), at(-1n)])).toEqual([1, 2]);
  });

  test("unless the caller keeps an event separate", () => {
    const apart = { ...eventOf(said("m", "a")), merges: false };
    const rows = compressAll([eventOf(said("m", "a")), apart, apart, eventOf(said("m", "b"))]);
    expect(rows.map(({ eventCount }) => eventCount)).toEqual([1, 1, 1, 1]);
  });

  test("and only within one fragment type", () => {
    const types = [
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_CHUNK",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_CHUNK",
      "REASONING_MESSAGE_CONTENT",
      "REASONING_MESSAGE_CHUNK",
      "THINKING_TEXT_MESSAGE_CONTENT",
    ];
    const same = types.flatMap((eventType) => {
      const fragmentOf = { eventType, payload: '{"delta":"a"}', createdAtMicros: 0n };
      return [fragmentOf, fragmentOf];
    });
    const rows = compressAll(same);
    expect(rows.map(({ eventType, eventCount }) => [eventType, eventCount])).toEqual(
      types.map((type) => [type, 2]),
    );
    for (const eventType of ["CUSTOM", "TEXT_MESSAGE_START", "FOREIGN_CHUNK", ""]) {
      const other = { eventType, payload: '{"delta":"a"}', createdAtMicros: 0n };
      expect(compressAll([other, other])).toHaveLength(2);
    }
  });
});

test.each(["", "{", "null", '"text"', "[]", '{"delta":"a"', "\ud83d", "[".repeat(1_000_000)])(
  "text that is not a JSON object is stored unchanged in its own row (%#)",
  (payload) => {
    const broken = { eventType: "TEXT_MESSAGE_CONTENT", payload, createdAtMicros: 0n };
    const whole = eventOf(said("m", "a"));
    const rows = compressAll([whole, broken, broken, whole]);
    expect(rows.map((row) => row.payload)).toEqual([
      whole.payload,
      payload,
      payload,
      whole.payload,
    ]);
  },
);
