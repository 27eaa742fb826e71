/**
 * JSON lines are written and read. The result does not depend on where the input was cut.
 *
 * Method: random JSON values are printed with random ends of lines, empty lines and a byte order
 * mark, the bytes, or the text, cut at random places; the model is the list of values and their
 * numbers.
 */
import { PassThrough, Readable } from "node:stream";
import { ReadableStream } from "node:stream/web";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  fromJsonLines,
  type JsonLine,
  JsonLinesError,
  toJsonLines,
} from "@session-ledger/runner/internal/lines";
import { properties } from "../../../test/support/random.ts";

type Chunk = string | Uint8Array;

async function* source(chunks: readonly Chunk[]): AsyncGenerator<Chunk> {
  yield* chunks;
}

async function all<T>(values: AsyncIterable<T>): Promise<readonly T[]> {
  const list: T[] = [];
  for await (const one of values) list.push(one);
  return list;
}

async function read(
  chunks: readonly Chunk[],
  options?: { readonly lineBytesMax: number },
): Promise<readonly JsonLine[]> {
  return all(fromJsonLines(source(chunks), options));
}

/** The values that were read, and the error that ended the reading. */
async function readToError(
  chunks: AsyncIterable<Chunk>,
  options?: { readonly lineBytesMax: number },
): Promise<{ readonly values: readonly unknown[]; readonly error: unknown }> {
  const values: unknown[] = [];
  try {
    for await (const { value } of fromJsonLines(chunks, options)) values.push(value);
  } catch (error) {
    return { values, error };
  }
  return { values, error: undefined };
}

function cut<T extends string | Uint8Array>(
  whole: T,
  places: readonly number[],
  slice: (start: number, end: number) => T,
): readonly T[] {
  const ends = [...places.map((place) => place % (whole.length + 1)), whole.length];
  return ends.toSorted((a, b) => a - b).map((end, at, ordered) => slice(ordered[at - 1] ?? 0, end));
}

const value = fc.jsonValue({ maxDepth: 2, stringUnit: "grapheme" });
const blank = fc.constantFrom("", " ", "\t ", " \r");
const line = fc.oneof(
  { weight: 4, arbitrary: value.map((one) => ({ text: JSON.stringify(one), isBlank: false })) },
  blank.map((text) => ({ text, isBlank: true })),
);

interface Printed {
  readonly text: string;
  readonly expected: readonly { readonly number: number; readonly text: string }[];
}

const printed = fc
  .record({
    hasMark: fc.boolean(),
    lines: fc.array(fc.tuple(line, fc.constantFrom("\n", "\r\n"))),
    isEnded: fc.boolean(),
  })
  .map(({ hasMark, lines, isEnded }): Printed => {
    const texts = lines.map(([one]) => one);
    const ends = lines.map(([, end], at) => (isEnded || at < lines.length - 1 ? end : ""));
    const joined = texts.map(({ text }, at) => `${text}${ends[at]}`).join("");
    return {
      text: `${hasMark ? "\uFEFF" : ""}${joined}`,
      expected: texts
        .map(({ text, isBlank }, at) => ({ number: at + 1, text, isBlank }))
        .filter(({ isBlank }) => !isBlank)
        .map(({ number, text }) => ({ number, text })),
    };
  });

const places = fc.array(fc.nat(10_000), { maxLength: 12 });

test("lines are read the same with their bytes cut anywhere", async () => {
  await fc.assert(
    fc.asyncProperty(printed, places, async ({ text, expected }, at) => {
      const bytes = Buffer.from(text);
      const chunks = cut(bytes, at, (start, end) => bytes.subarray(start, end));
      const lines = await read(chunks);
      expect(lines.map(({ number, text: own }) => ({ number, text: own }))).toEqual(expected);
      expect(lines.map((one) => one.value)).toEqual(lines.map((one) => JSON.parse(one.text)));
    }),
    properties({ runs: 500 }),
  );
});

test("lines are read the same with their text cut anywhere, also within a character", async () => {
  await fc.assert(
    fc.asyncProperty(
      printed,
      places,
      fc.array(fc.boolean()),
      async ({ text, expected }, at, mixed) => {
        const texts = cut(text, at, (start, end) => text.slice(start, end));
        const isWhole = (piece: string): boolean => piece.isWellFormed();
        // Bytes and texts may alternate where the cut is between two characters.
        const chunks = texts.every(isWhole)
          ? texts.map((piece, index) => (mixed[index] === true ? Buffer.from(piece) : piece))
          : texts;
        const lines = await read(chunks);
        expect(lines.map(({ number, text: own }) => ({ number, text: own }))).toEqual(expected);
      },
    ),
    properties({ runs: 500 }),
  );
});

