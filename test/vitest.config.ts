import { defineConfig } from "vitest/config";
import { LongestFirst } from "./support/longest-first.ts";

/** How long `expect.poll` waits for a fact: test/support/eventually.ts says why. */
const FACTS = { poll: { timeout: 30_000, interval: 20 } };

/** Node loads the files itself, as it does those of the service: nothing here mocks a module. */
const NATIVE = { viteModuleRunner: false, nodeLoader: false };

/** Tests wait for processes most of their time. */
const WAITING_WORKERS = 6;

/**
 * Six projects. `unit` runs in seconds, with no database and no port; `postgres` has a real
 * server, one database a file; `e2e` starts the service as a process and speaks to it from outside;
 * `ci` has the tests of documents, benchmarks, manifests and packages, which `.ci/run` runs; `web`
 * has the tests of the inspector in a browser; `frameworks`
 * has the tests of bridges and drop-ins, with the packages of `test/frameworks`.
 *
 * A worker keeps the modules that it has loaded for its next file: half of the CPU of most files of `e2e` and
 * `postgres` was loading them again.
 */
export default defineConfig({
  test: {
    globalSetup: ["test/support/postgres-server.ts"],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "unit",
          experimental: NATIVE,
          include: ["test/tidy.test.ts", "test/unit/**/*.test.ts", "test/property/**/*.test.ts"],
          testTimeout: 120_000,
          // Nothing waits here: as many workers as there are processors.
          maxWorkers: "100%",
          isolate: false,
        },
      },
      {
        test: {
          name: "postgres",
          experimental: NATIVE,
          expect: FACTS,
          include: ["test/postgres/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          maxWorkers: WAITING_WORKERS,
          isolate: false,
        },
      },
      {
        test: {
          name: "e2e",
          experimental: NATIVE,
          expect: FACTS,
          include: ["test/e2e/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          maxWorkers: WAITING_WORKERS,
          isolate: false,
        },
      },
      {
        test: {
          name: "ci",
          experimental: NATIVE,
          expect: FACTS,
          include: ["test/ci/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          maxWorkers: 2,
          isolate: false,
        },
      },
      {
        test: {
          name: "web",
          experimental: NATIVE,
          expect: FACTS,
          include: ["test/web/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          maxWorkers: 2,
          isolate: false,
        },
      },
      {
        test: {
          name: "frameworks",
          experimental: NATIVE,
          expect: FACTS,
          include: ["test/frameworks/**/*.test.ts"],
          env: { COPILOTKIT_TELEMETRY_DISABLED: "true" },
          testTimeout: 240_000,
          hookTimeout: 240_000,
          maxWorkers: 2,
          isolate: false,
        },
      },
    ],
  },
});
