/** Checks that the generated code in the repository equals the output of the generators, file for file. */
import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

interface Tree {
  readonly home: string;
  readonly files: string;
  /** Makes the same files in another folder. */
  readonly make: readonly [command: string, ...args: string[]];
  /** The command that makes them here. */
  readonly advice: string;
}

const TREES: readonly Tree[] = [
  {
    home: ".",
    files: "gen/**/*.ts",
    make: ["buf", "generate", "--output"],
    advice: "npm run gen",
  },
  {
    home: "clients/python",
    files: "session_ledger/ambient/**/*.{py,pyi}",
    make: ["clients/python/generate.sh"],
    advice: "clients/python/generate.sh",
  },
  {
    home: "clients/go",
    files: "ambient/**/*.go",
    make: ["clients/go/generate.sh"],
    advice: "clients/go/generate.sh",
  },
];

for (const { home, files, make, advice } of TREES) {
  const made = mkdtempSync(join(tmpdir(), "session-ledger-gen-"));
  try {
    const [command, ...args] = make;
    execFileSync(command, [...args, made], { stdio: "inherit" });
    const [here = [], there = []] = [home, made].map((cwd) => globSync(files, { cwd }).toSorted());
    const stale = [...new Set([...here, ...there])].filter(
      (name) =>
        !here.includes(name) ||
        !there.includes(name) ||
        readFileSync(join(home, name), "utf8") !== readFileSync(join(made, name), "utf8"),
    );
    if (there.length === 0) throw new Error(`${command} generated nothing`);
    if (stale.length > 0) throw new Error(`run ${advice}: ${stale.join(", ")}`);
    process.stdout.write(`${files}: ${there.length} files as generated\n`);
  } finally {
    rmSync(made, { recursive: true });
  }
}
