/** The programs of the Go client: its examples, and its driver for the table of cases. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeDirectory } from "./embedded-fixture.ts";
import { toolPath } from "./tools.ts";

export const GO_CLIENT = fileURLToPath(new URL("../../clients/go", import.meta.url));

/** Compiles all programs at the first call; the result is the path of one. */
export function goPrograms(): (program: string) => Promise<string> {
  let built: Promise<string> | undefined;
  return async (program) => join(await (built ??= buildGo()), program);
}

async function buildGo(): Promise<string> {
  const folder = await makeDirectory();
  await promisify(execFile)(toolPath("go"), ["build", "-o", folder, "./..."], { cwd: GO_CLIENT });
  return folder;
}
