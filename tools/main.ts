#!/usr/bin/env node
/** The entry of the bundle (decision 044). */
import { enableCompileCache } from "node:module";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";

const SEMI_SPACE_FLAG = "--max-semi-space-size";
/** MiB. The young generation of the service has at most two such spaces (docs/operations.md). */
const SEMI_SPACE_MIB = 64;

startAsService();
// At its end the process writes its compiled code into a folder of the bundle, and the next one takes it. Where the
// folder cannot be written, each start compiles.
enableCompileCache(join(import.meta.dirname, "compile-cache"));
await import("../src/main.ts");

/**
 * The service starts Node again with the flag, in the same process: V8 reads it before the first script. Every way of
 * starting comes through here. The value of the user wins, and commands do without.
 */
function startAsService(): void {
  const { argv, env, execArgv, execPath } = process;
  const [command = "serve"] = argv.slice(2);
  const given = [...execArgv, env["NODE_OPTIONS"] ?? ""].join(" ").replaceAll("_", "-");
  if (process.execve === undefined || process.platform === "win32") return;
  if (process.send !== undefined) return; // The channel of `child_process.fork` would be lost.
  if (command !== "serve" || given.includes(SEMI_SPACE_FLAG)) return;
  try {
    accessSync(execPath, constants.X_OK); // A failed exec ends the process.
  } catch {
    return;
  }
  process.execve(
    execPath,
    [execPath, `${SEMI_SPACE_FLAG}=${SEMI_SPACE_MIB}`, ...execArgv, ...argv.slice(1)],
    env,
  );
}
