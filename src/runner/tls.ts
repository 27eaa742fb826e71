/** The authorities that a client trusts, and its own certificate, below its token. */
import { getCACertificates } from "node:tls";
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { textOf } from "./failure.ts";

export interface TlsOptions {
  /** The trusted authorities, PEM; without it those of the system and of Node. */
  readonly ca?: string;
  /** The client's own certificate, PEM, for a service that requires one (mTLS). Needs `key`. */
  readonly cert?: string;
  /** Private key of `cert`, PEM, without password. */
  readonly key?: string;
}

/**
 * True: TLS with the authorities of the system. Absent or false: no TLS, which is for your own
 * machine.
 */
export type Tls = boolean | TlsOptions;

/** Throws a TypeError that names the part that is not PEM; it never quotes one. */
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

/**
 * Made once, because it reads more than a hundred certificates. Clients with the same credentials
 * can share a connection.
 */
function systems(): ChannelCredentials {
  ofSystem ??= credentials.createSsl(Buffer.from(trustedHere()));
  return ofSystem;
}

/**
 * The authorities of the system and of Node. Node's default is only its own list, so certificates
 * installed by an administrator would not count. SSL_CERT_FILE and SSL_CERT_DIR still apply.
 */
function trustedHere(): string {
  return [...new Set([...getCACertificates("default"), ...getCACertificates("system")])].join("\n");
}

function bytesOf(pem: string | undefined): Buffer | null {
  return pem === undefined ? null : Buffer.from(pem);
}
