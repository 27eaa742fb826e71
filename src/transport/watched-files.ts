import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { type Clock, msOf } from "@session-ledger/base/clock";
import { codeOf, ServiceError, settingRefused } from "@session-ledger/base/errors";
import { Interval } from "../base/interval.ts";
import type { Unit } from "../base/unit.ts";
import { withoutMark } from "@session-ledger/base/utf8";
import type { Log } from "../observability/log.ts";
import type { TransportMetrics } from "../observability/metrics.ts";

interface WatchedFilesParts {
  /** Reads the files and uses their content; rejects when it is unusable. */
  readonly take: () => Promise<void>;
  /** Called after each change: with the error of `take` if the old content stays. */
  readonly onChange: (refusal?: unknown) => void;
}

interface WatchedFilesOptions {
  readonly paths: readonly string[];
  readonly pollMs: number;
}

/** A change is taken at the second look, within a second. */
export const FILE_POLL_MS = 500;
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
 * A certificate and its key are never written at the same moment, and a look may see a file that is
 * half written. So a change is read only when two looks in a row see the same files.
 */
export class WatchedFiles implements Unit {
  readonly #parts: WatchedFilesParts;
  readonly #options: WatchedFilesOptions;
  readonly #looks = new Interval(() => this.#look());
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
    const isSettled = now === this.#seen;
    this.#seen = now;
    if (!isSettled || now === this.#taken) return;
    try {
      await this.#take(now);
      this.#parts.onChange();
    } catch (error) {
      this.#parts.onChange(error);
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
  readonly onReload: (outcome: "changed" | "failed") => void;
}

interface WatchedTextOptions {
  readonly setting: string;
  readonly path: string;
  readonly pollMs: number;
}

/** One file of text; its changes are logged. */
export function watchedText(
  { log, take, onReload }: WatchedTextParts,
  { setting, path, pollMs }: WatchedTextOptions,
): WatchedFiles {
  return new WatchedFiles(
    {
      async take() {
        takeSetting(setting, await readSettingFile(setting, path), take);
      },
      onChange(refusal) {
        onReload(refusal === undefined ? "changed" : "failed");
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
async function readSettingFile(setting: string, path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size <= FILE_BYTES_MAX) return withoutMark(await readFile(path, "utf8"));
  } catch (cause) {
    const code = codeOf(cause) || "unknown";
    throw settingRefused(setting, `${JSON.stringify(path)} cannot be read (${code})`, cause);
  }
  throw settingRefused(setting, `expected at most ${FILE_BYTES_MAX} bytes`);
}

async function fingerprintOf(path: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join();
  } catch {
    return "none";
  }
}

/** The files of TLS, in PEM. */
interface TlsFiles {
  /** The certificate, followed by the intermediate certificates. */
  readonly certFile: string;
  readonly keyFile: string;
  /** The authorities of client certificates; undefined: clients need no certificate. */
  readonly clientCaFile: string | undefined;
}

interface TlsMaterialParts {
  readonly log: Log;
  readonly metrics: Pick<TransportMetrics, "tlsReloads" | "tlsExpiry">;
  readonly clock: Clock;
}

/** The served certificate, and the authorities of client certificates. */
export class TlsMaterial implements Unit {
  readonly #parts: TlsMaterialParts;
  readonly #files: TlsFiles;
  readonly #watched: WatchedFiles;
  readonly #listeners: (() => void)[] = [];
  #context: SecureContextOptions | undefined;

  constructor(parts: TlsMaterialParts, files: TlsFiles, { pollMs } = { pollMs: FILE_POLL_MS }) {
    this.#parts = parts;
    this.#files = files;
    const paths = [files.certFile, files.keyFile, files.clientCaFile];
    this.#watched = new WatchedFiles(
      { take: () => this.#take(), onChange: (refusal) => this.#onFilesChange(refusal) },
      { paths: paths.filter((path) => path !== undefined), pollMs },
    );
  }

  /** The certificate for new connections. */
  get secureContextOptions(): SecureContextOptions {
    if (this.#context === undefined) throw new Error("TLS is not started");
    return this.#context;
  }

  get asksClients(): boolean {
    return this.#files.clientCaFile !== undefined;
  }

  /** Called after each change, once the new certificate is in use. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  start(): Promise<void> {
    return this.#watched.start();
  }

  stop(): Promise<void> {
    return this.#watched.stop();
  }

  async #take(): Promise<void> {
    const { context, leaf } = await readTls(this.#files);
    this.#context = context;
    const { validFromDate: notBefore, validToDate: notAfter } = leaf;
    const { log, metrics, clock } = this.#parts;
    metrics.tlsExpiry.set({ file: SETTINGS.certFile }, notAfter.getTime() / 1_000);
    const nowMs = msOf(clock.nowMicros());
    if (nowMs < notBefore.getTime() || nowMs > notAfter.getTime()) {
      log.warn({ notBefore, notAfter }, "the TLS certificate is not valid now");
    }
    for (const tell of this.#listeners) tell();
  }

  #onFilesChange(refusal: unknown): void {
    const { log, metrics } = this.#parts;
    metrics.tlsReloads.inc({ outcome: refusal === undefined ? "changed" : "failed" });
    if (refusal === undefined) return log.info({}, "TLS certificate taken");
    log.error({ err: ServiceError.from(refusal) }, "TLS certificate refused, the old one stays");
  }
}

/** The settings that name the files, for error messages. */
const SETTINGS = {
  certFile: "TLS_CERT_FILE",
  keyFile: "TLS_KEY_FILE",
  clientCaFile: "TLS_CLIENT_CA_FILE",
} as const satisfies Record<keyof TlsFiles, string>;

const CERTIFICATE = /-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs;

/** Throws a ServiceError that names the wrong setting and quotes nothing of a file. */
async function readTls({ certFile, keyFile, clientCaFile }: TlsFiles) {
  // One file after the other: of several wrong files, the error always names the same one.
  const cert = await readSettingFile(SETTINGS.certFile, certFile);
  const key = await readSettingFile(SETTINGS.keyFile, keyFile);
  const ca = clientCaFile && (await readSettingFile(SETTINGS.clientCaFile, clientCaFile));
  const leaf = firstCertificateIn(SETTINGS.certFile, cert);
  if (ca !== undefined) firstCertificateIn(SETTINGS.clientCaFile, ca);
  if (!leaf.checkPrivateKey(privateKeyIn(key))) {
    const why = `the key is not that of the certificate in ${SETTINGS.certFile}`;
    throw settingRefused(SETTINGS.keyFile, why);
  }
  const context = {
    cert,
    key,
    ...(ca === undefined ? {} : { ca }),
    minVersion: "TLSv1.2",
    // New each time: a resumed session shows no certificate, and its authority may not be trusted
    // any more.
    ticketKeys: randomBytes(48),
  } as const satisfies SecureContextOptions;
  try {
    createSecureContext(context);
  } catch (cause) {
    const why = "OpenSSL does not take the certificate and its key";
    throw settingRefused(SETTINGS.certFile, why, cause);
  }
  return { context, leaf };
}

/** All certificates of the file must be readable. */
function firstCertificateIn(setting: string, pem: string): X509Certificate {
  try {
    const [first] = (pem.match(CERTIFICATE) ?? []).map((block) => new X509Certificate(block));
    if (first !== undefined) return first;
  } catch (cause) {
    throw settingRefused(setting, "expected a certificate in PEM", cause);
  }
  throw settingRefused(setting, "expected a certificate in PEM");
}

function privateKeyIn(pem: string): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch (cause) {
    // Every form of an encrypted key is named in its first lines.
    const expected = pem.includes("ENCRYPTED")
      ? "a private key without password"
      : "a private key in PEM";
    throw settingRefused(SETTINGS.keyFile, `expected ${expected}`, cause);
  }
}
