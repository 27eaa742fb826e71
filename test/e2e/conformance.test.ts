/** Each client passes the table of cases in test/conformance, with its driver as a process. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { CASES, OPTIONAL } from "../conformance/cases.ts";
import { Suite } from "../conformance/suite.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { goPrograms, javaDriver } from "../support/foreign-clients.ts";
import { needs, toolPath } from "../support/tools.ts";
import { useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

interface Client {
  readonly language: string;
  /** A program that its driver needs. */
  readonly tool: string;
  readonly driver: () => Promise<readonly string[]>;
  /** All by default. */
  readonly features?: readonly string[];
}

const PYTHON = join(ROOT, "clients/python/.venv/bin/python");
const goProgram = goPrograms();

const CLIENTS: readonly Client[] = [
  {
    language: "TypeScript",
    tool: process.execPath,
    driver: async () => [process.execPath, join(ROOT, "test/conformance/typescript.ts")],
  },
  {
    language: "Python",
    tool: PYTHON,
    driver: async () => [PYTHON, join(ROOT, "clients/python/conformance.py")],
  },
  { language: "Go", tool: "go", driver: async () => [await goProgram("conformance")] },
  {
    language: "Java",
    tool: "mvn",
    driver: javaDriver,
    features: ["writer", "messages", "replay"],
  },
];

const { service, client } = useService();

afterAll(cleanUp);

describe.concurrent.each(CLIENTS)("$language", ({ tool, driver, features }) => {
  const cases = CASES.filter((one) => one.needs.every((need) => features?.includes(need) ?? true));
  let suite: Promise<Suite> | undefined;
  const made = async (): Promise<Suite> =>
    new Suite({ client, address: service.grpcAddress, command: await driver() });
  afterAll(async () => (await suite)?.stop());

  test.for(cases)("$name", needs(tool), async (one, { skip }) => {
    toolPath(tool);
    const outcome = await (await (suite ??= made())).run(one);
    const isOptional = one.needs.every((feature) => OPTIONAL.has(feature));
    if (outcome === "skipped" && isOptional) skip("the client has no such feature");
    expect(outcome).toBe("passed");
  });
});
