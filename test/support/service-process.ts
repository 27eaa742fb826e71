/** The service and its command line as processes, seen from outside: their output, answers and ends. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { endPostmaster, makeDirectory } from "./embedded-fixture.ts";

/** The bundle of `npm start`; test/support/postgres-server.ts makes it before a run. */
export const MAIN = fileURLToPath(new URL("../../dist/main.js", import.meta.url));
/** The tool behind `session-ledger import`, from its sources. */
export const IMPORT_TOOL = fileURLToPath(
  new URL("../../tools/import-upstream/main.ts", import.meta.url),
);

type Environment = Readonly<Record<string, string>>;

/** An address for tests that ask an ended service: no other service takes its port meanwhile. */
export const NO_OTHERS_ADDRESS = process.platform === "linux" ? "127.0.0.77:0" : "127.0.0.1:0";

/** A run of a test stays open on a machine that is busy for minutes. */
const PATIENT = { RUN_STALE_AFTER: "1h", CANCEL_GRACE: "1h" };

export interface ServiceOptions {
  /** Settings, in at most 25 places of all tests: test/tidy.test.ts. */
  readonly env?: Environment;
  /** A database that the test has made; by default a new one on the server of the test run. */
  readonly databaseUrl?: string;
  /** Free ports by default. */
  readonly addresses?: Partial<Addresses>;
  /** A PostgreSQL of its own in a new directory, for tests that end or restart it. */
  readonly embedded?: boolean;
  /** Processes that share the ports; one by default. */
  readonly workers?: number;
  /** The directory of an earlier service; a new one by default. */
  readonly dataDir?: string;
  /** Options of Node before the service's own, for example `--import` and a module. */
  readonly nodeArguments?: readonly string[];
  /** Gets each line of the log. */
  readonly onLine?: (line: string) => void;
}

interface Addresses {
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly opsAddress: string;
}

export interface ServiceProcess extends Addresses {
  readonly pid: number;
  /** Its settings. */
  readonly env: Environment;
  readonly dataDir: string;
  /** Empty for a service with its own PostgreSQL. */
  readonly databaseUrl: string;
  /** Every line of its log so far. */
  readonly log: readonly string[];
  /** Resolves with the exit code when the process has ended; null: by a signal. */
  readonly ended: Promise<number | null>;
  /** SIGTERM; resolves with the exit code when the process has ended. Does nothing a second time. */
  stop(): Promise<number | null>;
  /** Resolves when the process has ended. Its embedded PostgreSQL outlives a SIGKILL. */
  kill(signal: NodeJS.Signals): Promise<number | null>;
}

/** An interrupted test run must not leave services behind: each is told to stop. */
const running = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of running) child.kill("SIGTERM");
});

const servingSchema = z.object({
  msg: z.literal("serving"),
  grpc: z.string(),
  http: z.string(),
  ops: z.string(),
});

