/**
 * Tests that need a program outside of npm. Without the program they are reported as skipped, with its
 * name; under REQUIRE_TOOLS=1, which .ci/run sets after it has installed the tools, they fail.
 */
import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";

/** Programs that serve as well, and are taken first: a Chromium without windows takes two thirds of the CPU. */
const BETTER: Readonly<Record<string, string>> = { chromium: "chromium-headless-shell" };

type Environment = Readonly<Record<string, string | undefined>>;

export type Plan =
  | { readonly kind: "run"; readonly path: string }
  | { readonly kind: "skip" }
  | { readonly kind: "fail" };

/** Options of a test that needs a tool; its title names the tool too. */
export function needs(tool: string): { readonly skip: boolean } {
  return { skip: planFor(tool, process.env).kind === "skip" };
}

/** Options of a test that needs these namespaces of Linux; no tool brings them where they are refused. */
export function needsNamespaces(options: readonly string[]): { readonly skip: boolean } {
  return { skip: spawnSync("unshare", [...options, "true"], { stdio: "ignore" }).status !== 0 };
}

/** For such a test; without the tool it fails here. */
export function toolPath(tool: string): string {
  const plan = planFor(tool, process.env);
  if (plan.kind === "run") return plan.path;
  throw new Error(`REQUIRE_TOOLS is set, and ${tool} is not installed`);
}

export function planFor(tool: string, environment: Environment): Plan {
  const names = [BETTER[tool], tool].filter((name) => name !== undefined);
  const paths = isAbsolute(tool)
    ? [tool]
    : names.flatMap((name) => foldersOf(environment).map((folder) => join(folder, name)));
  const path = paths.find(isExecutable);
  if (path !== undefined) return { kind: "run", path };
  return { kind: environment["REQUIRE_TOOLS"] === "1" ? "fail" : "skip" };
}

/** `go install` puts its programs where no shell looks by default. */
function foldersOf(environment: Environment): readonly string[] {
  const { PATH: path = "", GOBIN: goBin = "", GOPATH: goPath, HOME: home } = environment;
  const go = goPath ?? join(home ?? homedir(), "go");
  return [...path.split(delimiter), goBin, join(go, "bin")].filter((folder) => folder !== "");
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
