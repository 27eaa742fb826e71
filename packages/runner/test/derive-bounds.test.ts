/** The limits of derived messages in memory and in a push, and their keys. */
import { describe, expect, test } from "vitest";
import {
  type DerivedMessage,
  type DeriveOptions,
  MessageDeriver,
} from "@session-ledger/runner/internal/derive/derive";

type Event = Readonly<Record<string, unknown>>;

const STARTED = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const NO_RUN = { type: "RAW" };

class Run {
  readonly #deriver: MessageDeriver;
  readonly messages: DerivedMessage[] = [];

  constructor(options: DeriveOptions = {}, first: Event = STARTED) {
    this.#deriver = new MessageDeriver({ lifecycle: false, ...options });
    this.push(first);
  }

  push(...events: readonly Event[]): this {
    for (const event of events) this.messages.push(...this.#deriver.next(JSON.stringify(event)));
    return this;
  }

  text(messageId: string, ...deltas: readonly string[]): this {
    return this.push(
      { type: "TEXT_MESSAGE_START", messageId },
      ...deltas.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
      { type: "TEXT_MESSAGE_END", messageId },
    );
  }

  get keys(): readonly string[] {
    return this.messages.map(({ key }) => key);
  }
}

function bytesOf({ messages }: Run): readonly number[] {
  return messages.map(({ payload }) => Buffer.byteLength(payload));
}

describe("a payload fits the service's limit", () => {
  const payloadBytesMax = 1_000;
  const run = (): Run => new Run({ payloadBytesMax });

  test.each([
    ["as long as allowed", "x".repeat(1_000), "x".repeat(1_000)],
    ["a byte longer", "x".repeat(1_001), `${"x".repeat(800)}… [cut after 800 of 1001 characters]`],
    [
      "in long characters",
      "€".repeat(900),
      `${"€".repeat(266)}… [cut after 266 of 900 characters]`,
    ],
    ["far longer", "x".repeat(5_000), `${"x".repeat(800)}… [cut after 800 of 5000 characters]`],
  ])("as a text that is %s", (_, text, shown) => {
    const pieces = text.match(/.{1,7}/gu) ?? [];
    for (const deltas of [[text], pieces]) {
      const { messages } = run().text("m", ...deltas);
      expect(messages.map(({ payload }) => payload)).toEqual([shown]);
    }
  });

  test("as a tool's input, which is cut to a text", () => {
    const args = JSON.stringify({ text: "\u0007".repeat(1_000) });
    const events = [
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "add" },
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: args },
      { type: "TOOL_CALL_END", toolCallId: "c" },
    ];
    const { messages } = run().push(...events);
    expect(bytesOf(run().push(...events))[0]).toBeLessThanOrEqual(payloadBytesMax);
    expect(JSON.parse(messages[0]?.payload ?? "")).toMatchObject({
      tool: "add",
      input: { raw: expect.stringMatching(/^\{"text":.*… \[cut after 127 of 6011 characters\]$/) },
    });
  });

  test("as a custom value, which is cut to a text", () => {
    const limited = new Run({ payloadBytesMax: 20_000 });
    limited.push({ type: "CUSTOM", name: "n", value: "x".repeat(20_000) });
    expect(JSON.parse(limited.messages[0]?.payload ?? "")).toEqual({
      custom_event: "n",
      value: `"${"x".repeat(1_999)}… [cut after 2000 of 20002 characters]`,
    });
  });

  test("as an error", () => {
    const { messages } = run().push({ type: "RUN_ERROR", message: "\0".repeat(1_000) });
    expect(messages).toHaveLength(1);
    expect(Buffer.byteLength(messages[0]?.payload ?? "")).toBeLessThanOrEqual(payloadBytesMax);
  });

  test("or is not derived when its id or name alone is longer", () => {
    const long = "x".repeat(1_000);
    const { messages } = run().push(
      { type: "TOOL_CALL_RESULT", toolCallId: long, content: "a" },
      { type: "CUSTOM", name: long },
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: long },
      { type: "TOOL_CALL_END", toolCallId: "c" },
    );
    expect(messages).toEqual([]);
  });
});

