/**
 * A process that owns a DATA_DIR as the service does, for tests that kill it: `node embedded-owner.ts
 * DIRECTORY`. Says one line of JSON when it has started or was refused, and stops in order on SIGTERM.
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
// A server that runs holds its owner open; one that was refused simply ends.
process.stdout.write(`${JSON.stringify(answer)}\n`);
