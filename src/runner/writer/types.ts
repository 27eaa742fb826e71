/** What a session writer is given, what it says, and what it can be asked. */
import type { Clock } from "../../base/clock.ts";
import type { RetryOptions } from "../retry.ts";
import type { Sender } from "../rows.ts";
import type { Counts } from "../spool/spool.ts";
import type { Tls } from "../tls.ts";
import type { TokenSource } from "../token.ts";

export interface SessionWriterOptions {
  /** `host:port` of the service. */
  readonly address: string;
  /** 1 to 128 bytes of `[A-Za-z0-9._:-]`, not `.` or `..`. */
  readonly sessionId: string;
  /** Sent as `authorization: Bearer …`. A function is asked before each call and each stream. */
  readonly token?: TokenSource;
  /** True, or authorities and a certificate of one's own; default: without TLS. */
  readonly tls?: Tls;
  /** `derive` (default): messages are made of the events, and `message` adds to them. `manual`: only by `message`. */
  readonly messages?: "derive" | "manual";
  /** Whether RUN_STARTED and RUN_FINISHED derive a `lifecycle` message; default true. */
  readonly lifecycleMessages?: boolean;
  /** The writer's generation, 1 to 2^63 - 1; default: of the time, so that a later writer fences this one. */
  readonly epoch?: bigint;
  readonly spool?: {
    /** Most bytes that wait for the service; default 64 MiB. A record counts as its text plus 128. */
    readonly bytesMax?: number;
    /** Records are also written here, and found again when the process is started anew. */
    readonly file?: string;
  };
  /** How fragments of a text are merged into rows; false: one row an event. */
  readonly compression?:
    | {
        /** Longest a row stays open, milliseconds; default 250, at most 5,000. */
        readonly maxAgeMs?: number;
        /** Most text in a row, bytes of UTF-8; default 10,240, at most 65,536. */
        readonly textBytesMax?: number;
      }
    | false;
  /** `auto` (default): one stream, and rows by unary calls to a service that has no such stream. */
  readonly transport?: "auto" | "stream" | "unary";
  /** Told what goes wrong, in a turn of its own. What it throws is swallowed. */
  readonly onProblem?: (problem: WriterProblem) => void;
  /** For a stream to be answered, milliseconds; default 10,000. */
  readonly openTimeoutMs?: number;
  /** For a unary call, milliseconds; default 10,000. */
  readonly callTimeoutMs?: number;
  /** A stream that acknowledges nothing for so long, though it should, is opened anew; default 15,000. */
  readonly progressTimeoutMs?: number;
  /** A stream on which nothing happens for so long is ended until there is something; default 10,000. */
  readonly idleTimeoutMs?: number;
  readonly clock?: Clock;
  readonly wait?: RetryOptions["wait"];
  readonly random?: RetryOptions["random"];
}

export interface WriterMessage {
  /** One of `user assistant tool_use tool_result system error lifecycle`. */
  readonly type: string;
  /** An object is sent as JSON. */
  readonly payload: string | object;
  /** At most 128 bytes; a message with a key that is stored already is not stored again. Default, and for "": a random one. */
  readonly key?: string;
  readonly sentAt?: Date;
  readonly sender?: Sender;
}

export interface TextOptions {
  /** Default: the session's id. */
  readonly threadId?: string;
  /** Default: a new one. */
  readonly runId?: string;
  /** Default: a new one. */
  readonly messageId?: string;
  /** Default `assistant`. */
  readonly role?: "assistant" | "user" | "system" | "developer";
}

/**
 * connecting: nothing was sent yet, or the service cannot be reached; streaming, unary: at work;
 * idle: no event waits; fenced: another writer took over; refused: the service will take nothing more
 * of this writer; closed: by `close`.
 */
export type WriterState =
  | "idle"
  | "connecting"
  | "streaming"
  | "unary"
  | "fenced"
  | "refused"
  | "closed";

export interface WriterStats {
  readonly events: Counts;
  readonly messages: Counts;
  /** Of what waits, as the spool counts them. */
  readonly pendingBytes: number;
  readonly state: WriterState;
  /** The session's number of the last event that was acknowledged; 0n before the first. */
  readonly lastSeq: bigint;
  /** Undefined until the service has said it; always with a service that knows no epochs. */
  readonly epoch: bigint | undefined;
}

