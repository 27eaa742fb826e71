/**
 * Classifies the failure of a statement by one question: may the statement be sent again?
 *
 *   locked      another transaction holds the session; nothing was done
 *   retryable   the server reported that it did nothing, or the statement was never sent
 *   unknown     the connection was lost after sending: the statement may be committed (postgres.js
 *               reports CONNECTION_CLOSED even for a backend that was killed)
 *   slow        the server cancelled it after statement_timeout, and did nothing; of many pushes in
 *               the statement, one may be the slow one
 *   unavailable the server reported that it did nothing, and an immediate retry would fail too
 *   defect      everything else: our statement is wrong
 *
 * SQLSTATEs: https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
import { ServiceError, settingRefused } from "@session-ledger/base/errors";
import { urlsOfHosts } from "../base/postgres-hosts.ts";
import { POOL_LEFT } from "./pools.ts";
import type { SessionHead } from "./rows.ts";

/** A commit was answered by a connection that does not put it on disk. */
export const UNSAFE = "DATABASE_UNSAFE";

export type FailureKind = "locked" | "retryable" | "unknown" | "slow" | "unavailable" | "defect";

const BY_CODE: Readonly<Record<string, FailureKind>> = {
  "40001": "retryable", // serialization_failure
  "40P01": "retryable", // deadlock_detected
  "55P03": "locked", // lock_not_available: lock_timeout
  // unique_violation: another writer ignores our lock; the next try finds its key.
  "23505": "retryable",
  "57P03": "retryable", // cannot_connect_now: starting up or shutting down
  "53300": "retryable", // too_many_connections
  "25006": "retryable", // read_only_sql_transaction: a failover is under way
  "57014": "slow", // query_canceled: statement_timeout
  "57P01": "unknown", // admin_shutdown; with synchronous replication it may come after the local commit
  "57P02": "unknown", // crash_shutdown
  "57P05": "unknown", // idle_session_timeout
  // Failed before the first byte of the statement was sent.
  ECONNREFUSED: "retryable",
  ENOTFOUND: "retryable",
  EAI_AGAIN: "retryable",
  EHOSTUNREACH: "retryable",
  ENETUNREACH: "retryable",
  CONNECT_TIMEOUT: "retryable",
  [POOL_LEFT]: "retryable",
  // Failed after the first byte, or at an unknown time.
  CONNECTION_CLOSED: "unknown",
  CONNECTION_DESTROYED: "unknown",
  ECONNRESET: "unknown",
  EPIPE: "unknown",
  ETIMEDOUT: "unknown",
  [UNSAFE]: "unknown", // Committed on a server that may lose it.
  CONNECTION_ENDED: "unavailable", // The service is stopping.
};

/** Whole classes, by the first two characters. */
const BY_CLASS: Readonly<Record<string, FailureKind>> = {
  "08": "unknown", // Connection exceptions.
  "53": "unavailable", // Insufficient resources: disk full, out of memory.
  "58": "unavailable", // System error: I/O.
};

export function failureOf(error: unknown): FailureKind {
  const code = codeOf(error);
  if (code === undefined) return "defect";
  // Outside of a connection attempt the code does not mean that the server is down.
  if (code === "ENOENT") return isConnecting(error) ? "retryable" : "defect";
  if (code === "57014" && isCancel(error)) return "retryable";
  if (code === "XX000" && isLostAtNode(error)) return "unknown";
  const sqlState = /^[0-9A-Z]{5}$/.test(code);
  return BY_CODE[code] ?? (sqlState ? BY_CLASS[code.slice(0, 2)] : undefined) ?? "defect";
}

/**
 * A cancel without a reason: by a person, or a lock_timeout that expired in the moment in which the
 * session became free. A server with other messages than English ones says the same as for `slow`.
 */
function isCancel(error: unknown): boolean {
  return error instanceof Error && error.message.endsWith("user request");
}

/** Citus has no other code for a node that is lost during a statement or its commit. */
function isLostAtNode(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const where = "where" in error ? String(error.where) : "";
  return where.includes("while executing command on") || NODE_FAILED.test(error.message);
}

const NODE_FAILED = /^(?:could not commit transaction for shard|failure on connection marked)/;

/**
 * True when the statement's connection is gone, or that is unknown. An ERROR comes from a server
 * that runs: class 08 in it means a connection of the server itself, such as dblink's.
 */
export function isConnectionLost(error: unknown): boolean {
  return !isAnswer(error) && failureOf(error) === "unknown";
}

/** The coordinator of a sharded engine answers that it has lost the node of the session. */
export function isNodeLost(error: unknown): boolean {
  return isAnswer(error) && failureOf(error) === "unknown";
}

function isAnswer(error: unknown): boolean {
  const hasSeverity = typeof error === "object" && error !== null && "severity" in error;
  return hasSeverity && error.severity === "ERROR";
}

/** False for a locked session, a slow statement, a row that cannot be stored (22, 23, 54). */
export function isOfDatabase(error: unknown): boolean {
  const code = codeOf(error);
  return (
    code !== undefined && !["55P03", "57014"].includes(code) && !/^(?:22|23|54)...$/.test(code)
  );
}

/** A failure in one line: the text of PostgreSQL or the network, and its code. */
export function reasonOf(error: unknown): string {
  const code = codeOf(error);
  const detail = error instanceof Error ? error.message.split("\n", 1)[0] : undefined;
  return [detail, code && `(${code})`].filter(Boolean).join(" ");
}

/** A failure as the caller of a read gets it. Defects stay as they are. */
export function storeError(cause: unknown): unknown {
  const failure = failureOf(cause);
  if (cause instanceof ServiceError || failure === "defect") return cause;
  return isDiskFull(cause) ? diskFull(cause) : new DatabaseAway(cause);
}

