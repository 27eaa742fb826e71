import type { Reporter, TestModule } from "vitest/node";

const FILES_MAX = 10;

/** Prints the numbers of tests, and as the last line the test files that took longest. */
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
    process.stdout.write(
      `tests: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n` +
        `slowest: ${slowest.join(", ")}\n`,
    );
  }
}
