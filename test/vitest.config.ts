import { defineConfig } from "vitest/config";

/** How long `expect.poll` waits for a fact: test/support/eventually.ts says why. */
const FACTS = { poll: { timeout: 30_000, interval: 20 } };

/**
 * Three projects. `unit` runs in seconds, with no database and no port; `postgres` has a real
 * server, one database a file; `e2e` starts the service as a process and speaks to it from outside.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: "unit",
          include: ["test/tidy.test.ts", "test/unit/**/*.test.ts", "test/property/**/*.test.ts"],
          testTimeout: 120_000,
          // Nothing waits here, and a file leaves nothing behind: as many as there are processors, in
          // workers that go on with what they have loaded.
          maxWorkers: "100%",
          isolate: false,
        },
      },
      {
        test: {
          name: "postgres",
          expect: FACTS,
          include: ["test/postgres/**/*.test.ts"],
          globalSetup: ["test/support/postgres-server.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          maxWorkers: 4,
        },
      },
      {
        test: {
          name: "e2e",
          expect: FACTS,
          include: ["test/e2e/**/*.test.ts"],
          globalSetup: ["test/support/postgres-server.ts"],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          // Each file starts processes of its own, and waits for them much of its time.
          maxWorkers: 4,
        },
      },
    ],
  },
});
