import { describe, expect, test } from "vitest";
import {
  ANNOUNCEMENT_BYTES_MAX,
  decodeAnnouncement,
  encodeAnnouncement,
} from "../../src/live/hints/notifier.ts";
import type { SessionHead } from "../../src/store/rows.ts";

const head = (fields: Partial<SessionHead> = {}): SessionHead => ({
  messageSeq: 0n,
  eventSeq: 0n,
  deleted: false,
  ...fields,
});

describe("an announcement", () => {
  test("is a line that people can read", () => {
    const sessions = new Map([
      ["s:1", head({ messageSeq: 3n, eventSeq: 40n })],
      ["s2", head({ deleted: true })],
    ]);
    expect(encodeAnnouncement({ from: "me", sessions })).toBe("1 me s:1/3/40 s2/0/0/d");
    expect(encodeAnnouncement({ from: "me", sessions: "any" })).toBe("1 me *");
  });

  test("names no sessions when it would be too long", () => {
    const fill = (ids: number) =>
      new Map(Array.from({ length: ids }, (_, at) => [String(at).padStart(122, "x"), head()]));
    // "1 me", and 127 bytes an entry: 62 are 7,878 bytes.
    const fits = encodeAnnouncement({ from: "me", sessions: fill(62) });
    expect(Buffer.byteLength(fits)).toBe(7_878);
    const exactly = new Map([...fill(62), ["y".repeat(116), head()]]);
    expect(encodeAnnouncement({ from: "me", sessions: exactly })).toHaveLength(
      ANNOUNCEMENT_BYTES_MAX,
    );
    const tooLong = new Map([...fill(62), ["y".repeat(117), head()]]);
    expect(encodeAnnouncement({ from: "me", sessions: tooLong })).toBe("1 me *");
  });

  test.each(["", "a b", "a/b", "ü", "\u{1F600}", "a\0"])(
    "cannot name the session %j, and names none instead",
    (sessionId) => {
      const sessions = new Map([[sessionId, head({ eventSeq: 1n })]]);
      expect(encodeAnnouncement({ from: "me", sessions })).toBe("1 me *");
    },
  );
});

describe("an unreadable announcement", () => {
  test.each([
    ["an empty text", ""],
    ["a later form", "2 you s/1/2"],
    ["something else", '{"hello":"world"}'],
    ["an endless text", `1 you ${"s/1/2 ".repeat(10_000)}`],
  ])("has no sender and may concern any session: %s", (_, text) => {
    expect(decodeAnnouncement(text)).toEqual({ from: "", sessions: "any" });
  });

  test.each([
    ["a flag of a later version", "1 you s/1/2 t/3/4/e"],
    ["an invalid number", "1 you s/1/x"],
    ["a number that is too long", "1 you s/1/99999999999999999999"],
    ["a negative number", "1 you s/-1/2"],
    ["too few numbers", "1 you s/1"],
    ["two spaces", "1 you  s/1/2"],
    ["a text that was cut off", "1 you s/1/"],
  ])("may concern any session when one entry is unreadable: %s", (_, text) => {
    expect(decodeAnnouncement(text)).toEqual({ from: "you", sessions: "any" });
  });
});
