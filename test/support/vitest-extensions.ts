import { writeFileSync } from "node:fs";
import { BaseSequencer, type Reporter, type TestModule, type TestSpecification } from "vitest/node";

/** Files that take long although they are short. */
const LONG = [
  "ci/container",
  "ci/java-client",
  "ci/python-package",
  "ci/runner-package",
  "e2e/authorisation",
  "e2e/backup",
  "e2e/conformance",
  "e2e/durability",
  "e2e/held-memory",
  "e2e/hostile-grpc",
  "e2e/lost-tail",
  "e2e/package",
  "e2e/faults",
  "e2e/readme",
  "e2e/replicas",
  "e2e/sdk-loop-restart",
  "e2e/stop",
];

/**
 * Vitest starts the files first that took longest in an earlier run, and in the first run of a checkout
 * the largest files. Without this order the long ones would come last, and processors would be idle.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- a method of Vitest's class.
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification): boolean =>
      LONG.some((name) => moduleId.endsWith(`/${name}.test.ts`));
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

const FILES_MAX = 10;

/**
 * Prints the numbers of tests, and as the last line the test files that took longest; into SUMMARY_FILE where
 * that is set.
 */
export class SlowestFiles implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const counts = { passed: 0, failed: 0, skipped: 0, pending: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) counts[test.result().state] += 1;
    }
    const slowest = modules
      .map((module) => ({ module, seconds: module.diagnostic().duration / 1_000 }))
      .toSorted((a, b) => b.seconds - a.seconds)
      .slice(0, FILES_MAX)
      .map(({ module, seconds }) => `${module.relativeModuleId} ${seconds.toFixed(0)} s`);
    const text =
      `tests: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n` +
      `slowest: ${slowest.join(", ")}\n`;
    const { SUMMARY_FILE: file } = process.env;
    if (file === undefined) process.stdout.write(text);
    else writeFileSync(file, text);
  }
}
