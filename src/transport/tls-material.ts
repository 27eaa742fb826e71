import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { type Clock, msOf } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { TransportMetrics } from "../observability/metrics.ts";
import { FILE_POLL_MS, readSettingFile, settingRefused, WatchedFiles } from "./watched-files.ts";

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
      { take: () => this.#take(), changed: (refusal) => this.#changed(refusal) },
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

  #changed(refusal: unknown): void {
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
    // New keys each time: a resumed TLS session does not show a certificate again, and its
    // certificate could be from an authority that is not trusted any more.
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
    // Every form of an encrypted key says so in its first lines.
    const expected = pem.includes("ENCRYPTED")
      ? "a private key without password"
      : "a private key in PEM";
    throw settingRefused(SETTINGS.keyFile, `expected ${expected}`, cause);
  }
}
