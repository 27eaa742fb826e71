/**
 * The free space under the embedded PostgreSQL. PostgreSQL ends when its log cannot grow, and then
 * reads fail too. So pushes are refused while less than `reserveBytes` is free. They are accepted
 * again when an eighth more is free.
 *
 *   enough ── free < reserve ──► full ── free ≥ reserve and an eighth ──► enough
 *      └──────────── files cannot be found ──► gone ──── found ───────────┘
 */
import { Interval } from "../base/interval.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "../base/unit.ts";
import { diskFull } from "./failure.ts";
import type { EmbeddedLog } from "../postgres/server.ts";

const INTERVAL_MS = 1_000;

interface DiskSpaceParts {
  /** Rejects when the files of the database are gone. */
  readonly freeBytes: () => Promise<number>;
  readonly reserveBytes: number;
  readonly log: EmbeddedLog;
  readonly seen: (freeBytes: number) => void;
}

export class DiskSpace implements Unit {
  readonly #parts: DiskSpaceParts;
  readonly #looking = new Interval(() => this.look());
  /** The error for a push; undefined while the disk has room. */
  refusal: ServiceError | undefined;

  constructor(parts: DiskSpaceParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {
    await this.look();
    this.#looking.start(INTERVAL_MS);
  }

  stop(): Promise<void> {
    return this.#looking.stop();
  }

  async look(): Promise<void> {
    const { freeBytes, reserveBytes, log, seen } = this.#parts;
    const before = this.refusal?.reason;
    try {
      const free = await freeBytes();
      seen(free);
      const needed = before === "DISK_FULL" ? reserveBytes + reserveBytes / 8 : reserveBytes;
      this.refusal = free < needed ? diskFull() : undefined;
      if (this.refusal?.reason === before) return;
      if (this.refusal === undefined) log.info({ freeBytes: free }, "disk_has_room");
      else log.warn({ freeBytes: free, reserveBytes }, "disk_full");
    } catch (error) {
      this.refusal = filesMissing(error);
      if (before !== "DATABASE_UNAVAILABLE") log.warn({ err: error }, "data_dir_gone");
    }
  }
}

function filesMissing(cause: unknown): ServiceError {
  const message = "the files of the database are gone; nothing was stored";
  return new ServiceError("unavailable", "DATABASE_UNAVAILABLE", message, {
    cause,
    retryAfterMs: INTERVAL_MS,
  });
}
