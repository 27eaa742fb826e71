/**
 * A process that owns a DATA_DIR as the service does, for tests that kill it: `node embedded-owner.ts
 * DIRECTORY`. It prints one line of JSON after its start or refusal, and stops on SIGTERM.
 */
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import type { OwnerAnswer } from "./embedded-fixture.ts";

const quiet = { info: () => undefined, warn: () => undefined };
const unit = createEmbeddedPostgres({ dataDir: process.argv[2] ?? "", log: quiet });

process.once("SIGTERM", () => {
  unit.stop().catch((error: unknown) => {
    process.stderr.write(`${String(error)}\n`);
    process.exitCode = 1;
  });
});
const answer = await unit.start().then(
  (): OwnerAnswer => ({ url: unit.url }),
  (error: unknown): OwnerAnswer => ({ refused: String(error) }),
);
// A running server keeps this process alive; a refused one ends by itself.
process.stdout.write(`${JSON.stringify(answer)}\n`);
