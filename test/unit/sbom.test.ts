/** The list of dependencies that a release ships has what package.json names, and nothing of development. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { z } from "zod";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const versions = z.record(z.string(), z.string());
const packageSchema = z.object({ dependencies: versions, devDependencies: versions });
const listSchema = z.object({
  bomFormat: z.literal("CycloneDX"),
  components: z.array(z.looseObject({ "bom-ref": z.string() })),
});

test("the SBOM has every dependency in its version", async () => {
  const { stdout } = await run(`${root}/.ci/sbom`, { maxBuffer: 64 * 1024 * 1024 });
  const listed = listSchema.parse(JSON.parse(stdout)).components.map((one) => one["bom-ref"]);
  const named = packageSchema.parse(JSON.parse(readFileSync(`${root}/package.json`, "utf8")));
  const expected = Object.entries(named.dependencies).map(
    ([name, version]) => `${name}@${version}`,
  );
  expect(expected.filter((one) => !listed.includes(one))).toEqual([]);
  const tools = ["vitest", "typescript", "oxlint"];
  expect(tools.every((tool) => tool in named.devDependencies)).toBe(true);
  expect(listed.filter((one) => tools.some((tool) => one.startsWith(`${tool}@`)))).toEqual([]);
});
