/**
 * A disk that can be filled: a tmpfs on which PostgreSQL keeps the tables of rows. The transaction log
 * stays on its disk, so an fsync is a real one. It needs the right to mount.
 */
import { execFile } from "node:child_process";
import { mkdir, open, rm, stat } from "node:fs/promises";
import { promisify } from "node:util";
import { makeDirectory, pgDataIn, withSql } from "../support/embedded-fixture.ts";

const SIZE_MIB = 2_048;
const BLOCK = Buffer.alloc(1 << 20);
/** A page of PostgreSQL: if not even this fits, no table can grow. */
const LAST_BLOCK = Buffer.alloc(8_192);

const run = promisify(execFile);

export interface SmallDisk {
  /** Fills it until not even a page fits. */
  fill(): Promise<void>;
  empty(): Promise<void>;
  /** To be called after the server has ended. */
  remove(): Promise<void>;
}

/** The reason why it cannot be made. Call it before there are tables. */
export async function makeSmallDisk(of: {
  readonly url: string;
  readonly dataDir: string;
}): Promise<SmallDisk | string> {
  const place = await makeDirectory();
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${SIZE_MIB}m`, "tmpfs", place]);
  } catch (error) {
    return `no tmpfs can be mounted: ${error instanceof Error ? error.message.trim() : String(error)}`;
  }
  const { uid, gid } = await stat(pgDataIn(of.dataDir));
  const tables = `${place}/tables`;
  await mkdir(tables);
  await run("chown", [`${uid}:${gid}`, place, tables]);
  await withSql(of.url, async (sql) => {
    await sql.unsafe(`create tablespace faults location '${tables}'`);
    await sql.unsafe("alter database postgres set default_tablespace = faults");
  });
  const ballast = `${place}/ballast`;
  return {
    fill: () => fill(ballast),
    empty: () => rm(ballast, { force: true }),
    remove: async () => {
      await run("umount", ["-l", place]);
    },
  };
}

async function fill(path: string): Promise<void> {
  await using file = await open(path, "w");
  for (const block of [BLOCK, LAST_BLOCK]) {
    try {
      for (;;) await file.write(block);
    } catch (error) {
      const isFull = error instanceof Error && "code" in error && error.code === "ENOSPC";
      if (!isFull) throw error;
    }
  }
}
