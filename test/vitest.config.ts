import { defineConfig } from "vitest/config";
import { CAP_MS } from "./support/eventually.ts";
import { LongestFirst, SlowestFiles } from "./support/vitest-extensions.ts";

/** How long `expect.poll` waits for a fact: test/support/eventually.ts says why. */
const FACTS = { poll: { timeout: CAP_MS, interval: 20 } };

/** For tests that hang; no test is late. */
const HANGS_MS = 600_000;

/** Node loads the files itself, as it does those of the service: nothing here mocks a module. */
const NATIVE = { viteModuleRunner: false, nodeLoader: false };

/** What tests of processes, databases and browsers have in common. They wait most of their time. */
const shared = (name: string) => ({
  name,
  provide: { project: name },
  experimental: NATIVE,
  expect: FACTS,
  testTimeout: HANGS_MS,
  hookTimeout: HANGS_MS,
  maxWorkers: 6,
  isolate: false,
  // After the unit tests, which take every processor.
  sequence: { groupOrder: 1 },
});

/** Run separately, during the others or after them (test/gate.ts). */
const IMAGE = "test/ci/container.test.ts";

/** In .ci/run: the folder of an older grpcurl, which words some answers otherwise. */
const { GRPCURL_OLDER: older, PATH: path = "" } = process.env;

/** In .ci/run after a change of the store or of ingest (test/gate.ts). */
const { SHARDED_SUITES: sharded } = process.env;

/**
 * `unit` runs in seconds, with no database and no port; `postgres` has a real server, one database a file;
 * `e2e` starts the service as a process and speaks to it from outside; `.ci/run` also runs `ci`, the tests of
 * documents, benchmarks, manifests and packages, `image`, that of the container, `web`, those of the inspector
 * in a browser, `frameworks`, those of bridges and drop-ins with the packages of `test/frameworks`,
 * `older-grpcurl`, and `sharded`: the tests of `postgres` and `e2e` once more, with calls of one session
 * (ENGINE=citus).
 *
 * A worker keeps the modules that it has loaded for its next file: half of the CPU of most files of `e2e` and
 * `postgres` was loading them again.
 */
export default defineConfig({
  test: {
    globalSetup: ["test/support/postgres-server.ts"],
    sequence: { sequencer: LongestFirst },
    reporters: ["default", new SlowestFiles()],
    projects: [
      {
        test: {
          name: "unit",
          experimental: NATIVE,
          include: [
            "test/tidy.test.ts",
            "test/{unit,property}/**/*.test.ts",
            "{packages/*,web}/test/**/*.test.ts",
          ],
          expect: FACTS,
          testTimeout: HANGS_MS,
          // Nothing waits here: as many workers as there are processors.
          maxWorkers: "100%",
          isolate: false,
        },
      },
      { test: { ...shared("postgres"), include: ["test/postgres/**/*.test.ts"] } },
      { test: { ...shared("e2e"), include: ["test/e2e/**/*.test.ts"] } },
      { test: { ...shared("ci"), include: ["test/ci/**/*.test.ts"], exclude: [IMAGE] } },
      { test: { ...shared("image"), include: [IMAGE] } },
      { test: { ...shared("web"), include: ["test/web/**/*.test.ts"] } },
      {
        test: {
          ...shared("frameworks"),
          include: ["test/frameworks/**/*.test.ts"],
          env: { COPILOTKIT_TELEMETRY_DISABLED: "true" },
        },
      },
      {
        test: {
          ...shared("older-grpcurl"),
          include: older === undefined ? [] : ["test/e2e/{grpcurl,readme}.test.ts"],
          env: { PATH: `${older}:${path}` },
        },
      },
      {
        test: {
          ...shared("sharded"),
          include: sharded === undefined ? [] : ["test/{postgres,e2e}/**/*.test.ts"],
          env: { ENGINE: "citus" },
        },
      },
    ],
  },
});
