/** Each client passes the table of cases in test/conformance, with its driver as a process. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CASES } from "../conformance/cases.ts";
import { runCase } from "../conformance/suite.ts";
import { useService } from "../support/use-service.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

interface Client {
  readonly language: string;
  /** Its driver. */
  readonly command: readonly string[];
}

const CLIENTS: readonly Client[] = [
  {
    language: "TypeScript",
    command: [process.execPath, join(ROOT, "test/conformance/typescript.ts")],
  },
  {
    language: "Python",
    command: [
      join(ROOT, "clients/python/.venv/bin/python"),
      join(ROOT, "clients/python/conformance.py"),
    ],
  },
];

const { service, client } = useService();

describe.each(CLIENTS)("$language", ({ command: [program = "", ...args] }) => {
  test.for(CASES)("$name", async (one, { skip }) => {
    if (!existsSync(program)) {
      const advice = `there is no ${program}`;
      if (process.env["REQUIRE_TOOLS"] === "1") throw new Error(advice);
      skip(advice);
    }
    const target = { client, address: service.grpcAddress, command: [program, ...args] };
    const outcome = await runCase(one, target);
    if (outcome === "skipped") skip("the client has no such feature");
    expect(outcome).toBe("passed");
  });
});
