/** PostgreSQL 15 as Debian installs it, for tests that need another version or its tools. */
import { appendFile, chmod, chown, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect } from "vitest";
import { accountNamed } from "../../src/postgres/cluster-location.ts";
import { type Account, runProgram } from "../../src/postgres/process.ts";
import { FAST_STOP_MS_MAX, launch, randomPort } from "../../src/postgres/server.ts";
import { childrenOf, endProcess, makeDirectory, recordingLog } from "./embedded-fixture.ts";
import { toolPath } from "./tools.ts";

export const DEBIAN_15 = "/usr/lib/postgresql/15/bin/postgres";

export interface DebianServer {
  readonly url: string;
  readonly port: number;
  readonly pgData: string;
  stop(): Promise<unknown>;
}

/** The user that runs the server; undefined: the user of the test. */
export async function debianAccount(): Promise<Account | undefined> {
  return process.getuid?.() === 0 ? accountNamed("postgres") : undefined;
}

/** A directory of that user. */
export async function makeDebianDirectory(): Promise<string> {
  const account = await debianAccount();
  const directory = await makeDirectory();
  await chmod(directory, 0o755);
  if (account !== undefined) await chown(directory, account.uid, account.gid);
  return directory;
}

/** Runs one of its programs to its end, which must be a success. */
export async function runDebian(program: string, args: readonly string[]): Promise<void> {
  const account = await debianAccount();
  const path = join(dirname(toolPath(DEBIAN_15)), program);
  const outcome = await runProgram(path, args, { account, timeoutMs: 60_000 });
  expect(outcome).toMatchObject({ code: 0 });
}

/** A new cluster, with these lines in postgresql.conf. */
export async function startDebian(lines: readonly string[] = []): Promise<DebianServer> {
  const pgData = join(await makeDebianDirectory(), "data");
  const args = [`--pgdata=${pgData}`, "--username=postgres", "--auth=trust", "--encoding=UTF8"];
  await runDebian("initdb", args);
  return startDebianOn(pgData, lines);
}

export async function startDebianOn(
  pgData: string,
  lines: readonly string[],
  postgresPath = toolPath(DEBIAN_15),
): Promise<DebianServer> {
  await appendFile(join(pgData, "postgresql.conf"), lines.map((line) => `${line}\n`).join(""));
  const [account, port] = [await debianAccount(), randomPort()];
  const signal = new AbortController().signal;
  const fastStopMs = FAST_STOP_MS_MAX;
  const log = recordingLog();
  const server = await launch({ postgresPath, pgData, port, account, log, fastStopMs, signal });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  return { url, port, pgData, stop: () => server.stop() };
}

/** SIGKILL to all of its processes: a backend without a postmaster could still answer. */
export async function killDebian({ pgData }: DebianServer): Promise<void> {
  const postmaster = Number.parseInt(await readFile(join(pgData, "postmaster.pid"), "utf8"), 10);
  for (const pid of [postmaster, ...(await childrenOf(postmaster))]) endProcess(pid);
}
