/**
 * The caller's token, sent as `authorization: Bearer …`. A function is called before each call and
 * each stream, so that an expiring token can be replaced. Its result is not kept here.
 */
import { Metadata } from "@grpc/grpc-js";
import { within } from "../base/timers.ts";
import { RpcFailure, textOf } from "./failure.ts";

interface AskLimits {
  readonly deadlineMs: number;
  readonly signal?: AbortSignal | undefined;
}

export type TokenSource = string | (() => string | Promise<string>);

/**
 * The metadata of a call. Synchronous where possible, so that calls leave in the order in which
 * they were made. A source that fails, or does not answer in time, gives UNAVAILABLE: a retry can
 * help.
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
    return bearer(await within(askedNow(source), { limitMs: deadlineMs, late, signal }));
  } catch (cause) {
    if (signal?.aborted) throw new RpcFailure("CANCELLED", "cancelled before it began");
    if (cause instanceof RpcFailure) throw cause;
    throw new RpcFailure("UNAVAILABLE", `the source of tokens failed: ${textOf(cause)}`, { cause });
  }
}

/** Also handles a source that throws instead of rejecting. */
async function askedNow(source: () => string | Promise<string>): Promise<string> {
  return source();
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
