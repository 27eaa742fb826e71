/** The example of docs/compression.md prints the output on the page, and all named tests exist. */
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";

const run = promisify(execFile);

const ROOT = join(import.meta.dirname, "../../..");
const PAGE = readFileSync(join(ROOT, "docs/compression.md"), "utf8");

function block(pattern: RegExp): string {
  const [, text] = pattern.exec(PAGE) ?? [];
  if (text === undefined) throw new Error(`nothing like ${pattern} on the page`);
  return text;
}

test("the example prints the output on the page", async () => {
  const code = block(/```ts\n(.*?)```/s);
  const { stdout } = await run(process.execPath, [
    "--input-type=module-typescript",
    "--eval",
    code,
  ]);
  expect(stdout).toBe(block(/prints\n\n```\n(.*?)```/s));
});

test("the limits on the page are the defaults", () => {
  const said = [...PAGE.matchAll(/\| `(\w+(?:Max|Ms))` \| (\d+)/g)].map(([, name, value]) => [
    name,
    Number(value),
  ]);
  expect(Object.fromEntries(said)).toEqual(COMPRESSOR_LIMITS);
});

test("every test named on the page exists", () => {
  const invariants = PAGE.slice(PAGE.indexOf("## Invariants"));
  const matches = (pattern: RegExp): readonly string[] =>
    [...invariants.matchAll(pattern)].map(([, found]) => found ?? "");
  const paths = matches(/`((?:packages\/compressor\/)?test\/[\w/.-]+\.ts)`/g);
  expect(paths.length).toBeGreaterThan(0);
  expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  const files = paths.map((path) => readFileSync(join(ROOT, path), "utf8")).join("\n");
  const titles = matches(/"([^"]+?)(?: …)?"/g);
  expect(titles.length).toBeGreaterThan(0);
  expect(titles.filter((title) => !files.includes(title))).toEqual([]);
});
