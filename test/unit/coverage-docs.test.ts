/** docs/coverage.md: every requirement has a place and a test, or a reason; each named test exists. */
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const PAGE = readFileSync("docs/coverage.md", "utf8");
const REASON = /^(?:Otherwise|Not met): \S/;

const rows = PAGE.split("\n")
  .filter((line) => line.startsWith("| ") && !/^\| (?:requirement|---) \|/.test(line))
  .map((line) => line.slice(2, -2).split(" | "));

test("every requirement has a place, and a test or a reason", () => {
  expect(rows.length).toBeGreaterThanOrEqual(40);
  const wrong = rows.filter(
    ([what = "", where = "", shown = "", ...more]) =>
      what === "" || where === "" || more.length > 0 || !(REASON.test(shown) || /: "/.test(shown)),
  );
  expect(wrong).toEqual([]);
});

test("the head of the page counts the requirements, and names each that is not met", () => {
  const unmet = rows.filter(([, , shown = ""]) => shown.startsWith("Not met: "));
  expect(PAGE).toContain(`${rows.length} rows of requirements; ${unmet.length} are not met:`);
  const listed = unmet.filter(([what = ""]) => PAGE.includes(`\n- ${what}: `));
  expect(listed).toEqual(unmet);
});

test("every named test exists, in the linked file or in any package", () => {
  const files = globSync("{src,test,packages,web,gen}/**/*.test.ts", {
    exclude: ["**/node_modules/**"],
  });
  const all = files.map((path) => readFileSync(path, "utf8")).join("\n");
  const missing = rows.flatMap(([, , shown = ""]) =>
    [...shown.matchAll(/(?:\]\(\.\.\/(test\/[\w/.-]+)\))?: "([^"]+)"/g)].filter(
      ([, path, title = ""]) =>
        !(path === undefined ? all : readFileSync(path, "utf8")).includes(title),
    ),
  );
  expect(missing.map(([found]) => found)).toEqual([]);
});
