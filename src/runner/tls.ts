/** Whom a client trusts, and how it shows who it is below its token. */
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { textOf } from "./failure.ts";

export interface TlsOptions {
  /** Authorities to trust, PEM; without it those that the system trusts. */
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
  const { ca, cert, key } = tls === true ? {} : tls;
  if ((cert === undefined) !== (key === undefined)) {
    throw new TypeError("tls.cert and tls.key are given together or not at all");
  }
  try {
    return credentials.createSsl(bytesOf(ca), bytesOf(key), bytesOf(cert));
  } catch (cause) {
    throw new TypeError(`tls has something that is no PEM: ${textOf(cause)}`, { cause });
  }
}

function bytesOf(pem: string | undefined): Buffer | null {
  return pem === undefined ? null : Buffer.from(pem);
}
