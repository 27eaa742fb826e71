/**
 * The token is sent as `authorization: Bearer …`. A function is called before each call and each
 * stream, so that an expiring token can be replaced; its result is not cached.
 */
import * as nodeTls from "node:tls";
import { type ChannelCredentials, credentials, Metadata } from "@grpc/grpc-js";
import { within } from "@session-ledger/base/timers";
import { RpcFailure, textOf } from "./failure.ts";

interface AskLimits {
  readonly deadlineMs: number;
  readonly signal?: AbortSignal | undefined;
}

export type TokenSource = string | (() => string | Promise<string>);

/**
 * Synchronous where possible, so that calls leave in the order in which they were made. A source
 * that fails, or does not answer in time, gives UNAVAILABLE: a retry can help.
 */
export function metadataOf(
  token: TokenSource | undefined,
  limits: AskLimits,
): Metadata | Promise<Metadata> {
  if (token === undefined) return new Metadata();
  if (typeof token === "string") return bearer(token);
  return asked(token, limits);
}

async function asked(
  source: () => string | Promise<string>,
  { deadlineMs, signal }: AskLimits,
): Promise<Metadata> {
  const late = (): Promise<never> =>
    Promise.reject(new RpcFailure("UNAVAILABLE", `no token within ${deadlineMs} ms`));
  try {
    // The function also handles a source that throws instead of rejecting.
    const given = (async () => source())();
    return bearer(await within(given, { limitMs: deadlineMs, onTimeout: late, signal }));
  } catch (cause) {
    if (signal?.aborted) throw new RpcFailure("CANCELLED", "cancelled before it began");
    if (cause instanceof RpcFailure) throw cause;
    throw new RpcFailure("UNAVAILABLE", `the source of tokens failed: ${textOf(cause)}`, { cause });
  }
}

function bearer(token: string): Metadata {
  // The error of Metadata itself would quote the token.
  if (!isSendable(token)) {
    const message = "the token is empty, or has characters that a header cannot hold";
    throw new RpcFailure("UNAVAILABLE", message);
  }
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${token.trim()}`);
  return metadata;
}

/** Printable ASCII; white space around it (the end of a file's line) is not sent. */
export function isSendable(token: unknown): boolean {
  return typeof token === "string" && /^[\x20-\x7e]+$/.test(token.trim());
}

export interface TlsOptions {
  /** The trusted authorities, PEM; without it those of the system and of Node. */
  readonly ca?: string;
  /** The client's own certificate, PEM, for a service that requires one (mTLS). Needs `key`. */
  readonly cert?: string;
  /** Private key of `cert`, PEM, without password. */
  readonly key?: string;
}

/** True: TLS with the authorities of the system. Absent or false: no TLS. */
export type Tls = boolean | TlsOptions;

/** Throws a TypeError that names the part that is not PEM; it never quotes one. */
export function credentialsOf(tls: Tls | undefined): ChannelCredentials {
  if (tls === undefined || tls === false) return credentials.createInsecure();
  if (tls === true || Object.values(tls).every((part) => part === undefined)) return systems();
  const { ca, cert, key } = tls;
  if ((cert === undefined) !== (key === undefined)) {
    throw new TypeError("tls.cert and tls.key are given together or not at all");
  }
  try {
    const roots = ca === undefined ? trustedHere() : Buffer.from(ca);
    return credentials.createSsl(roots, bytesOf(key), bytesOf(cert));
  } catch (cause) {
    throw new TypeError(`tls has a value that is not PEM: ${textOf(cause)}`, { cause });
  }
}

let ofSystem: ChannelCredentials | undefined;

/** Made once: it reads a hundred certificates, and clients that share it share a connection. */
function systems(): ChannelCredentials {
  ofSystem ??= credentials.createSsl(trustedHere());
  return ofSystem;
}

/**
 * The authorities of the system and of Node, whose default is only its own list. SSL_CERT_FILE and
 * SSL_CERT_DIR still apply. Node before 22.15 cannot list them: null is its default.
 */
function trustedHere(): Buffer | null {
  const { getCACertificates: list }: Partial<Pick<typeof nodeTls, "getCACertificates">> = nodeTls;
  if (list === undefined) return null;
  return Buffer.from([...new Set([...list("default"), ...list("system")])].join("\n"));
}

function bytesOf(pem: string | undefined): Buffer | null {
  return pem === undefined ? null : Buffer.from(pem);
}
