import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { readFile, utimes } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeDirectory } from "./embedded-fixture.ts";
import { toolPath } from "./tools.ts";

// The drivers of all clients for the table of cases, as commands.

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PYTHON = join(ROOT, "clients/python/.venv/bin/python");

interface ClientDriver {
  readonly language: string;
  /** A program that its driver needs. */
  readonly tool: string;
  readonly driver: () => Promise<readonly string[]>;
  /** All by default. */
  readonly features?: readonly string[];
}

/** Of a test file: what it compiles is in a folder that `cleanUp` deletes. */
export function clientDrivers(): readonly ClientDriver[] {
  const goProgram = goPrograms();
  return [
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
}

// The programs of the Go client: its examples, and its driver for the table of cases.

export const GO_CLIENT = join(ROOT, "clients/go");

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

export const JAVA_CLIENT = join(ROOT, "clients/java");

/** Of the compiled client and its driver. */
const JAVA_SOURCES = ["pom.xml", "core/pom.xml", "core/src/**/*", "../../proto/**/*"];

/** Compiles the client if its sources are newer; the result is the command of its driver. */
async function javaDriver(): Promise<readonly string[]> {
  const target = join(JAVA_CLIENT, "core/target");
  const classpath = join(target, "classpath");
  if (!isCompiled(classpath)) {
    const build = ["-q", "-B", "-ntp", "-pl", "core", "process-test-classes"];
    await promisify(execFile)(toolPath("mvn"), build, { cwd: JAVA_CLIENT });
    // Maven leaves a file as it is whose text is the same.
    await utimes(classpath, new Date(), new Date());
  }
  const dependencies = (await readFile(classpath, "utf8")).trim();
  const classes = [join(target, "classes"), join(target, "test-classes"), dependencies];
  // A driver lives for seconds.
  const quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
  const main = "io.sessionledger.client.ConformanceDriver";
  return ["java", ...quick, "-cp", classes.join(delimiter), main];
}

/** Whether that file, the last one of a build, is newer than all sources, and what it names exists. */
function isCompiled(classpath: string): boolean {
  if (!existsSync(classpath)) return false;
  const { mtimeMs } = statSync(classpath);
  const sources = globSync(JAVA_SOURCES, { cwd: JAVA_CLIENT });
  const isNewer = (path: string): boolean => statSync(join(JAVA_CLIENT, path)).mtimeMs > mtimeMs;
  const named = readFileSync(classpath, "utf8").trim().split(delimiter);
  return !sources.some(isNewer) && named.every((path) => existsSync(path));
}
