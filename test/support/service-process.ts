/**
 * The service and its command line as processes, seen from outside: what they print, what they
 * answer, how they end.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { endPostmaster, makeDirectory } from "./embedded-fixture.ts";

/** The bundle that `npm start` runs; test/support/postgres-server.ts makes it before a run. */
const MAIN = fileURLToPath(new URL("../../dist/main.js", import.meta.url));
/** The tool that `session-ledger import` runs too, from its sources. */
export const IMPORT_TOOL = fileURLToPath(
  new URL("../../tools/import-upstream/main.ts", import.meta.url),
);

type Environment = Readonly<Record<string, string>>;

export interface ServiceOptions {
  /** Over the defaults of a test: free ports, a database of its own on the server of the test run. */
  readonly env?: Environment;
  /** A PostgreSQL of its own in a directory of its own, for tests that end it or start it again. */
  readonly embedded?: boolean;
  /** Of a service that ran before; without it a new one. */
  readonly dataDir?: string;
  /** Of Node, before the service's own: `--import` and a module, for example. */
  readonly nodeArguments?: readonly string[];
}

export interface ServiceProcess {
  readonly pid: number;
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly opsAddress: string;
  readonly dataDir: string;
  /** Empty where it has a PostgreSQL of its own. */
  readonly databaseUrl: string;
  /** Every line of its log so far. */
  readonly log: readonly string[];
  /** SIGTERM; resolves with the exit code when the process is gone. Does nothing a second time. */
  stop(): Promise<number | null>;
  /** Resolves when the process is gone. Its embedded PostgreSQL outlives a SIGKILL. */
  kill(signal: NodeJS.Signals): Promise<number | null>;
}

/** A test run that is cut short must not leave services behind: each is told to stop. */
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

/** Resolves when the service says that it serves. */
export async function startService(options: ServiceOptions = {}): Promise<ServiceProcess> {
  const dataDir = options.dataDir ?? (await makeDirectory());
  const databaseUrl = await databaseOf(options);
  const env = {
    ...environment(),
    DATA_DIR: dataDir,
    DATABASE_URL: databaseUrl,
    ...options.env,
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
  const serving = Promise.withResolvers<z.infer<typeof servingSchema>>();
  createInterface({ input: child.stderr }).on("line", (line) => log.push(line));
  createInterface({ input: child.stdout }).on("line", (line) => {
    log.push(line);
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
    grpcAddress: grpc,
    httpAddress: http,
    opsAddress: ops,
    dataDir,
    databaseUrl,
    log,
    kill,
    stop: () => kill("SIGTERM"),
  };
}

async function databaseOf({ dataDir, embedded, env = {} }: ServiceOptions): Promise<string> {
  const { DATABASE_URL: given } = env;
  if (given !== undefined) return given;
  if (embedded === true || dataDir !== undefined) return "";
  // The harness of faults starts services outside vitest, where this module cannot be loaded.
  const { createLedgerDatabase } = await import("./database.ts");
  return (await createLedgerDatabase()).url;
}

/** A service that has ended, with its database and its gRPC port: its clients find it again. */
export function startAgain(
  ended: Pick<ServiceProcess, "dataDir" | "databaseUrl" | "grpcAddress">,
): Promise<ServiceProcess> {
  const { dataDir, databaseUrl, grpcAddress } = ended;
  return startService({
    dataDir,
    env: { DATABASE_URL: databaseUrl, GRPC_ADDRESS: grpcAddress },
  });
}

/** Ends what a test left running, its embedded PostgreSQL too; `cleanUp` then deletes the directory. */
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
  readonly stdout: AsyncIterable<string>;
  readonly result: Promise<Omit<CommandResult, "stdout">>;
  /** As `| head` does when it has enough. */
  closeOutput(): void;
  kill(signal: NodeJS.Signals): void;
}

/** A command to its end. */
export async function runCommand(
  args: readonly string[],
  options: {
    readonly env?: Environment;
    readonly input?: string | Uint8Array;
    /** The service's own command line without it. */
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
export function startCommand(args: readonly string[], env?: Environment): Command {
  const child = spawnCommand(args, env);
  child.stdin.end();
  const ended = once(child, "exit");
  const result = Promise.all([text(child.stderr), ended]).then(([stderr]) => ({
    exitCode: child.exitCode,
    stderr,
  }));
  return {
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

/** The environment of whoever runs the tests, without what it says to a service. */
function environment(): NodeJS.ProcessEnv {
  return {
    ...process.env,
    // Of several hundred processes each compiles the same files: with the cache a start takes 0.3 s less.
    NODE_COMPILE_CACHE: join(tmpdir(), "session-ledger-compile-cache"),
    DATABASE_URL: "",
    GRPC_ADDRESS: "127.0.0.1:0",
    HTTP_ADDRESS: "127.0.0.1:0",
    OPS_ADDRESS: "127.0.0.1:0",
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
