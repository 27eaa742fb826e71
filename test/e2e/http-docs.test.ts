/** docs/http.md does what it says: its examples are run as they stand there, in order, on one service. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { HTTP_STATUS } from "../../src/http/plumbing/problem.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { comparable, examplesOf, tableRowsOf } from "../support/readme.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const DOCUMENT = readFileSync(join(ROOT, "docs/http.md"), "utf8");
const ADDRESS = "127.0.0.1:8000";
const execute = promisify(execFile);

const documentSchema = z.looseObject({
  paths: z.record(z.string(), z.looseObject({})),
});

let service: ServiceProcess;
beforeAll(async () => {
  service = await startService();
});
afterAll(async () => {
  await endService(service);
  await cleanUp();
});

test("curl: its examples give what they show", needs("curl"), async () => {
  const examples = examplesOf(DOCUMENT);
  expect(examples.length).toBeGreaterThan(8);
  const env = {
    ...process.env,
    PATH: `${dirname(toolPath("curl"))}:${process.env["PATH"]}`,
    SESSION_LEDGER_ADDRESS: service.grpcAddress,
  };
  for (const { command, output } of examples) {
    const script = command.replaceAll(ADDRESS, service.httpAddress);
    const { stdout } = await execute("bash", ["-c", script], { cwd: ROOT, env });
    expect({ command, output: comparable(stdout.replaceAll("\r", "")) }).toEqual({
      command,
      output: comparable(output),
    });
  }
});

test("its tables have the routes of the OpenAPI document, but for those of AG-UI and of itself", async () => {
  const answer = await fetch(`http://${service.httpAddress}/openapi.json`);
  const { paths } = documentSchema.parse(await answer.json());
  const prefix = "/api/ambient/v1";
  const served = Object.entries(paths)
    .filter(([path]) => path.startsWith(prefix) || path.startsWith("/copilotkit"))
    .flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replace(prefix, "")}`),
    );
  const described = tableRowsOf(DOCUMENT).flatMap(([route = ""]) =>
    [...route.matchAll(/`((?:GET|POST|DELETE) \/[^`]*)`/g)].map(([, name = ""]) => name),
  );
  expect(described.toSorted()).toEqual(served.toSorted());
});

test("its statuses are those that errors have", () => {
  const described = tableRowsOf(DOCUMENT).flatMap(([first = ""]) =>
    /^\d{3}(?:, \d{3})*$/.test(first) ? first.split(", ").map(Number) : [],
  );
  const later = [401, 403, 499, 501, 504]; // No token and no deadline yet; 499 nobody reads.
  const missing = Object.values(HTTP_STATUS).filter(
    (status) => !later.includes(status) && !described.includes(status),
  );
  expect(missing).toEqual([]);
});
