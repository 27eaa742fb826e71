/**
 * For runners, the processes that drive agents: write a session, both of its streams from one source,
 * and read one. `docs/runner.md` and `docs/reader.md` tell how.
 *
 * Numbers of rows and events are `bigint`. Times are `bigint` microseconds since 1970-01-01T00:00:00Z
 * where their names end in `Micros`, and `Date` elsewhere.
 */

/** Begins to write a session. Nothing it gives ever throws into the agent's run, or makes it wait. */
export { createSessionWriter } from "./writer/writer.ts";
export type {
  CloseResult,
  FlushResult,
  SessionWriter,
  SessionWriterOptions,
  TextOptions,
  WriterMessage,
  WriterProblem,
  WriterState,
  WriterStats,
} from "./writer/types.ts";
/** Who wrote a message. */
export type { Sender } from "./rows.ts";
/** How many records were given, and what became of them. */
export type { Counts } from "./spool/spool.ts";
/** A bearer token, or what gives one. */
export type { TokenSource } from "./token.ts";
/** Whom a client trusts. */
export type { Tls, TlsOptions } from "./tls.ts";

/** A session as an async iterable: what it holds, and what comes. */
export { readSession } from "./session-reader.ts";
export type { ReadEventsOptions, ReadMessagesOptions } from "./session-reader.ts";
export type { EventItem, MessageItem } from "./session-item.ts";

/**
 * The service's whole contract: `client.call(ledger.getSession, { id })` and so on. `ledger` names its
 * methods, `call` is for unary ones, `watch` for those that deliver a stream, and `converse` for
 * streams both ways. Each is made once, but for a `call` with `retryForMs`.
 */
export { createLedgerClient, ledger } from "./client.ts";
export type { LedgerClient, LedgerClientOptions } from "./client.ts";
/** A call with streams both ways. */
export type { Conversation } from "./conversation.ts";

/** JSON lines, out and in. */
export { fromJsonLines, JsonLinesError, toJsonLines } from "./json-lines.ts";
export type { FromJsonLinesOptions, JsonLine, JsonLineReason } from "./json-lines.ts";

/** The messages that a person reads, of the events that an agent emits; what a writer does by itself. */
export { MessageDeriver } from "./derive/derive.ts";
export type { DerivedMessage, DeriveOptions } from "./derive/derive.ts";

/** A call that did not return OK: its code, and the reason that the service gave. */
export { RpcFailure } from "./failure.ts";
export type { RpcCode } from "./failure.ts";
