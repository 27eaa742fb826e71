/**
 * What one commit costs on this disk at the least: 8 KiB written over a file that has its size already,
 * as PostgreSQL writes over a recycled segment of its log, then fdatasync, its default on Linux. By
 * synchronous calls, so that no thread of Node's pool is measured with it.
 */
import { closeSync, fdatasyncSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Bench } from "./bench.ts";

const PAGE_BYTES = 8 * 1_024;
/** A segment of the log. */
const FILE_BYTES = 16 * 1_024 * 1_024;

export async function timeFsyncs(
  { signal }: Bench,
  options: { readonly directory: string; readonly count: number },
): Promise<readonly number[]> {
  const path = join(options.directory, "session-ledger-bench-fsync");
  const file = openSync(path, "w");
  try {
    writeSync(file, Buffer.alloc(FILE_BYTES));
    fsyncSync(file);
    const page = Buffer.alloc(PAGE_BYTES, 1);
    const tookMs: number[] = [];
    for (let n = 0; n < options.count; n += 1) {
      signal.throwIfAborted();
      const beganMs = performance.now();
      writeSync(file, page, 0, PAGE_BYTES, (n * PAGE_BYTES) % FILE_BYTES);
      fdatasyncSync(file);
      tookMs.push(performance.now() - beganMs);
      await new Promise(setImmediate); // A signal is only seen between two turns of the loop.
    }
    return tookMs;
  } finally {
    closeSync(file);
    rmSync(path);
  }
}
