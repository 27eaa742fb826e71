import { describe, expect, test } from "vitest";
import { lineKeys, rowLine } from "../../src/cli/push-lines.ts";
import type { Line } from "@session-ledger/runner/internal/lines";

function lineOf(text: string | Uint8Array, number = 2): Line {
  return { number, bytes: Buffer.from(text), endByte: 0 };
}

const eventLine = (line: Line) => rowLine(line, "events");

describe("a line", () => {
  test.each([
    '{"type":"RUN_STARTED"}',
    ' {"delta" : "\\u0000 \\ud800 é", "type":"X" , "n": 1.0e2 }\t',
    '{"type":"X","type":"Y"}', // The service refuses a repeated key, not the client.
  ])("is an event whose payload has the same bytes: %s", (text) => {
    expect(eventLine(lineOf(text))).toMatchObject({ kind: "row", payload: text });
  });

  test("is an event with the type of its top level", () => {
    expect(eventLine(lineOf('{"a":{"type":"no"},"type":"CUSTOM"}'))).toMatchObject({
      eventType: "CUSTOM",
    });
  });

  test.each(["", "  ", "\t \r"])("is empty: %j", (text) => {
    expect(eventLine(lineOf(text))).toEqual({ kind: "empty" });
  });

  test.each([
    ["{", "NOT_JSON"],
    ["[]", "NOT_JSON"],
    ["null", "NOT_JSON"],
    ['"RUN_STARTED"', "NOT_JSON"],
    ['{"type":"X"} {"type":"Y"}', "NOT_JSON"],
    ['{"type":"a\u0000"}', "NOT_JSON"],
    ["\u00a0", "NOT_JSON"],
    ["{}", "NO_TYPE"],
    ['{"type":7}', "NO_TYPE"],
    ['{"type":""}', "NO_TYPE"],
  ])("is refused: %j, %s", (text, reason) => {
    expect(eventLine(lineOf(text))).toMatchObject({ kind: "refused", reason });
  });

  test("is refused when it is not UTF-8, instead of stored with U+FFFD", () => {
    const broken = Buffer.from('{"type":"X","delta":"é"}').subarray(0, 22);
    const bytes = Buffer.concat([broken, Buffer.from('"}')]);
    expect(bytes.toString()).toContain("\uFFFD");
    expect(eventLine(lineOf(bytes))).toMatchObject({ kind: "refused", reason: "NOT_UTF8" });
  });

  test("is refused when it is too long to hold", () => {
    expect(eventLine({ number: 1, bytes: undefined, endByte: 0 })).toMatchObject({
      kind: "refused",
      reason: "LINE_TOO_LONG",
    });
  });

  test("loses its byte order mark only when it is the first", () => {
    const text = '{"type":"X"}';
    expect(eventLine(lineOf(`\uFEFF${text}`, 1))).toMatchObject({ kind: "row", payload: text });
    expect(eventLine(lineOf(`\uFEFF${text}`, 2))).toMatchObject({ reason: "NOT_JSON" });
  });
});

describe("a line of messages", () => {
  const messageLine = (text: string) => rowLine(lineOf(text), "messages");

  test("is a message as tail prints it, without the number and id of its session", () => {
    const line =
      '{"id":"m","seq":"7","eventType":"user","payload":"hi","sentAt":"2026-11-23T09:00:00Z","sender":{"id":"U1"}}';
    expect(messageLine(line)).toMatchObject({
      kind: "row",
      eventType: "user",
      payload: "hi",
      sender: { id: "U1" },
      sentAt: { seconds: 1_795_424_400n },
    });
    expect(messageLine(line)).not.toHaveProperty("seq");
    expect(messageLine('{"event_type":"user","payload":"hi"}')).toMatchObject({ payload: "hi" });
  });

  test.each([
    ['{"payload":"hi"}', "NO_TYPE"],
    ['{"eventType":"user","payload":7}', "NOT_A_MESSAGE"],
    ["hello", "NOT_A_MESSAGE"],
  ])("is refused: %s", (text, reason) => {
    expect(messageLine(text)).toMatchObject({ kind: "refused", reason });
  });

  test("is the text of a user's message where the form is text", () => {
    const payload = '{"type":"X"} and more';
    expect(rowLine(lineOf(payload), "text")).toEqual({ kind: "row", eventType: "user", payload });
  });
});

describe("the keys of an input", () => {
  function keysOf(texts: readonly string[], prefix?: string): readonly string[] {
    const keyOf = lineKeys(prefix);
    return texts.map((text, index) => keyOf(lineOf(text, index + 1)));
  }

  test("are the same when the input is sent again, also when it has grown", () => {
    const keys = keysOf(["a", "b", "b"]);
    expect(keysOf(["a", "b", "b", "c"]).slice(0, 3)).toEqual(keys);
    expect(new Set(keys).size).toBe(3);
  });

  test("differ after the first line that differs, so that equal lines of two runs are two events", () => {
    const [first, second] = [keysOf(["run 1", "step"]), keysOf(["run 2", "step"])];
    expect(first[1]).not.toBe(second[1]);
    expect(keysOf(["ab", "c"])[1]).not.toBe(keysOf(["a", "bc"])[1]);
  });

  test("are the prefix and the line number when a prefix is given", () => {
    expect(keysOf(["a", "b"], "import-7")).toEqual(["import-7:1", "import-7:2"]);
    expect(keysOf(["x", "y"], "import-7")).toEqual(["import-7:1", "import-7:2"]);
  });

  test("fit into the 128 bytes of the contract", () => {
    const number = Number.MAX_SAFE_INTEGER;
    expect(lineKeys(undefined)(lineOf("x", number)).length).toBeLessThanOrEqual(128);
  });
});