describe("open constructs are limited", () => {
  const opened = (count: number): readonly Event[] =>
    Array.from({ length: count }, (_, at) => ({
      type: "TEXT_MESSAGE_CONTENT",
      messageId: `m${at}`,
      delta: `text ${at}`,
    }));

  test("in number: above 1,000 the oldest becomes a message, and continues as another", () => {
    const run = new Run().push(...opened(1_000));
    expect(run.messages).toEqual([]);
    run.push(...opened(1_002).slice(1_000));
    expect(run.messages.map(({ payload }) => payload)).toEqual(["text 0", "text 1"]);
    run.text("m0", ", the rest");
    expect(run.messages.at(-1)).toMatchObject({ payload: ", the rest", key: "r:assistant:m0:2" });
  });

  test("in size: above 24 Mi characters the oldest becomes a message", () => {
    const run = new Run({ payloadBytesMax: 8 * 1_048_576 });
    const delta = "x".repeat(7_000_000);
    for (const messageId of ["a", "b", "c"])
      run.push({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
    expect(run.messages).toEqual([]);
    run.push({ type: "TEXT_MESSAGE_CONTENT", messageId: "d", delta });
    expect(run.keys).toEqual(["r:assistant:a:1"]);
  });

  test("to no less than one text of the largest payload in single characters", () => {
    const deriver = new MessageDeriver();
    const content = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}';
    let early = 0;
    for (let at = 0; at < 1_048_576; at += 1) early += deriver.next(content).length;
    const [message] = deriver.next('{"type":"TEXT_MESSAGE_END","messageId":"m"}');
    expect(early).toBe(0);
    expect(message?.payload).toBe("x".repeat(1_048_576));
  });

  test("in lanes: above 1,000 subagents the messages of the oldest end", () => {
    const run = new Run();
    for (let at = 0; at <= 1_000; at += 1) {
      const ids = { messageId: "m", subagentRunId: `s${at}` };
      run.push({ type: "TEXT_MESSAGE_CHUNK", ...ids, delta: "a" });
    }
    expect(run.messages).toHaveLength(1_000);
  });
});

describe("a key of a message", () => {
  test("has the run, the type, the construct and its count", () => {
    const run = new Run().text("m", "a").text("n", "b").text("m", "c");
    run.push(
      { type: "TOOL_CALL_RESULT", toolCallId: "m", content: "" },
      { type: "CUSTOM", name: "m" },
      { type: "RUN_ERROR", message: "x" },
    );
    expect(run.keys).toEqual([
      "r:assistant:m:1",
      "r:assistant:n:1",
      "r:assistant:m:2",
      "r:tool_result:m:1",
      "r:system:m:1",
      "r:error:run_error:1",
    ]);
  });

  test("counts from 1 in another run, and continues in the same run", () => {
    const run = new Run().text("m", "a");
    run.push(STARTED).text("m", "b");
    run.push({ ...STARTED, runId: "s" }).text("m", "c");
    expect(run.keys).toEqual(["r:assistant:m:1", "r:assistant:m:2", "s:assistant:m:1"]);
  });

  test("is the same in a replay", () => {
    const events = (run: Run): Run => run.text("m", "a").text("m", "b").text("x".repeat(200), "c");
    expect(events(new Run()).messages).toEqual(events(new Run()).messages);
  });

  test("is a digest above 128 bytes, different for each message", () => {
    const room = 128 - "r:assistant::1".length;
    const run = new Run().text("x".repeat(room), "a").text("x".repeat(room + 1), "b");
    run
      .text("x".repeat(room + 2), "c")
      .text("é".repeat(room), "d")
      .text("é".repeat(room), "e");
    const [longest, ...digests] = run.keys;
    expect(longest).toHaveLength(128);
    for (const digest of digests) expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(new Set(run.keys).size).toBe(5);
  });

  test("has no characters that the service refuses", () => {
    const run = new Run().text("a\0", "a").text("b\ud800", "b").text("b\ud801", "c");
    for (const key of run.keys) expect(key).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(new Set(run.keys).size).toBe(3);
  });

  test("includes the content outside of a run", () => {
    const one = new Run({}, NO_RUN).text("m", "a");
    const other = new Run({}, NO_RUN).text("m", "b");
    expect(one.keys[0]).toMatch(/^:assistant:m:1:[0-9a-f]{16}$/);
    expect(other.keys[0]).not.toBe(one.keys[0]);
    expect(new Run({}, NO_RUN).text("m", "a").keys).toEqual(one.keys);
    expect(new Run({}, { type: "RUN_STARTED" }).text("m", "a").keys).toEqual(one.keys);
  });

  test("is unique above 10,000 messages of a run", () => {
    const run = new Run();
    const count = 10_005;
    for (let at = 0; at < count; at += 1) run.push({ type: "CUSTOM", name: `n${at}` });
    for (let at = 0; at < 3; at += 1) run.push({ type: "CUSTOM", name: "n10004" });
    expect(new Set(run.keys).size).toBe(count + 3);
    expect(run.keys.at(-1)).toBe("r:system:n10004:10008");
  });
});
