/** docs/tutorial.md does what it says: its commands are run as they stand there, in order, on one service. */
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { cleanUp } from "../support/embedded-fixture.ts";
import { comparable, examplesOf } from "../support/readme.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const DOCUMENT = readFileSync(join(ROOT, "docs/tutorial.md"), "utf8");
const ADDRESS = "127.0.0.1:8000";
const execute = promisify(execFile);

let service: ServiceProcess;
beforeAll(async () => {
  service = await startService();
});
afterAll(async () => {
  await endService(service);
  await cleanUp();
});

test("curl: the commands of the tutorial print what it shows", needs("curl"), async () => {
  const examples = examplesOf(DOCUMENT);
  expect(examples.length).toBeGreaterThan(10);
  const env = {
    ...process.env,
    PATH: `${dirname(toolPath("curl"))}:${process.env["PATH"]}`,
    SESSION_LEDGER_ADDRESS: service.grpcAddress,
  };
  for (const { command, output } of examples) {
    const script = command.replaceAll(ADDRESS, service.httpAddress);
    const { stdout, stderr } = await execute("bash", ["-c", script], { cwd: ROOT, env });
    expect({ command, output: comparable((stdout + stderr).replaceAll("\r", "")) }).toEqual({
      command,
      output: comparable(output),
    });
  }
});

test.each(["concepts.md", "tutorial.md"])("every link of docs/%s leads to a file", (name) => {
  const url = pathToFileURL(join(ROOT, "docs", name));
  const links = [...readFileSync(url, "utf8").matchAll(/\]\((?!https?:|#)([^)#]+)/g)];
  expect(links.length).toBeGreaterThan(5);
  const missing = links.filter(([, link = ""]) => !existsSync(new URL(link, url)));
  expect(missing).toEqual([]);
});
