/**
 * The reason why there is no connection, in words that name the fault. grpc-js passes on the text
 * of OpenSSL or the socket, with times and names of source files, and a failed handshake looks like
 * an unavailable service. The functions are pure.
 */

/**
 *   untrusted    the service's certificate is of no authority that is trusted here
 *   out_of_date  the certificate has expired, or is not valid yet
 *   other_name   the certificate is for another host
 *   asks         the service requires a certificate of the client
 *   refuses      the service does not accept the client's certificate
 *   no_tls       the service answers without TLS
 *   no_grpc      a server answers, but without HTTP/2: another port of the service, for example
 *   nobody       no program listens there
 *   closed       the server closed the connection before any HTTP/2, without a reason
 */
export type NoConnection =
  | "untrusted"
  | "out_of_date"
  | "other_name"
  | "asks"
  | "refuses"
  | "no_tls"
  | "no_grpc"
  | "nobody"
  | "closed";

const SAYS: Readonly<Record<NoConnection, string>> = {
  untrusted: "the service's certificate is of no authority that is trusted here",
  out_of_date: "the service's certificate is not valid now",
  other_name: "the service's certificate is for another name",
  asks: "the service asks for a certificate of the client's own",
  refuses: "the service does not accept the client's certificate",
  no_tls: "the service answers without TLS",
  no_grpc: "what answers there does not speak gRPC",
  nobody: "nothing listens there",
  closed:
    "the service hung up at once, as one does that expects TLS, or another certificate of the client",
};

/**
 * The texts of Node 24 (OpenSSL 3) and grpc-js 1.14; test/e2e/runner-doors.test.ts provokes them.
 */
const SIGNS: readonly (readonly [RegExp, NoConnection])[] = [
  [/unable to (?:verify|get)|self[- ]signed/i, "untrusted"],
  [/certificate (?:has expired|is not yet valid)/i, "out_of_date"],
  [/does not match certificate/i, "other_name"],
  [/alert certificate required/i, "asks"],
  [/alert (?:unknown ca|bad certificate|certificate (?:unknown|expired|revoked))/i, "refuses"],
  [/wrong version number|packet length too long/i, "no_tls"],
  [/Protocol error/, "no_grpc"],
  [/ECONNREFUSED/, "nobody"],
  [/Failed to connect|Connection closed before|socket disconnected before/i, "closed"],
];

const NONE = "No connection established";

/** Undefined: there was a connection, or the failure needs no other words (ETIMEDOUT). */
export function noConnectionOf({ cause }: Error): NoConnection | undefined {
  const isGrpcs = cause instanceof Error && "details" in cause;
  return isGrpcs && typeof cause.details === "string" ? kindOf(cause.details) : undefined;
}

function kindOf(details: string): NoConnection | undefined {
  if (!details.startsWith(NONE)) return undefined;
  return SIGNS.find(([sign]) => sign.test(details))?.[1];
}

/**
 * One line for people; a text about something else is returned unchanged, without an empty note.
 */
export function connectionText(details: string): string {
  // grpc-js reports why no address could be resolved, also when one could be.
  const said = details.replace(/\.?\s*Resolution note:\s*$/, "");
  const kind = kindOf(said);
  if (kind === undefined) return said;
  const original = said
    .slice(NONE.length)
    .replace(/^\. Last error: (?:Error: )?/, "")
    .replace(/\s*\(\d{4}-[^)]*Z\)\s*$/, "")
    .replace(/; if the root CA is installed locally.*$/s, "")
    .replace(/^.*:SSL routines:[^:]*:([^:]*):.*$/s, "$1")
    .trim();
  return `${NONE}: ${SAYS[kind]} (${original})`;
}
