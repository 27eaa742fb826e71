/** The machine of the figures: without it they mean nothing. */
import { statfs } from "node:fs/promises";
import { availableParallelism, cpus, release, tmpdir, totalmem } from "node:os";
import { SERVICE_SETTINGS } from "../../src/config/table.ts";
import { findBinaries } from "../../src/postgres/binaries.ts";
import type { Findings } from "./bench.ts";

/** Of statfs(2). In memory an fsync costs nothing, so the figures of a tmpfs say nothing of a disk. */
const FILE_SYSTEMS: Readonly<Record<number, string>> = {
  0x0102_1994: "tmpfs",
  0x58_46_53_42: "xfs",
  0x79_4c_76_30: "overlay",
  0x91_23_68_3e: "btrfs",
  0xef53: "ext4",
};

export async function describeMachine(): Promise<Findings> {
  const { type } = await statfs(tmpdir());
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    dataFileSystem: FILE_SYSTEMS[type] ?? `0x${type.toString(16)}`,
    node: process.version,
    postgres: `${(await findBinaries()).packageVersion} (embedded)`,
    date: new Date().toISOString(),
    command: ["npm run bench --", ...process.argv.slice(2)].join(" "),
    settings: settingsInForce(),
  };
}

/** Settings of the service that the user of the benchmark has changed; servers.ts sets the others. */
function settingsInForce(): Readonly<Record<string, string>> {
  const names = Object.values(SERVICE_SETTINGS).map(({ name }) => name);
  return Object.fromEntries(
    names.flatMap((name) => {
      const text = process.env[name];
      return text === undefined || text === "" ? [] : [[name, text]];
    }),
  );
}
