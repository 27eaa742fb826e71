import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { ServiceError } from "../base/errors.ts";

/** The files of TLS, in PEM. */
export interface TlsFiles {
  /** The certificate, followed by the intermediate certificates. */
  readonly certFile: string;
  readonly keyFile: string;
  /** The authorities of client certificates; undefined: clients need no certificate. */
  readonly clientCaFile: string | undefined;
}

export interface ReadTls {
  readonly context: SecureContextOptions;
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** The settings that name the files, for error messages. */
const SETTINGS = {
  certFile: "TLS_CERT_FILE",
  keyFile: "TLS_KEY_FILE",
  clientCaFile: "TLS_CLIENT_CA_FILE",
} as const satisfies Record<keyof TlsFiles, string>;

/** A bundle of every public authority has about 200 KB. */
const FILE_BYTES_MAX = 1_048_576;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs;
const TICKET_KEY_BYTES = 48;

/** Throws a ServiceError that names the wrong setting and quotes nothing of a file. */
export async function readTls(files: TlsFiles): Promise<ReadTls> {
  // One file after the other: of several wrong files, the error always names the same one.
  const cert = await read("certFile", files.certFile);
  const key = await read("keyFile", files.keyFile);
  const { clientCaFile } = files;
  const ca = clientCaFile === undefined ? undefined : await read("clientCaFile", clientCaFile);
  const [leaf] = certificatesIn("certFile", cert);
  if (ca !== undefined) certificatesIn("clientCaFile", ca);
  if (leaf?.checkPrivateKey(privateKeyIn(key)) !== true) {
    throw refused("keyFile", `the key is not that of the certificate in ${SETTINGS.certFile}`);
  }
  const context = {
    cert,
    key,
    ...(ca === undefined ? {} : { ca }),
    minVersion: "TLSv1.2",
    // New keys each time: a resumed TLS session does not show a certificate again, and its
    // certificate could be from an authority that is not trusted any more.
    ticketKeys: randomBytes(TICKET_KEY_BYTES),
  } as const satisfies SecureContextOptions;
  try {
    createSecureContext(context);
  } catch (cause) {
    throw refused("certFile", "OpenSSL does not take the certificate and its key", cause);
  }
  return { context, notBefore: leaf.validFromDate, notAfter: leaf.validToDate };
}

/** A fingerprint of the files; another set of files has another fingerprint. */
export async function signOf(files: TlsFiles): Promise<string> {
  const paths = [files.certFile, files.keyFile, files.clientCaFile];
  const signs = await Promise.all(
    paths.filter((path) => path !== undefined).map((path) => fileSignOf(path)),
  );
  return signs.join(" ");
}

async function fileSignOf(path: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join();
  } catch {
    return "none";
  }
}

async function read(file: keyof TlsFiles, path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > FILE_BYTES_MAX) throw refused(file, `expected at most ${FILE_BYTES_MAX} bytes`);
    return await readFile(path, "utf8");
  } catch (cause) {
    if (cause instanceof ServiceError) throw cause;
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown";
    throw refused(file, `${JSON.stringify(path)} cannot be read (${code})`, cause);
  }
}

function certificatesIn(file: keyof TlsFiles, pem: string): readonly X509Certificate[] {
  const blocks = pem.match(CERTIFICATE) ?? [];
  if (blocks.length === 0) throw refused(file, "expected a certificate in PEM");
  try {
    return blocks.map((block) => new X509Certificate(block));
  } catch (cause) {
    throw refused(file, "expected a certificate in PEM", cause);
  }
}

function privateKeyIn(pem: string): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch (cause) {
    // Every form of an encrypted key says so in its first lines.
    const isLocked = pem.includes("ENCRYPTED");
    const expected = isLocked ? "a private key without password" : "a private key in PEM";
    throw refused("keyFile", `expected ${expected}`, cause);
  }
}

function refused(file: keyof TlsFiles, why: string, cause?: unknown): ServiceError {
  const message = `${SETTINGS[file]}: ${why}`;
  return new ServiceError("invalid_argument", "INVALID_REQUEST", message, { cause });
}
