/** The lines of a body are the same for every division into pieces. */
import { array, assert, constantFrom, nat, property, string } from "fast-check";
import { describe, expect, test } from "vitest";
import { LineReader, type Lines } from "../../src/http/plumbing/lines.ts";

function readAll(pieces: readonly Buffer[], bytesMax = 1_000): Lines {
  const reader = new LineReader({ bytesMax });
  const lines: string[] = [];
  for (const piece of pieces) {
    const read = reader.read(piece);
    lines.push(...read.lines);
    if (read.fault !== undefined) return { lines, fault: read.fault };
  }
  const last = reader.readLast();
  return { ...last, lines: [...lines, ...last.lines] };
}

function piecesOf(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length];
  const sorted = places.toSorted((a, b) => a - b);
  return sorted.slice(1).map((end, at) => bytes.subarray(sorted[at], end));
}

describe("the lines of a body", () => {
  test("are those of the whole text, without white space around them", () => {
    const text = string({ unit: constantFrom("a", "é", "😀", " ", "\n", "\r\n", "\t") });
    assert(
      property(text, array(nat(), { maxLength: 8 }), (body, cuts) => {
        const expected = body
          .split("\n")
          .map((line) => line.trim())
          .filter((line) => line !== "");
        expect(readAll(piecesOf(Buffer.from(body), cuts))).toEqual({ lines: expected });
      }),
    );
  });

  // Bug: whether the mark of a later line was skipped depended on the pieces, and on String.trim.
  test("begin after one byte order mark, and keep any other", () => {
    const body = Buffer.from("\uFEFF\uFEFFa\n\uFEFFb\nc\uFEFF\n\uFEFF");
    const lines = ["\uFEFFa", "\uFEFFb", "c\uFEFF", "\uFEFF"];
    for (let at = 0; at <= body.length; at += 1)
      expect(readAll(piecesOf(body, [at]))).toEqual({ lines });
  });

  test("end at the first that is not UTF-8, and at one that is too long", () => {
    const wrong = Buffer.concat([Buffer.from("a\nb\n"), Buffer.of(0xff), Buffer.from("\nc\n")]);
    for (let at = 0; at < wrong.length; at += 1)
      expect(readAll(piecesOf(wrong, [at]))).toEqual({ lines: ["a", "b"], fault: "not UTF-8" });
    const long = [Buffer.from("a\nbbbb"), Buffer.from("bbbb"), Buffer.from("\n")];
    expect(readAll(long, 8)).toEqual({ lines: ["a", "b".repeat(8)] });
    expect(readAll(long, 7)).toEqual({ lines: ["a"], fault: "too long" });
  });

  test("that are incomplete hold at most twice their bytes", () => {
    const reader = new LineReader({ bytesMax: 1_000_000 });
    const excess = Array.from({ length: 100_000 }, (_, at) => {
      reader.read(Buffer.from("x"));
      return reader.heldBytes - (at + 1) * 2;
    });
    expect(Math.max(...excess)).toBeLessThanOrEqual(256);
    expect(reader.isInLine).toBe(true);
    reader.read(Buffer.from("\n"));
    expect({ held: reader.heldBytes, isInLine: reader.isInLine }).toEqual({
      held: 0,
      isInLine: false,
    });
  });
});
