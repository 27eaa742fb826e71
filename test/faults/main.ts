/** `npm run faults`: docs/faults.md describes it and its output. */
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { bundle } from "../../tools/bundle.ts";
import { describeMachine } from "../bench/machine.ts";
import { runDefects } from "./defects.ts";
import { type FaultsOptions, readOptions, USAGE } from "./options.ts";
import { defectsReportOf, reportOf, violationLines } from "./report.ts";
import { runFaults } from "./run.ts";

const EXIT_USAGE = 2;
/** The limit of one run with a planted defect. */
const DEFECT_SECONDS_MAX = 30;

const interrupted = new AbortController();
// It ends normally and with a verdict: an exit in the middle would leave servers behind.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => interrupted.abort());

const options = readOptions(process.argv.slice(2));
if (options === undefined) {
  process.stderr.write(USAGE);
  process.exitCode = EXIT_USAGE;
} else if (options.defects === undefined) {
  await runOnce(options);
} else {
  await runAllDefects(options, options.defects);
}
// After a failed run writers may still retry against servers that have ended.
process.exit();

function tell(line: string): void {
  process.stderr.write(`${line}\n`);
}

async function runOnce(chosen: FaultsOptions): Promise<void> {
  const { seed, seconds, report } = chosen;
  tell(`faults: seed ${seed}, ${seconds} s`);
  await bundle(fileURLToPath(new URL("../../dist", import.meta.url)));
  const command = ["npm run faults --", ...process.argv.slice(2)].join(" ");
  const machine = { ...(await describeMachine()), command };
  const result = await runFaults({ ...chosen, tell, signal: interrupted.signal });
  process.stdout.write(`${JSON.stringify({ machine, ...result }, undefined, 2)}\n`);
  if (report !== undefined) await writeFile(report, reportOf(machine, result));
  const { length } = result.violations;
  if (length > 0) process.exitCode = 1;
  for (const line of length > 0 ? violationLines(result) : []) tell(line);
  tell(`faults: ${length === 0 ? "every promise was kept" : `${length} violations`}`);
}

async function runAllDefects(
  { seed, seconds, report }: FaultsOptions,
  names: readonly string[],
): Promise<void> {
  const limited = Math.min(seconds, DEFECT_SECONDS_MAX);
  const results = await runDefects({ names, seed, seconds: limited, tell });
  process.stdout.write(`${JSON.stringify(results, undefined, 2)}\n`);
  if (report !== undefined) await writeFile(report, defectsReportOf(results));
  const { length } = results.filter(({ isAsExpected }) => !isAsExpected);
  if (length > 0) process.exitCode = 1;
  tell(`faults: ${length === 0 ? "all as expected" : `${length} not as expected`}`);
}
