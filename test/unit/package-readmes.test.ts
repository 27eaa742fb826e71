/** Each package has a README whose example runs; that of the project explains each folder. */
import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { promisify } from "node:util";
import { expect, test } from "vitest";

/** A component has no output: test/unit/react-docs.test.ts compiles its example. */
const COMPONENTS = ["packages/react"];
const FOLDERS = ["gen", ...globSync("packages/*").toSorted()].filter(
  (folder) => !COMPONENTS.includes(folder),
);

test.each(FOLDERS)("%s/README.md is short, and its example prints its output", async (folder) => {
  const page = readFileSync(`${folder}/README.md`, "utf8");
  const { name } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  expect(page).toMatch(new RegExp(`^# ${name}\n`));
  const [, code = "", output] = /```ts\n(.*?)```\n\n```text\n(.*?)```/s.exec(page) ?? [];
  expect(page.slice(0, page.indexOf("```ts")).split("\n").length).toBeLessThanOrEqual(20);
  const args = ["--input-type=module-typescript", "--eval", code];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toBe(output);
});

test("the README of the project explains every folder of the top level", async () => {
  const { stdout } = await promisify(execFile)("git", ["ls-tree", "-d", "--name-only", "HEAD"]);
  const page = readFileSync("README.md", "utf8");
  const folders = page.slice(page.indexOf("\nFolders: "));
  const names = stdout.trim().split("\n");
  expect(names.length).toBeGreaterThan(5);
  expect(names.filter((name) => !folders.includes(`\`${name}\``))).toEqual([]);
});
