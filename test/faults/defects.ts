/** Plants a defect in a copy of the sources and checks that a run finds it; an unchanged copy must pass. */
import { spawn } from "node:child_process";
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { once } from "node:events";
import { z } from "zod";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { type Defect, DEFECTS, placeOf } from "./defects-table.ts";
import type { FaultKind } from "./plan.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const COPIED = ["src", "gen", "packages", "web", "test", "tools", "package.json", "tsconfig.json"];
/** Another seed draws other moments. */
const SEEDS_MAX = 3;

export interface DefectOptions {
  readonly names: readonly string[];
  readonly seed: number;
  readonly seconds: number;
  readonly tell: (line: string) => void;
}

export interface DefectResult {
  readonly name: string;
  readonly what: string;
  /** In the order of the attempts; the last one decided. */
  readonly seeds: readonly number[];
  readonly seconds: number;
  readonly violations: readonly string[];
  /** Found, by a violation that names it; for the unchanged copy: no violation. */
  readonly isAsExpected: boolean;
}

const resultSchema = z.object({
  violations: z.array(z.object({ what: z.string() })),
});

export async function runDefects(options: DefectOptions): Promise<readonly DefectResult[]> {
  const results: DefectResult[] = [];
  try {
    const chosen = DEFECTS.filter(({ name }) => options.names.includes(name));
    for (const defect of chosen) results.push(await runDefect(defect, options));
    const kinds = [...new Set(chosen.flatMap((defect) => defect.kinds))];
    results.push(await runUnbroken(kinds, options));
  } finally {
    await cleanUp();
  }
  return results;
}

async function runDefect(
  { name, what, edits, kinds, expected }: Defect,
  { seed, seconds, tell }: DefectOptions,
): Promise<DefectResult> {
  const copy = await copied();
  for (const edit of edits) {
    const path = placeOf(edit, copy);
    writeFileSync(
      path,
      readFileSync(path, "utf8").replaceAll(edit.find, () => edit.replace),
    );
  }
  const seeds: number[] = [];
  let violations: readonly string[] = [];
  let isAsExpected = false;
  while (!isAsExpected && seeds.length < SEEDS_MAX) {
    const next = seed + seeds.length;
    seeds.push(next);
    violations = await runCopy(copy, { kinds, seed: next, seconds });
    tell(`${name}, seed ${next}: ${violations.length} violations`);
    for (const violation of violations.slice(0, 3)) tell(`  ${violation}`);
    isAsExpected = violations.some((violation) => expected.test(violation));
  }
  return { name, what, seeds, seconds, violations, isAsExpected };
}

async function runUnbroken(
  kinds: readonly FaultKind[],
  { seed, seconds, tell }: DefectOptions,
): Promise<DefectResult> {
  const violations = await runCopy(await copied(), { kinds, seed, seconds });
  tell(`unbroken, seed ${seed}: ${violations.length} violations`);
  for (const violation of violations.slice(0, 3)) tell(`  ${violation}`);
  const what = "a copy in which nothing is changed";
  const isAsExpected = violations.length === 0;
  return { name: "unbroken", what, seeds: [seed], seconds, violations, isAsExpected };
}

async function copied(): Promise<string> {
  const copy = await makeDirectory();
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  return copy;
}

async function runCopy(
  copy: string,
  run: {
    readonly kinds: readonly FaultKind[];
    readonly seed: number;
    readonly seconds: number;
  },
): Promise<readonly string[]> {
  const args = ["--seconds", String(run.seconds), "--seed", String(run.seed)];
  const faults = ["--faults", run.kinds.join(",")];
  const main = join(copy, "test", "faults", "main.ts");
  const child = spawn(process.execPath, [main, ...args, ...faults], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [stdout] = await Promise.all([text(child.stdout), once(child, "exit")]);
  const result = resultSchema.safeParse(stdout === "" ? undefined : JSON.parse(stdout));
  if (!result.success) throw new Error(`the run of the copy said nothing (${child.exitCode})`);
  return result.data.violations.map(({ what }) => what);
}
