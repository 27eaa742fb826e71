/**
 * Lines are read as they are in the input, with its chunks cut anywhere: within a character,
 * between CR and LF, before the first byte.
 *
 * Method: random lines are joined with random ends, the bytes cut at random places; the model is
 * the list of lines.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type Line, readLines } from "@session-ledger/runner/internal/lines";
import { properties } from "../../../test/support/random.ts";

const BYTES_MAX = 12;

async function linesOf(chunks: readonly Uint8Array[]): Promise<readonly Line[]> {
  async function* source(): AsyncGenerator<Uint8Array> {
    yield* chunks;
  }
  const lines: Line[] = [];
  for await (const line of readLines(source(), { bytesMax: BYTES_MAX })) lines.push(line);
  return lines;
}

function cut(bytes: Uint8Array, places: readonly number[]): readonly Uint8Array[] {
  const starts = [...new Set([0, ...places.map((place) => place % (bytes.length + 1))])];
  const ordered = starts.toSorted((a, b) => a - b);
  return ordered.map((start, index) => bytes.subarray(start, ordered[index + 1]));
}

const line = fc.string({
  unit: fc.constantFrom("a", "é", "€", "😀", " ", "\u2028", "\u0085", "{"),
  maxLength: 6,
});
const ended = fc.tuple(line, fc.constantFrom("\n", "\r\n"));

test("lines are the same with chunks cut anywhere", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(ended, { maxLength: 6 }),
      line,
      fc.array(fc.nat(200), { maxLength: 12 }),
      async (lines, last, places) => {
        const input = Buffer.from(lines.map(([text, end]) => text + end).join("") + last);
        const texts = [...lines.map(([text]) => text), ...(last === "" ? [] : [last])];
        const ends = [...lines, ...(last === "" ? [] : [[last, ""] as const])].reduce<number[]>(
          (known, [text, end]) => [...known, (known.at(-1) ?? 0) + Buffer.byteLength(text + end)],
          [],
        );
        expect(await linesOf(cut(input, places))).toEqual(
          texts.map((text, index) => ({
            number: index + 1,
            bytes: Buffer.byteLength(text) > BYTES_MAX ? undefined : Buffer.from(text),
            endByte: ends[index],
          })),
        );
      },
    ),
    properties({ runs: 500 }),
  );
});

test.each([
  ["as long as allowed", "x".repeat(BYTES_MAX), true],
  ["as long as allowed, with CR LF", `${"x".repeat(BYTES_MAX)}\r`, true],
  ["one byte longer", "x".repeat(BYTES_MAX + 1), false],
  ["one byte longer, with CR LF", `${"x".repeat(BYTES_MAX + 1)}\r`, false],
])("a line is kept by its length: %s", async (_, text, isKept) => {
  const [first, second] = await linesOf([Buffer.from(`${text}\nnext\n`)]);
  expect(first?.bytes !== undefined).toBe(isKept);
  expect(second?.bytes?.toString()).toBe("next");
});
