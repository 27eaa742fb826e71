/** Shared by the tests of the embedded server: directories, a log to wait for, owners to kill. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, readdir, realpath, rm } from "node:fs/promises";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { z } from "zod";
import type { EmbeddedLog } from "../../src/postgres/server.ts";
import { argumentsOf } from "../../src/postgres/process.ts";

export const IS_ROOT = process.getuid?.() === 0;

/** A process that is still alive at the end of the tests is a bug, and is ended. */
const children = new Set<ChildProcess>();
const directories: string[] = [];

/** A directory that any user may pass through, deleted by `cleanUp`. */
export async function makeDirectory(mode = 0o755): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "session-ledger-test-"));
  await chmod(path, mode); // mkdtemp's own 700 would send the cluster elsewhere when root runs the tests.
  directories.push(path);
  return path;
}

export async function cleanUp(): Promise<void> {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
  for (const directory of directories.splice(0)) {
    await endPostmaster(directory);
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

export interface LogEntry {
  readonly event: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A log that a test can read and wait for. */
export function recordingLog(): EmbeddedLog & {
  readonly entries: readonly LogEntry[];
  until(event: string): Promise<LogEntry>;
} {
  const entries: LogEntry[] = [];
  const waiting: { readonly event: string; readonly resolve: (entry: LogEntry) => void }[] = [];
  const add = (fields: object, event: string): void => {
    const entry = { event, fields: { ...fields } };
    entries.push(entry);
    for (const waiter of waiting) if (waiter.event === event) waiter.resolve(entry);
  };
  return {
    info: add,
    warn: add,
    entries,
    until: (event) => {
      const found = entries.find((entry) => entry.event === event);
      if (found !== undefined) return Promise.resolve(found);
      const { promise, resolve } = Promise.withResolvers<LogEntry>();
      waiting.push({ event, resolve });
      return promise;
    },
  };
}

/** One connection, closed at the end, for a few statements. */
export async function withSql<T>(url: string, use: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined, connect_timeout: 10 });
  try {
    return await use(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Adds one row. */
export async function addRow(url: string): Promise<void> {
  await withSql(url, async (sql) => {
    await sql`create table if not exists kept (at timestamptz not null default now())`;
    await sql`insert into kept default values`;
  });
}

export function countRows(url: string): Promise<number> {
  return withSql(url, async (sql) => {
    const [row] = await sql<{ count: number }[]>`select count(*)::int as count from kept`;
    return row?.count ?? 0;
  });
}

const ownerAnswerSchema = z.union([
  z.object({ url: z.string() }),
  z.object({ refused: z.string() }),
]);

export type OwnerAnswer = z.infer<typeof ownerAnswerSchema>;

export interface Owner {
  readonly pid: number;
  readonly answer: Promise<OwnerAnswer>;
  /** Resolves when the process is gone. */
  kill(signal: NodeJS.Signals): Promise<void>;
}

/** Another process that starts the embedded server in `dataDir`. */
export function spawnOwner(dataDir: string): Owner {
  const script = fileURLToPath(new URL("./embedded-owner.ts", import.meta.url));
  const child = spawn(process.execPath, [script, dataDir], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.add(child);
  const ended = once(child, "exit").then(() => children.delete(child));
  const { promise: answer, resolve, reject } = Promise.withResolvers<OwnerAnswer>();
  createInterface({ input: child.stdout })
    .once("line", (line) => resolve(ownerAnswerSchema.parse(JSON.parse(line))))
    .once("close", () => reject(new Error("it ended without an answer")));
  answer.catch(() => undefined); // Some tests kill it before it has one.
  return {
    pid: child.pid ?? -1,
    answer,
    kill: async (signal) => {
      child.kill(signal);
      await ended;
    },
  };
}

export async function startOwner(dataDir: string): Promise<Owner & { readonly url: string }> {
  const owner = spawnOwner(dataDir);
  const answer = await owner.answer;
  if ("refused" in answer) throw new Error(answer.refused);
  return { ...owner, url: answer.url };
}

export function pgDataIn(dataDir: string): string {
  return join(dataDir, "postgres", "data");
}

/** The pid in the pid file of the server. */
export async function postmasterPid(dataDir: string): Promise<number | undefined> {
  const text = await readFile(join(pgDataIn(dataDir), "postmaster.pid"), "utf8").catch(() => "");
  const pid = Number.parseInt(text, 10);
  return pid > 0 ? pid : undefined;
}

export async function runningPostmaster(dataDir: string): Promise<number> {
  const pid = await postmasterPid(dataDir);
  if (pid === undefined) throw new Error(`no server runs in ${dataDir}`);
  return pid;
}

/**
 * Ends the server of a DATA_DIR, if it still runs. The pid in postmaster.pid may belong to another
 * process by now, or to the test itself, which starts a server in place of a killed one
 * (src/postgres/server.ts).
 */
export async function endPostmaster(dataDir: string): Promise<void> {
  const pid = await postmasterPid(dataDir);
  if (pid === undefined) return;
  const [program = "", ...args] = (await argumentsOf(pid)) ?? [];
  const runsIn = args[args.indexOf("-D") + 1] ?? "";
  const paths = [runsIn, pgDataIn(dataDir)].map((path) => realpath(path).catch(() => path));
  const [runs, own] = await Promise.all(paths);
  if (basename(program) === "postgres" && runs === own) endProcess(pid);
}

/** Of Linux: the fourth field of `stat` is the parent. */
export async function childrenOf(parent: number): Promise<readonly number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await readFile(`/proc/${name}/stat`, "utf8").catch(() => "");
    const [, fields = ""] = stat.split(") ");
    if (Number(fields.split(" ")[1]) === parent) found.push(Number(name));
  }
  return found;
}

/** What a stopped unit may not leave: a server, or the name of the owner. */
export async function remainsIn(dataDir: string): Promise<readonly string[]> {
  const pid = await postmasterPid(dataDir);
  const owners = (await readdir(dataDir)).filter((name) => name === "session-ledger.owner");
  return pid === undefined ? owners : [...owners, `server ${pid}`];
}

export function listens(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = createConnection({ host: hostname, port: Number(port) });
  const { promise, resolve } = Promise.withResolvers<boolean>();
  socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
  return promise.finally(() => socket.destroy());
}

/** True for a process of this test file, or the server of one of its directories. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}
