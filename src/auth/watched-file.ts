import { readFile, stat } from "node:fs/promises";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import { Repeating } from "../base/repeating.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface WatchedFileParts {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Throws a ServiceError that says what is wrong with the text, and shows nothing of it. */
  readonly take: (text: string) => void;
}

export interface WatchedFileOptions {
  /** What it holds, for the counter. */
  readonly file: "tokens" | "jwks";
  /** The setting that names it, for whoever has to mend it. */
  readonly setting: string;
  readonly path: string;
  readonly pollMs: number;
}

export const FILE_POLL_MS = 1_000;
/** 5,000 tokens of 200 bytes; a key set has some ten keys of 2 KB. */
const FILE_BYTES_MAX = 1_048_576;

/**
 * A file that is taken at start, or the start fails; and again whenever it has changed, or the old one
 * stays and the log says why. It asks, instead of being told: what Kubernetes changes is a link two
 * steps above the file, of which inotify says nothing to who watches the file, and on network file
 * systems it says nothing at all.
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

  /** Takes the file as a start does, and rejects as one; nothing runs after it. */
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
    // Before the text is read: what is written meanwhile makes it another file to the next look.
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

  /** Another text has another one; undefined while there is no file. */
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

/** What a text is refused with; the message is for the operator, and quotes nothing. */
export function fileRefused(message: string): ServiceError {
  return new ServiceError("invalid_argument", "INVALID_REQUEST", message);
}

/** Of errors that are not ours the code alone: what parsers say quotes what they read. */
function said(error: unknown): string {
  if (error instanceof ServiceError) return error.message;
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? `cannot be read (${code})` : "cannot be read";
}
