import { execFile } from "node:child_process";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeDirectory } from "./embedded-fixture.ts";
import { toolPath } from "./tools.ts";
import { readFile } from "node:fs/promises";

// The programs of the Go client: its examples, and its driver for the table of cases.

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

// The Java client, and its driver for the table of cases.

export const JAVA_CLIENT = fileURLToPath(new URL("../../clients/java", import.meta.url));

/** Compiles the client; the result is the command of its driver. */
export async function javaDriver(): Promise<readonly string[]> {
  const build = ["-q", "-B", "-ntp", "-pl", "core", "process-test-classes"];
  await promisify(execFile)(toolPath("mvn"), build, { cwd: JAVA_CLIENT });
  const target = join(JAVA_CLIENT, "core/target");
  const dependencies = (await readFile(join(target, "classpath"), "utf8")).trim();
  const classes = [join(target, "classes"), join(target, "test-classes"), dependencies];
  // A driver lives for seconds.
  const quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
  const main = "io.sessionledger.client.ConformanceDriver";
  return ["java", ...quick, "-cp", classes.join(delimiter), main];
}
