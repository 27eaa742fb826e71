/** docs/limits.md says what is: its settings and their defaults, its metrics, and the tests it names. */
import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { SERVICE_SETTINGS } from "../../src/config/table.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const PAGE = readFileSync("docs/limits.md", "utf8");
const COLUMNS = ["limit", "setting", "default", "unit", "over it", "metric", "test"];

interface Limit {
  readonly what: string;
  readonly setting: string | undefined;
  readonly fallback: string;
  readonly metrics: readonly string[];
  readonly tests: readonly { readonly file: string; readonly title: string }[];
}

const tables = PAGE.split("\n").filter((line) => line.startsWith("| "));
const cellsOf = (line: string): readonly string[] =>
  line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
const limits: readonly Limit[] = tables
  .map(cellsOf)
  .filter(([first = ""]) => first !== "limit" && !first.startsWith("---"))
  .map(([what = "", setting = "", fallback = "", , , metrics = "", tests = ""]) => ({
    what,
    setting: /`(\w+)`/.exec(setting)?.[1],
    fallback,
    metrics: [...metrics.matchAll(/`(\w+)`/g)].map((match) => match[1] ?? ""),
    tests: [...tests.matchAll(/`([\w/.-]+)`: "([^"]+)"/g)].map((match) => ({
      file: `test/${match[1]}.test.ts`,
      title: match[2] ?? "",
    })),
  }));

test("each table has the same columns", () => {
  const heads = tables.map(cellsOf).filter(([first]) => first === "limit");
  expect(heads.length).toBeGreaterThan(0);
  for (const head of heads) expect(head).toEqual(COLUMNS);
});

test("settings exist and have the default that is said", () => {
  const defaults = new Map(
    Object.values(SERVICE_SETTINGS).map(({ name, fallback }): [string, string | undefined] => [
      name,
      fallback,
    ]),
  );
  const wrong = limits.filter(
    ({ setting, fallback }) => setting !== undefined && defaults.get(setting) !== fallback,
  );
  expect(wrong).toEqual([]);
});

test("no setting that is a limit is missing", () => {
  const named = new Set(limits.map(({ setting }) => setting));
  const all = Object.values(SERVICE_SETTINGS).map(({ name }) => name);
  const wanted = all.filter((name) => /_PER_SECOND$|_MAX$/.test(name) && !/TTL/.test(name));
  expect(wanted.filter((name) => !named.has(name))).toEqual([]);
});

test("each has a metric, and it exists", async () => {
  const text = await createMetrics().text();
  for (const { what, metrics } of limits) {
    const missing = metrics.filter((name) => !text.includes(`# HELP ${name} `));
    expect([what, missing]).toEqual([what, []]);
  }
  const without = limits.filter(({ metrics }) => metrics.length === 0);
  expect(without.map(({ what }) => what)).toEqual([]);
});

test("each has a test at its border, by its file and title", () => {
  for (const { what, tests } of limits) {
    const wrong = tests.filter(
      ({ file, title }) => !existsSync(file) || !readFileSync(file, "utf8").includes(title),
    );
    expect([what, wrong]).toEqual([what, []]);
  }
  expect(limits.filter(({ tests }) => tests.length === 0).map(({ what }) => what)).toEqual([]);
});
