/** Runs an example against a ledger, which it starts and ends: `npx node examples/start.ts NAME`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { PYTHON = "python3", LEDGER_GRPC, LEDGER_HTTP } = process.env;

const COMMANDS: Readonly<Record<string, readonly [string, ...string[]]>> = {
  "typescript-runner": [process.execPath, "main.ts"],
  "copilotkit-app": [process.execPath, "main.ts"],
  "openai-agents": [process.execPath, "main.ts"],
  "langgraph-python": [PYTHON, "main.py"],
  curl: ["bash", "talk.sh"],
  "kubernetes-pool": [process.execPath, "local.ts"],
};

const [, , name = ""] = process.argv;
const command = COMMANDS[name];
if (command === undefined) {
  console.error(`Say which example: ${Object.keys(COMMANDS).join(", ")}`);
  process.exit(2);
}

const dataDir = mkdtempSync(join(tmpdir(), "session-ledger-example-"));
let ledger: ChildProcess | undefined;

async function startLedger(): Promise<NodeJS.ProcessEnv> {
  if (LEDGER_GRPC !== undefined) return { LEDGER_GRPC, LEDGER_HTTP };
  const addresses = { GRPC_ADDRESS: "127.0.0.1:0", HTTP_ADDRESS: "127.0.0.1:0" };
  const env = { ...process.env, ...addresses, OPS_ADDRESS: "127.0.0.1:0", DATA_DIR: dataDir };
  const main = join(import.meta.dirname, "../bin/session-ledger.cjs");
  ledger = spawn(process.execPath, [main, "serve"], { env, stdio: ["ignore", "pipe", "inherit"] });
  if (ledger.stdout === null) throw new Error("the ledger has no output");
  for await (const line of createInterface({ input: ledger.stdout })) {
    const record: { readonly msg?: string; readonly grpc?: string; readonly http?: string } =
      line.startsWith("{") ? JSON.parse(line) : {};
    if (record.msg === "serving") return { LEDGER_GRPC: record.grpc, LEDGER_HTTP: record.http };
  }
  throw new Error("the ledger did not start");
}

const addresses = await startLedger();
const [program, ...args] = command;
const cwd = join(import.meta.dirname, name);
const example = spawn(program, args, {
  cwd,
  env: { ...process.env, ...addresses },
  stdio: "inherit",
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => example.kill(signal));
const [code]: unknown[] = await once(example, "exit");
if (ledger !== undefined) {
  ledger.kill("SIGTERM");
  await once(ledger, "exit");
}
rmSync(dataDir, { recursive: true, force: true });
process.exit(typeof code === "number" ? code : 0);