test.each([
  ["the input", ['"a"\n', "7\ud83d"], 2],
  ["bytes", ['"a\ud83d', Buffer.from('"')], undefined],
])("half a character before the end of %s is not lost", async (_, chunks, lineNumber) => {
  const { values, error } = await readToError(source(chunks));
  expect(lineNumber === undefined ? values : error).toMatchObject(
    lineNumber === undefined ? ["a\ufffd"] : { lineNumber, reason: "NOT_JSON" },
  );
});

test("written values are read back", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(value), async (values) => {
      const lines = await all(toJsonLines(values.map((one) => ({ one }))));
      for (const one of lines) expect(one).toMatch(/^[^\r\n]*\n$/);
      expect((await read(lines)).map((one) => one.value)).toEqual(
        JSON.parse(JSON.stringify(values.map((one) => ({ one })))),
      );
    }),
    properties({ runs: 300 }),
  );
});

describe("toJsonLines", () => {
  test("writes a text unchanged on one line", async () => {
    const texts = ['{"n":1.0,"id":9007199254740993}', '{\r\n  "a": "\\n"\n}'];
    expect(await all(toJsonLines(texts))).toEqual([
      '{"n":1.0,"id":9007199254740993}\n',
      '{   "a": "\\n" }\n',
    ]);
  });

  test("refuses a value without a JSON text", async () => {
    await expect(all(toJsonLines([undefined]))).rejects.toThrow(TypeError);
  });
});

describe("an unreadable line is an error with its number", () => {
  test.each([
    ["NOT_JSON", ['{"a":1}\n\n{"a":\n'], 3, "line 3 is not JSON"],
    ["NOT_JSON", ["1\n", "2 3"], 2, "line 2 is not JSON"],
    ["NOT_JSON", ["1\n", "\u00a0\n"], 2, "line 2 is not JSON"],
    ["NOT_JSON", ["1\n", "\uFEFF2\n"], 2, "line 2 is not JSON"],
    ["NOT_UTF8", ["1\n", Buffer.from('"é"').subarray(0, 2)], 2, "line 2 is not UTF-8"],
    ["LINE_TOO_LONG", ["1\n", '"123456789"\n', "2\n"], 2, "line 2 is longer than 10 bytes"],
  ])("as %s for %j", async (reason, chunks, lineNumber, message) => {
    const { values, error } = await readToError(source(chunks), { lineBytesMax: 10 });
    expect(values).toEqual(lineNumber === 3 ? [{ a: 1 }] : [1]);
    expect(error).toBeInstanceOf(JsonLinesError);
    expect(error).toMatchObject({ reason, lineNumber, message });
  });

  test.each([
    ["as long as allowed", '"12345678"'],
    ["as long as allowed, before CR LF", '"12345678"\r'],
  ])("but a line is read when it is %s", async (_, text) => {
    expect(await read([`${text}\n2`], { lineBytesMax: 10 })).toHaveLength(2);
  });

  test("before a line without an end is complete", async () => {
    let given = 0;
    let isLeft = false;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (; given < 1_000; given += 1) yield Buffer.alloc(1_024, "x");
      } finally {
        isLeft = true;
      }
    }
    const { error } = await readToError(endless(), { lineBytesMax: 10_000 });
    expect(error).toMatchObject({ reason: "LINE_TOO_LONG", lineNumber: 1 });
    expect({ given, isLeft }).toEqual({ given: 9, isLeft: true });
  });
});

test("a line that arrives byte by byte needs about its own size in memory", async () => {
  const bytes = 262_144;
  setFlagsFromString("--expose-gc");
  const collectGarbage: unknown = runInNewContext("gc");
  const used = (): number => {
    if (typeof collectGarbage === "function") collectGarbage();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const before = used();
  let most = 0;
  async function* byteByByte(): AsyncGenerator<string> {
    yield '"';
    for (let at = 2; at < bytes; at += 1) {
      if (at % 32_768 === 0) most = Math.max(most, used());
      yield "x";
    }
    yield '"';
  }
  const [one] = await all(fromJsonLines(byteByByte()));
  expect(one?.text).toHaveLength(bytes);
  // A list of its pieces took 113 times as much memory.
  expect((most - before) / bytes).toBeLessThan(8);
});

describe("a source", () => {
  const values = async (chunks: AsyncIterable<Chunk>): Promise<readonly unknown[]> =>
    (await all(fromJsonLines(chunks))).map((one) => one.value);

  test("may be a web stream, a response's body or a Node stream", async () => {
    const web = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(Buffer.from("1\n2"));
        controller.close();
      },
    });
    expect(await values(web)).toEqual([1, 2]);
    const { body } = new Response("1\n2");
    expect(await values(body ?? source([]))).toEqual([1, 2]);
    expect(await values(Readable.from([Buffer.from("1\n2")]))).toEqual([1, 2]);
  });

  test("is closed when the reader stops", async () => {
    const stream = new PassThrough();
    stream.write("1\n2\n");
    for await (const one of fromJsonLines(stream)) {
      expect(one.value).toBe(1);
      break;
    }
    expect(stream.destroyed).toBe(true);
  });
});
