/**
 * The compressor in a browser: its published entry as a bundle, in a page of a real Chromium, does with
 * a stream what it does here, to the byte. What the bundle is made of is looked at with or without one.
 */
import { join } from "node:path";
import { buildSync } from "esbuild";
import { describe, expect, test } from "vitest";
import { encodeFragments } from "@session-ledger/compressor/index";
import { runInPage } from "../support/browser.ts";
import { compressAll, expandAll } from "../support/merging.ts";
import { ownStreams } from "../support/streams.ts";
import { needs } from "../support/tools.ts";
import { pageUrl } from "../support/use-service.ts";

/** Of the bundle, minified. */
const BUNDLE_BYTES_MAX = 24 * 1_024;

const ROOT = join(import.meta.dirname, "../..");

function bundle(): { readonly text: string; readonly inputs: readonly string[] } {
  const { outputFiles, metafile } = buildSync({
    absWorkingDir: ROOT,
    entryPoints: ["packages/compressor/src/index.ts"],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    platform: "browser",
    format: "iife",
    globalName: "compressor",
  });
  return { text: outputFiles[0]?.text ?? "", inputs: Object.keys(metafile.inputs) };
}

function spoken(delta: string, timestamp: number) {
  const payload = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","timestamp":${timestamp},"delta":"${delta}"}`;
  return { eventType: "TEXT_MESSAGE_CONTENT", payload };
}

/** A pair that is split, in escapes and as it is; white space, nothing, and what JSON has to escape. */
const TOKENS = [
  "Hello",
  " 😀",
  "",
  "\\ud83d",
  "\\ude00",
  "\\n",
  " ",
  "\\u0000é",
  "\ud83d",
  "\ude00",
];

const EVENTS = [
  ...TOKENS.map((token, at) => spoken(token, 1_770_389_237_000 + at * at)),
  ...ownStreams().flatMap(({ events }) => events),
];

/** Runs in the page, where `compressor` is the bundle. It answers in the title, as that is all text. */
const PAGE_SCRIPT = `
  const rows = [];
  const made = new compressor.Compressor({ maxAgeMs: 5_000 });
  for (const { eventType, payload } of EVENTS)
    rows.push(...made.push({ eventType, payload, createdAtMicros: 5n }, performance.now()));
  const last = made.flush();
  if (last) rows.push(last);
  let seq = 1n;
  const answer = rows.map((row) => {
    const index = row.fragments && compressor.encodeFragments(row.fragments);
    const fragments = index && compressor.decodeFragments(index);
    const events = [...compressor.expand({ ...row, seq, fragments })];
    seq += BigInt(row.eventCount);
    return { payload: row.payload, index: index && [...index], events: events.map((event) => event.payload) };
  });
  return JSON.stringify(answer);
`;

interface PageRow {
  readonly payload: string;
  readonly index?: readonly number[];
  readonly events: readonly string[];
}

describe("the bundle for browsers", () => {
  test("contains only the compressor and its small part of the AG-UI code", () => {
    const { text, inputs } = bundle();
    const foreign = inputs.filter((path) => !/^packages\/(?:compressor|agui|base)\//.test(path));
    expect(foreign).toEqual([]);
    expect(inputs).toContain("packages/compressor/src/compressor.ts");
    expect(Buffer.byteLength(text)).toBeGreaterThan(0);
    expect(Buffer.byteLength(text)).toBeLessThan(BUNDLE_BYTES_MAX);
  });

  test(
    "compresses and expands a stream in chromium exactly as Node does",
    needs("chromium"),
    async () => {
      const script = `${bundle().text}\nconst EVENTS = ${JSON.stringify(EVENTS)};\n${PAGE_SCRIPT}`;
      const answer: readonly PageRow[] = JSON.parse(
        String(await runInPage(script, pageUrl("localhost"))),
      );

      const rows = compressAll(EVENTS.map((event) => ({ ...event, createdAtMicros: 5n })));
      expect(answer.map(({ payload, index }) => ({ payload, index }))).toEqual(
        rows.map(({ payload, fragments }) => ({
          payload,
          index: fragments && [...encodeFragments(fragments)],
        })),
      );
      const events = answer.flatMap((row) => row.events);
      expect(events).toEqual(expandAll(rows).map(({ payload }) => payload));
      expect(events.map((payload): unknown => JSON.parse(payload))).toEqual(
        EVENTS.map(({ payload }): unknown => JSON.parse(payload)),
      );
    },
  );
});
