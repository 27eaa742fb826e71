import { BaseSequencer, type TestSpecification } from "vitest/node";

/** End-to-end files that take long although they are short. */
const LONG = /\/(?:durability|held-memory|hostile-grpc|lost-tail|readme|replicas)\.test\.ts$/;

/**
 * Vitest starts the files first that took longest in an earlier run, and in the first run of a checkout
 * the largest files. Without this order the long ones would come last, and processors would be idle.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- a method of Vitest's class.
    const sorted = await super.sort(files);
    const long = sorted.filter(({ moduleId }) => LONG.test(moduleId));
    return [...long, ...sorted.filter((file) => !long.includes(file))];
  }
}