/** Resolves when the service logs that it serves. */
export async function startService(options: ServiceOptions = {}): Promise<ServiceProcess> {
  const dataDir = options.dataDir ?? (await makeDirectory());
  const { env: settings = {}, addresses = {}, workers = 1 } = options;
  const databaseUrl = settings["DATABASE_URL"] ?? (await databaseOf(options));
  const env = {
    ...environment(addresses),
    ...PATIENT,
    DATA_DIR: dataDir,
    DATABASE_URL: databaseUrl,
    WORKERS: String(workers),
    ...settings,
  };
  const child = spawn(process.execPath, [...(options.nodeArguments ?? []), MAIN], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  const ended = once(child, "exit").then(() => {
    running.delete(child);
    return child.exitCode;
  });
  const log: string[] = [];
  const add = (line: string): void => {
    log.push(line);
    options.onLine?.(line);
  };
  const serving = Promise.withResolvers<z.infer<typeof servingSchema>>();
  createInterface({ input: child.stderr }).on("line", add);
  createInterface({ input: child.stdout }).on("line", (line) => {
    add(line);
    const record = servingSchema.safeParse(parsed(line));
    if (record.success) serving.resolve(record.data);
  });
  child.once("exit", (code) =>
    serving.reject(new Error(`the service ended with ${code}:\n${log.join("\n")}`)),
  );
  const { grpc, http, ops } = await serving.promise;
  const kill = (signal: NodeJS.Signals): Promise<number | null> => {
    child.kill(signal);
    return ended;
  };
  return {
    pid: child.pid ?? -1,
    env: settings,
    grpcAddress: grpc,
    httpAddress: http,
    opsAddress: ops,
    dataDir,
    databaseUrl,
    log,
    ended,
    kill,
    stop: () => kill("SIGTERM"),
  };
}

/** The log of a service that refuses its settings, with exit code 2. */
export async function refusalOf(options: ServiceOptions): Promise<string> {
  const started = await startService(options).catch((error: unknown) => String(error));
  if (typeof started !== "string") await started.stop();
  else if (started.includes("the service ended with 2:")) return started;
  throw new Error(`the service was not refused: ${JSON.stringify(started)}`);
}

async function databaseOf(options: ServiceOptions): Promise<string> {
  const { databaseUrl, dataDir, embedded } = options;
  if (databaseUrl !== undefined) return databaseUrl;
  if (embedded === true || dataDir !== undefined) return "";
  // The faults harness starts services outside of vitest, where this module cannot be loaded.
  const { createLedgerDatabase } = await import("./database.ts");
  return (await createLedgerDatabase()).url;
}

/**
 * Starts an ended service again with its settings, database and ports, so that its clients find it. The
 * system may have given a port to a connection of another test: the start is repeated until that ends.
 */
export async function startAgain(
  ended: Pick<ServiceProcess, "env" | "dataDir" | "databaseUrl" | "grpcAddress" | "httpAddress">,
): Promise<ServiceProcess> {
  const { env, dataDir, databaseUrl, grpcAddress, httpAddress } = ended;
  const options = { env, dataDir, databaseUrl, addresses: { grpcAddress, httpAddress } };
  for (;;) {
    try {
      return await startService(options);
    } catch (error) {
      if (!String(error).includes("ADDRESS_TAKEN")) throw error;
    }
  }
}

/** Ends the processes of a test and their embedded PostgreSQL; `cleanUp` then deletes the directory. */
export async function endService(service: ServiceProcess): Promise<void> {
  await service.kill("SIGKILL");
  await endPostmaster(service.dataDir);
}

export interface CommandResult {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Command {
  /** Ended already, unless the command was started with `isInputOpen`. */
  readonly stdin: Writable;
  readonly stdout: AsyncIterable<string>;
  readonly result: Promise<Omit<CommandResult, "stdout">>;
  /** As `| head` does after its last line. */
  closeOutput(): void;
  kill(signal: NodeJS.Signals): void;
}

/** A command to its end. */
export async function runCommand(
  args: readonly string[],
  options: {
    readonly env?: Environment;
    readonly input?: string | Uint8Array;
    /** By default the command line of the service. */
    readonly program?: string;
  } = {},
): Promise<CommandResult> {
  const child = spawnCommand(args, options.env, options.program);
  child.stdin.end(options.input ?? "");
  const [stdout, stderr] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit"),
  ]);
  return { exitCode: child.exitCode, stdout, stderr };
}

/** A command that is still running; its output line by line. */
export function startCommand(
  args: readonly string[],
  env?: Environment,
  { isInputOpen = false } = {},
): Command {
  const child = spawnCommand(args, env);
  if (!isInputOpen) child.stdin.end();
  const ended = once(child, "exit");
  const result = Promise.all([text(child.stderr), ended]).then(([stderr]) => ({
    exitCode: child.exitCode,
    stderr,
  }));
  return {
    stdin: child.stdin,
    stdout: createInterface({ input: child.stdout }),
    result,
    closeOutput: () => child.stdout.destroy(),
    kill: (signal) => child.kill(signal),
  };
}

function spawnCommand(args: readonly string[], env: Environment = {}, program = MAIN) {
  return spawn(process.execPath, [program, ...args], {
    env: { ...environment(), ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
}

/** The environment of the test run, without settings of a service. */
function environment(addresses: Partial<Addresses> = {}): NodeJS.ProcessEnv {
  return {
    ...process.env,
    DATABASE_URL: "",
    GRPC_ADDRESS: addresses.grpcAddress ?? "127.0.0.1:0",
    HTTP_ADDRESS: addresses.httpAddress ?? "127.0.0.1:0",
    OPS_ADDRESS: addresses.opsAddress ?? "127.0.0.1:0",
    LOG_LEVEL: "info",
  };
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // A stack trace, for example.
  }
}
