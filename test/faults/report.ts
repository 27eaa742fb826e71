/** The report of a run for people. */
import type { Findings } from "../bench/bench.ts";
import type { DefectResult } from "./defects.ts";
import { lineTime, type RunResult } from "./run.ts";

/** `machine` includes the command. */
export function reportOf(machine: Findings, result: RunResult): string {
  const { longestUnavailable: gap, violations } = result;
  const longest = gap === undefined ? "none" : `${gap.ms} ms of ${gap.sessionId} (${gap.during})`;
  const lines = [
    "# Faults",
    "",
    violations.length === 0 ? "Every promise was kept." : `${violations.length} violations.`,
    "",
    ...table(["", ""], Object.entries({ ...machine, seed: result.seed, seconds: result.seconds })),
    "",
    "## Faults injected",
    "",
    ...table(["kind", "times"], Object.entries(result.faults)),
    ...result.skipped.map((skipped) => `\nNot injected: ${skipped}`),
    "",
    "## Operations",
    "",
    ...table(
      ["kind", "outcome", "count"],
      Object.entries(result.operations).flatMap(([kind, outcomes]) =>
        Object.entries(outcomes).map(([outcome, count]) => [kind, outcome, count]),
      ),
    ),
    "",
    "## Bounds",
    "",
    `- Longest time without an acknowledgement: ${longest}.`,
    `- Longest from the heal of a fault until every writer had got something through: ${result.longestRecoveryMs} ms.`,
    ...Object.entries(result.memoryMib).map(
      ([name, mib]) => `- Memory of ${name}: ${mib} MiB at most.`,
    ),
    `- Counts of rows and bytes in the sessions: ${result.countsChecked ? "checked" : "not there to check"}.`,
    "",
    "## Violations",
    "",
    ...(violations.length === 0 ? ["None."] : violationLines(result)),
    "",
  ];
  return lines.join("\n");
}

/** The seed, the faults with their times, and the violations. */
export function violationLines({ seed, violations, timeline }: RunResult): readonly string[] {
  return [
    `seed ${seed}`,
    "",
    ...violations.flatMap(({ what, excerpt }) => [
      `- ${what}`,
      ...(excerpt.length === 0 ? [] : ["", ...excerpt.map((line) => `      ${line}`), ""]),
    ]),
    "",
    ...timeline.map(({ atMs, what }) => `    ${lineTime(atMs)} ${what}`),
  ];
}

export function defectsReportOf(results: readonly DefectResult[]): string {
  return [
    ...table(
      ["defect", "seeds", "seconds", "as expected", "violations", "the first of them"],
      results.map((one) => [
        one.name,
        one.seeds.join(", "),
        one.seconds,
        one.isAsExpected ? "yes" : "NO",
        one.violations.length,
        one.violations[0] ?? "",
      ]),
    ),
    "",
  ].join("\n");
}

function table(head: readonly string[], rows: readonly (readonly unknown[])[]): readonly string[] {
  const line = (cells: readonly unknown[]): string => `| ${cells.map(cellOf).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)];
}

function cellOf(value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}
