/** Checks that the stubs in gen/ equal the output of the pinned generator, file for file. */
import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const made = mkdtempSync(join(tmpdir(), "session-ledger-gen-"));
try {
  execFileSync("buf", ["generate", "--output", made], { stdio: "inherit" });
  const folders = [".", made];
  const [here = [], there = []] = folders.map((cwd) => globSync("gen/**/*.ts", { cwd }).toSorted());
  const names = new Set([...here, ...there]);
  const stale = [...names].filter(
    (name) =>
      !here.includes(name) ||
      !there.includes(name) ||
      readFileSync(name, "utf8") !== readFileSync(join(made, name), "utf8"),
  );
  if (there.length === 0) throw new Error("buf generated nothing");
  if (stale.length > 0) throw new Error(`run npm run gen: ${stale.join(", ")}`);
  process.stdout.write(`gen: ${there.length} files as generated\n`);
} finally {
  rmSync(made, { recursive: true });
}