/** A failure that another try does not mend: all that wait for the read must learn of it. */
export function defectOf(error: unknown): ServiceError | undefined {
  const failure = ServiceError.from(error);
  return failure.code === "internal" ? failure : undefined;
}

export function isDiskFull(error: unknown): boolean {
  return codeOf(error) === "53100"; // disk_full
}

/** Nothing was stored; a person must make room. */
export function diskFull(cause?: unknown): ServiceError {
  const message = "the disk of the database is full; nothing was stored";
  return new ServiceError("unavailable", "DISK_FULL", message, { cause, retryAfterMs: 10_000 });
}

/** `loss`: the reason, of a setting of the server. */
export function commitsMayBeLost(loss: string): ServiceError {
  const message = `the database may lose acknowledged rows (${loss}); nothing was stored`;
  return new ServiceError("unavailable", "DATABASE_UNAVAILABLE", message, { retryAfterMs: 10_000 });
}

class DatabaseAway extends ServiceError {
  constructor(cause: unknown) {
    const message = "the database is not available";
    super("unavailable", "DATABASE_UNAVAILABLE", message, { cause, retryAfterMs: 1_000 });
  }
}

interface NamedDatabase {
  /** The setting that names it: a variable or an option. */
  readonly setting: string;
  readonly url: string;
}

/** For code that starts something on a database: an error names the database and the cause. */
export async function naming<T>(database: NamedDatabase, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw namedError(error, database);
  }
}

/** Shows only host and port of the URL, which may contain a password. */
export function namedError(error: unknown, { setting, url }: NamedDatabase): unknown {
  if (error instanceof DatabaseAway) {
    const { code, reason, cause } = error;
    const message = `the database of ${setting} at ${placeOf(url)} is not available (${messageOfCause(cause)})`;
    return new ServiceError(code, reason, message, { cause, retryAfterMs: 1_000 });
  }
  const refusal = error instanceof ServiceError ? undefined : refusalIn(error);
  if (refusal === undefined) return error;
  return settingRefused(setting, `${placeOf(url)} cannot be used: ${refusal}`, error);
}

/** Invalid authorization or password; no such database (3D000); insufficient privilege. */
const REFUSED = /^28|^3D000$|^42501$/;
/** Node's codes for an untrusted certificate and a failed handshake. */
const NO_TLS = /CERT|^ERR_(?:TLS|SSL)_|^UNABLE_TO_/;

function refusalIn(error: unknown): string | undefined {
  const code = codeOf(error);
  if (code === undefined || !(error instanceof Error)) return undefined;
  const detail = `${error.message.split("\n", 1)[0]} (${code})`;
  if (REFUSED.test(code)) return `PostgreSQL reports ${detail}`;
  return NO_TLS.test(code) ? `TLS failed: ${detail}` : undefined;
}

function messageOfCause(cause: unknown): string {
  const code = codeOf(cause) ?? "no code";
  if (code === "25006") return reasonOf(cause);
  const isHandshake = cause instanceof Error && cause.message.includes("before secure TLS");
  return isHandshake ? `${code} in the TLS handshake: it may not support TLS` : code;
}

function placeOf(text: string): string {
  const places = urlsOfHosts(text).map((one) => {
    const url = URL.parse(one);
    const host = url?.hostname || url?.searchParams.get("host") || "localhost";
    return host.startsWith("/") ? host : `${host}:${url?.port || "5432"}`;
  });
  return places.join(", ");
}

export function drizzleError(error: unknown): unknown {
  return storeError(errorOfDriver(error));
}

/** Drizzle's builder wraps the driver's errors. */
export function errorOfDriver(error: unknown): unknown {
  if (error instanceof ServiceError || !(error instanceof Error)) return error;
  return error.cause ?? error;
}

export function codeOf(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

function isConnecting(error: unknown): boolean {
  return (
    typeof error === "object" && error !== null && "syscall" in error && error.syscall === "connect"
  );
}

/** The refusals that follow from the state of a session, with one text for all callers. */

export function sessionNotFound(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_NOT_FOUND", `session ${sessionId} does not exist`);
}

export function sessionDeleted(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_DELETED", `session ${sessionId} was deleted`);
}

/** The head of a session, or why it has none. */
export function livingOf(sessionId: string, head: SessionHead | undefined): SessionHead {
  if (head === undefined) throw sessionNotFound(sessionId);
  if (head.deleted) throw sessionDeleted(sessionId);
  return head;
}

export function sessionHeld(sessionId: string, hold: string): ServiceError {
  const message = `session ${sessionId} is held, and nothing of it is deleted: ${hold}`;
  return new ServiceError("failed_precondition", "SESSION_HELD", message);
}

/** The newest rows are lost; clients that have them must start from the beginning. */
export function historyLost(sessionId: string): ServiceError {
  const message = `the database has lost the newest rows of session ${sessionId} (a failover, or a restored backup), and their numbers are given to other rows: drop what you have of the session and read it again from the beginning`;
  return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message);
}

/** For a push stream with acknowledged commits that the database has lost. */
export function committedEventsLost(next: bigint): ServiceError {
  const message = `the database has lost events of this stream that were committed (a failover, or a restored backup): open the stream again and send again from number ${next}`;
  return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message, {
    violations: [{ field: "batch.first_client_seq", description: `expected ${next}` }],
  });
}

export function cursorBeyondHead(head: bigint): ServiceError {
  const message = `after_seq is above the head of the session, which is ${head}`;
  return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message, {
    violations: [{ field: "after_seq", description: `expected at most ${head}` }],
  });
}
