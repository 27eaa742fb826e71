import { readFile, stat } from "node:fs/promises";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import { Repeating } from "../base/repeating.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface WatchedFileParts {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Throws a ServiceError that names the fault of the text, and quotes nothing of it. */
  readonly take: (text: string) => void;
}

export interface WatchedFileOptions {
  /** The content of the file, for the counter. */
  readonly file: "tokens" | "jwks";
  /** The setting that names the file, for error messages. */
  readonly setting: string;
  readonly path: string;
  readonly pollMs: number;
}

export const FILE_POLL_MS = 1_000;
/** 5,000 tokens of 200 bytes; a key set has about ten keys of 2 KB. */
const FILE_BYTES_MAX = 1_048_576;

/**
 * A file that is read at start, or the start fails. After each change it is read again; if the new
 * text is invalid, the old content stays and the log has the reason. The file is polled: Kubernetes
 * changes a link two levels above the file, which inotify does not report for the file, and on
 * network file systems inotify reports nothing at all.
 */
export class WatchedFile implements Unit {
  readonly #parts: WatchedFileParts;
  readonly #options: WatchedFileOptions;
  readonly #looks = new Repeating(() => this.#look());
  #seen: string | undefined;

  constructor(parts: WatchedFileParts, options: WatchedFileOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.check();
    this.#looks.start(this.#options.pollMs);
  }

  /** Reads the file as a start does, and rejects in the same way; nothing runs afterwards. */
  async check(): Promise<void> {
    const { setting, path } = this.#options;
    this.#seen = await this.#sign();
    try {
      await this.#take();
    } catch (cause) {
      const isText = cause instanceof ServiceError;
      throw fileRefused(`${setting}: ${isText ? "" : `${JSON.stringify(path)} `}${said(cause)}`);
    }
  }

  stop(): Promise<void> {
    return this.#looks.stop();
  }

  async #look(): Promise<void> {
    const { file, setting, path } = this.#options;
    const { log, metrics } = this.#parts;
    // Taken before the text is read: a write during the read then counts as another change at the
    // next look.
    const sign = await this.#sign();
    if (sign === this.#seen) return;
    this.#seen = sign;
    try {
      await this.#take();
      metrics.authFileReloads.inc({ file, outcome: "changed" });
      log.info({ setting, path }, "file taken");
    } catch (error) {
      metrics.authFileReloads.inc({ file, outcome: "failed" });
      log.error({ setting, path, problem: said(error) }, "file refused, the old one stays");
    }
  }

  /** Differs for another text; undefined while the file does not exist. */
  async #sign(): Promise<string | undefined> {
    try {
      const { dev, ino, size, mtimeNs, ctimeNs } = await stat(this.#options.path, { bigint: true });
      return [dev, ino, size, mtimeNs, ctimeNs].join();
    } catch {
      return undefined;
    }
  }

  async #take(): Promise<void> {
    const { path } = this.#options;
    const { size } = await stat(path);
    if (size > FILE_BYTES_MAX) throw fileRefused(`expected at most ${FILE_BYTES_MAX} bytes`);
    this.#parts.take(await readFile(path, "utf8"));
  }
}

/** The error for an invalid text; the message is for the operator, and quotes nothing. */
export function fileRefused(message: string): ServiceError {
  return new ServiceError("invalid_argument", "INVALID_REQUEST", message);
}

/** For errors of other code only their code: parsers quote the text in their messages. */
function said(error: unknown): string {
  if (error instanceof ServiceError) return error.message;
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? `cannot be read (${code})` : "cannot be read";
}