export interface FlushResult {
  /** Everything that was given before the call is committed, refused or dropped: nothing waits. */
  readonly complete: boolean;
  /** What still waits. */
  readonly events: number;
  readonly messages: number;
  readonly state: WriterState;
}

export interface CloseResult extends FlushResult {
  /** What waits is in the spool's file, for the next writer that is given it. */
  readonly kept: boolean;
  readonly stats: WriterStats;
}

/** Why, and how many records of each kind. */
interface Loss {
  readonly reason: string;
  readonly message: string;
  readonly events: number;
  readonly messages: number;
}

export type WriterProblem =
  /** The spool is full: from here on records are dropped. Told once a gap. */
  | { readonly kind: "dropping" }
  /** There is room again; so many were dropped since, and the stream has a CUSTOM event that says so. */
  | {
      readonly kind: "dropped";
      readonly events: number;
      readonly messages: number;
      readonly since: string;
    }
  /** So many records were not accepted, here or by the service; they will never be stored. */
  | {
      readonly kind: "refused";
      readonly stream: "events" | "messages";
      readonly count: number;
      readonly reason: string;
      readonly message: string;
    }
  /**
   * So many events that the service had acknowledged are lost: its database went back, by a failover or
   * a restored backup. They are not sent again; what comes after them is.
   */
  | { readonly kind: "lost"; readonly stream: "events"; readonly count: number }
  /** A call failed and is tried again. Told at the first failure in a row, of each kind of record. */
  | {
      readonly kind: "unreachable";
      readonly stream: "events" | "messages";
      readonly reason: string;
      readonly message: string;
    }
  /** The service has no stream for events: rows are pushed one by one, without protection from doubling. */
  | { readonly kind: "no_stream"; readonly message: string }
  /** Another writer took over: what waited is lost, and all that comes is dropped. */
  | ({ readonly kind: "fenced" } & Loss)
  /** The service takes nothing more (session deleted, no permission, …); lost as with `fenced`. */
  | ({ readonly kind: "ended" } & Loss)
  /** Records of an earlier process were lost: another writer took over before they were sent. */
  | ({ readonly kind: "left_lost" } & Loss)
  /** The file cannot be used: the writer goes on in memory only. Told once. */
  | { readonly kind: "file"; readonly message: string }
  /** `close` did not wait until all was settled. `kept`: the next writer with the file sends it. */
  | {
      readonly kind: "left_behind";
      readonly events: number;
      readonly messages: number;
      readonly kept: boolean;
    }
  /** Something was given after `close`: it is dropped. Told once. */
  | { readonly kind: "closed" };

export interface SessionWriter {
  /**
   * One AG-UI event, an object or its JSON. Never throws and never waits: an object is printed at once,
   * so it may be changed afterwards, and the rest happens in the background. What cannot be printed
   * (circular, BigInt) and what is over 3.5 MiB is counted as refused.
   */
  event(event: object | string): void;
  /** One message. Never throws and never waits. */
  message(message: WriterMessage): void;
  /**
   * A plain stream of text as one run: RUN_STARTED, the text message and its pieces, RUN_FINISHED, and
   * one assistant message of it where messages are derived. Resolves when the stream has ended. When
   * it throws, the run ends with RUN_ERROR and the promise resolves: the error is in the record, and
   * who made the stream knows of it.
   */
  text(stream: AsyncIterable<string>, options?: TextOptions): Promise<void>;
  /**
   * Waits until what was given so far is settled. Never rejects. Default timeout 10,000 ms, at most
   * 2^31 - 1; below 0 it does not wait, and what is no number is the default.
   */
  flush(options?: { readonly timeoutMs?: number }): Promise<FlushResult>;
  /**
   * Flushes, then ends: no timer, connection or file of it is left. Never rejects, may be called
   * again. Default timeout 10,000 ms.
   */
  close(options?: { readonly timeoutMs?: number }): Promise<CloseResult>;
  readonly stats: WriterStats;
}
