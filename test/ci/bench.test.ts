/**
 * Each benchmark runs to its end with the smallest load and prints figures. Whether the figures are good is
 * for a person to judge, on a quiet machine.
 */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test, type TestContext } from "vitest";
import { z } from "zod";
import { readOptions } from "../bench/options.ts";
import { needs } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

const documentSchema = z.object({ benches: z.record(z.string(), z.record(z.string(), z.json())) });

test.for([
  ["push", "--calls", "128"],
  ["read", "--calls", "2000"],
  ["watch", "--parts", "fanOut"],
  ["join", "--calls", "200"],
  ["compression"],
  ["stream", "--calls", "500"],
  ["start"],
  ["hostile", "--parts", "7"],
  ["turns", "--calls", "2"],
  ["lists"],
  ["against", "--old", ROOT, "--parts", "doors", "--calls", "64"],
  ["profile", "push", "--calls", "128"],
])(
  "with h2load, the benchmark %s ends well, and each of its ratios is a number",
  needs("h2load"),
  endsWell,
);

/** The goals of docs/performance.md. */
const flowSchema = z.object({
  "unary push": z.object({
    files: z.int().max(50),
    functions: z.int().max(190),
    calls: z.int().max(300),
  }),
  "message, claim, end": z.object({ calls: z.int().max(1_000) }),
});

test("a push runs through few files and functions, with few calls", async (context) => {
  const { flow } = await benchesOf(["flow"], context);
  expect(flowSchema.safeParse(flow).error?.issues).toBeUndefined();
});

test.for([["page"]])("in chromium, the benchmark %s does too", needs("chromium"), endsWell);

async function endsWell(args: readonly string[], context: TestContext): Promise<void> {
  const benches = await benchesOf(args, context);
  expect(Object.keys(benches)).toEqual([expect.stringContaining(String(args[0]))]);
  expect(notNumbers(benches)).toEqual([]);
}

async function benchesOf(args: readonly string[], { signal }: TestContext) {
  const bench = [`${ROOT}test/bench/main.ts`, ...args, "--quick"];
  // The recorded streams take longer, and show only whether the figures are good.
  const env = { ...process.env, CORPUS: "" };
  const options = { cwd: ROOT, env, signal };
  const { stdout } = await promisify(execFile)(process.execPath, bench, options);
  return documentSchema.parse(JSON.parse(stdout)).benches;
}

/** Ratios that are null: JSON's word for what could not be divided. */
function notNumbers(value: z.infer<ReturnType<typeof z.json>>, path = ""): readonly string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    // The kernel counts CPU in steps of 10 ms, which is more than so small a load takes.
    if (/cpu/i.test(name)) return [];
    return (name === "median" || name.includes(" / ")) && inner === null
      ? [path]
      : notNumbers(inner, `${path}/${name}`);
  });
}

test.each([[[]], [["pull"]], [["push", "read"]], [["against"]], [["push", "--calls", "0"]]])(
  "the command line %j is refused",
  (args) => expect(readOptions(args)).toBeUndefined(),
);
