/** The Java client, and its driver for the table of cases. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { toolPath } from "./tools.ts";

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
