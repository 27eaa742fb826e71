/** The packages of this folder are installed by `npm ci --prefix test/frameworks`; nothing else needs them. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";

const FREE = ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense"];
/** Licences of their owners: the packages may be used, and are no part of what is published. */
const OTHERS = ["@anthropic-ai/claude-agent-sdk"];

const lockSchema = z.object({
  packages: z.record(
    z.string(),
    z.object({ license: z.string().optional(), optional: z.literal(true).optional() }),
  ),
});

test("the frameworks are free software, but for those that are named", () => {
  const text = readFileSync(join(import.meta.dirname, "package-lock.json"), "utf8");
  const { packages } = lockSchema.parse(JSON.parse(text));
  const others = Object.entries(packages)
    .filter(([, { license = "none", optional }]) => optional !== true && !isFree(license))
    .map(([path]) => path.replace("node_modules/", ""));
  expect(others).toEqual(OTHERS);
});

/** "(MIT OR Apache-2.0)" leaves the choice. */
function isFree(license: string): boolean {
  return license.split(/[()\s]+/).some((name) => FREE.includes(name));
}
