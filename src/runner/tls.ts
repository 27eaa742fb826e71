/** Whom a client trusts, and how it shows who it is below its token. */
import { getCACertificates } from "node:tls";
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { textOf } from "./failure.ts";

export interface TlsOptions {
  /** Authorities to trust, PEM; without it those that the system trusts, and Node's. */
  readonly ca?: string;
  /** The client's own certificate, PEM, where the service asks for one (mTLS). Needs `key`. */
  readonly cert?: string;
  /** Private key of `cert`, PEM, without password. */
  readonly key?: string;
}

/** True: TLS with what the system trusts. Absent or false: none, which is for one's own machine. */
export type Tls = boolean | TlsOptions;

/** Throws a TypeError that says which part is no PEM; it never quotes one. */
export function credentialsOf(tls: Tls | undefined): ChannelCredentials {
  if (tls === undefined || tls === false) return credentials.createInsecure();
  if (tls === true || Object.values(tls).every((part) => part === undefined)) return systems();
  const { ca = trustedHere(), cert, key } = tls;
  if ((cert === undefined) !== (key === undefined)) {
    throw new TypeError("tls.cert and tls.key are given together or not at all");
  }
  try {
    return credentials.createSsl(Buffer.from(ca), bytesOf(key), bytesOf(cert));
  } catch (cause) {
    throw new TypeError(`tls has something that is no PEM: ${textOf(cause)}`, { cause });
  }
}

let ofSystem: ChannelCredentials | undefined;

/** Made once: some hundred certificates are read. Clients that have the same can share a connection. */
function systems(): ChannelCredentials {
  ofSystem ??= credentials.createSsl(Buffer.from(trustedHere()));
  return ofSystem;
}

/**
 * The system's authorities and those that Node brings along; by itself Node looks at its own only, so
 * that what an administrator has installed would not count. SSL_CERT_FILE and SSL_CERT_DIR do.
 */
function trustedHere(): string {
  return [...new Set([...getCACertificates("default"), ...getCACertificates("system")])].join("\n");
}

function bytesOf(pem: string | undefined): Buffer | null {
  return pem === undefined ? null : Buffer.from(pem);
}
