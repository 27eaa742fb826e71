/**
 * For runners, the processes that drive agents: write both streams of a session from one source,
 * and read a session. `docs/writing.md` and `docs/reading.md` are the guides.
 *
 * Numbers of rows and events are `bigint`. Times are `bigint` microseconds since 1970-01-01T00:00:00Z
 * where their names end in `Micros`, and `Date` elsewhere.
 */

/** Begins to write a session. The writer never throws into the agent's run or makes it wait. */
export { createSessionWriter } from "./writer/writer.ts";
export type {
  CloseResult,
  FlushResult,
  SessionWriter,
  SessionWriterOptions,
  Text,
  TextOptions,
  WriterMessage,
  WriterProblem,
  WriterState,
  WriterStats,
} from "./writer/types.ts";
/** The reason of `runSignal` when somebody has cancelled the run. */
export { RunCancelled } from "./writer/run-signal.ts";
/** The writer of a message. */
export type { Sender } from "./rows.ts";
/** The number of records that were given, and of each outcome. */
export type { Counts } from "./spool/spool.ts";
/** A bearer token, or a function that returns one. */
export type { TokenSource } from "./credentials.ts";
/** The authorities that a client trusts. */
export type { Tls, TlsOptions } from "./credentials.ts";

/** The messages of a user row, with their files; and their text alone. */
export { type NewMessage, newMessagesOf, textOf } from "./user-messages.ts";

/** The messages of a turn as blocks of one prompt, which name their senders; and back. */
export { arrivalsOf, packTurn, turnSize, unpackTurn } from "./turn-blocks.ts";
export type {
  Arrival,
  BlockOrigin,
  ContentBlock,
  EmbeddedResource,
  Layout,
  PackedTurn,
  PackOptions,
  PartProblem,
  SenderContext,
  TurnMetrics,
} from "./turn-blocks.ts";

/** A session as an async iterable: its stored rows, and new ones. */
export { readSession } from "./session-reader.ts";
export type { ReadEventsOptions, ReadMessagesOptions } from "./session-reader.ts";
export type { EventItem, MessageItem } from "./rows.ts";

/**
 * The whole contract of the service: `client.call(ledger.getSession, { id })` and so on. `ledger`
 * names its methods. `call` is for unary methods, `watch` for those that deliver a stream, and
 * `converse` for streams in both directions. Each call is sent once, except a `call` with
 * `retryForMs`.
 */
export { createLedgerClient, ledger } from "./client.ts";
export type { LedgerClient, LedgerClientOptions } from "./client.ts";
/** A call with streams in both directions. */
export type { Conversation } from "./client.ts";

/** JSON lines, written and read. */
export { fromJsonLines, JsonLinesError, toJsonLines } from "./lines.ts";
export type { FromJsonLinesOptions, JsonLine, JsonLineReason } from "./lines.ts";

/** Derives readable messages from the events of an agent; a writer uses it automatically. */
export { MessageDeriver } from "./derive/derive.ts";
export type { DerivedMessage, DeriveOptions } from "./derive/derive.ts";

/** A call that did not return OK: its code, and the reason from the service. */
export { RpcFailure } from "./failure.ts";
export type { RpcCode } from "./failure.ts";
