import { readFile, stat } from "node:fs/promises";
import { codeOf, ServiceError } from "../base/errors.ts";
import { Repeating } from "../base/repeating.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";

interface WatchedFilesParts {
  /** Reads the files and uses their content; rejects when it is unusable. */
  readonly take: () => Promise<void>;
  /** Called after each change: with the error of `take` if the old content stays. */
  readonly changed: (refusal?: unknown) => void;
}

interface WatchedFilesOptions {
  readonly paths: readonly string[];
  readonly pollMs: number;
}

export const FILE_POLL_MS = 1_000;
/** 5,000 tokens of 200 bytes. A bundle of every public authority has 200 KB, a key set 20 KB. */
const FILE_BYTES_MAX = 1_048_576;

/**
 * Files that are read at the start, or the start fails, and again after each change. The files are
 * polled: Kubernetes changes a link two levels above a file, which inotify does not report for the
 * file, and on network file systems inotify reports nothing at all.
 *
 *   as it was ── other files ──► unsettled ── still the same at the next look ──► taken or refused
 *       ▲                           │ changed again ↺                                   │
 *       └───────────────────────────┴───────────────────────────────────────────────────┘
 *
 * Several files, such as a certificate and its key, are never written at the same moment, so a
 * change of them needs a second look. A single file is read at the first look.
 */
export class WatchedFiles implements Unit {
  readonly #parts: WatchedFilesParts;
  readonly #options: WatchedFilesOptions;
  readonly #looks = new Repeating(() => this.#look());
  #taken = "";
  #seen = "";

  constructor(parts: WatchedFilesParts, options: WatchedFilesOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.check();
    this.#looks.start(this.#options.pollMs);
  }

  /** Reads the files as a start does, and rejects in the same way; nothing runs afterwards. */
  async check(): Promise<void> {
    await this.#take(await this.#fingerprint());
  }

  stop(): Promise<void> {
    return this.#looks.stop();
  }

  async #look(): Promise<void> {
    const now = await this.#fingerprint();
    const isSettled = now === this.#seen || this.#options.paths.length === 1;
    this.#seen = now;
    if (!isSettled || now === this.#taken) return;
    try {
      await this.#take(now);
      this.#parts.changed();
    } catch (error) {
      this.#parts.changed(error);
    }
  }

  /** `fingerprint` is from before the read: a write during the read counts as another change. */
  #take(fingerprint: string): Promise<void> {
    this.#seen = fingerprint;
    this.#taken = fingerprint;
    return this.#parts.take();
  }

  async #fingerprint(): Promise<string> {
    return (await Promise.all(this.#options.paths.map(fingerprintOf))).join(" ");
  }
}

interface WatchedTextParts {
  readonly log: Log;
  /** Throws a ServiceError that names the fault of the text, and quotes nothing of it. */
  readonly take: (text: string) => void;
  /** Called after each change. */
  readonly reloaded: (outcome: "changed" | "failed") => void;
}

interface WatchedTextOptions {
  readonly setting: string;
  readonly path: string;
  readonly pollMs: number;
}

/** One file of text; its changes are logged. */
export function watchedText(
  { log, take, reloaded }: WatchedTextParts,
  { setting, path, pollMs }: WatchedTextOptions,
): WatchedFiles {
  return new WatchedFiles(
    {
      async take() {
        takeSetting(setting, await readSettingFile(setting, path), take);
      },
      changed(refusal) {
        reloaded(refusal === undefined ? "changed" : "failed");
        if (refusal === undefined) return log.info({ setting, path }, "file taken");
        const { message } = ServiceError.from(refusal);
        const problem = message.replace(`${setting}: `, "").replace(`${JSON.stringify(path)} `, "");
        log.error({ setting, path, problem }, "file refused, the old one stays");
      },
    },
    { paths: [path], pollMs },
  );
}

/** Names the setting in the error of an unusable text. */
export function takeSetting(setting: string, text: string, take: (text: string) => void): void {
  try {
    take(text);
  } catch (error) {
    throw error instanceof ServiceError ? settingRefused(setting, error.message) : error;
  }
}

/** The text of a file that a setting names. The error names the setting and quotes no content. */
export async function readSettingFile(setting: string, path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size <= FILE_BYTES_MAX) return await readFile(path, "utf8");
  } catch (cause) {
    const code = codeOf(cause) || "unknown";
    throw settingRefused(setting, `${JSON.stringify(path)} cannot be read (${code})`, cause);
  }
  throw settingRefused(setting, `expected at most ${FILE_BYTES_MAX} bytes`);
}

export function settingRefused(setting: string, why: string, cause?: unknown): ServiceError {
  return new ServiceError("invalid_argument", "INVALID_REQUEST", `${setting}: ${why}`, { cause });
}

async function fingerprintOf(path: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join();
  } catch {
    return "none";
  }
}
