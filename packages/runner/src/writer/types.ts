/** The options, the results and the methods of a session writer. */
import type { ReplacedKind } from "@session-ledger/agui/print";
import type { Clock } from "@session-ledger/base/clock";
import type { RetryOptions } from "../retry.ts";
import type { Sender } from "../rows.ts";
import type { SpoolFileProblem } from "../spool/file.ts";
import type { Counts } from "../spool/spool.ts";
import type { Tls } from "../credentials.ts";
import type { TokenSource } from "../credentials.ts";

export interface SessionWriterOptions {
  /** `host:port` of the service. */
  readonly address: string;
  /** 1 to 128 bytes of `[A-Za-z0-9._:-]`, not `.` or `..`. */
  readonly sessionId: string;
  /** Sent as `authorization: Bearer …`. A function is called before each call and each stream. */
  readonly token?: TokenSource;
  /** True, or your own authorities and certificate; default: without TLS. */
  readonly tls?: Tls;
  /** `derive` (default): from the events, and `message` adds to them. `manual`: only `message`. */
  readonly messages?: "derive" | "manual";
  /** Whether RUN_STARTED and RUN_FINISHED derive a `lifecycle` message; default true. */
  readonly lifecycleMessages?: boolean;
  /** The writer's generation, 1 to 2^63 - 1; default: the time, so that a later one fences it. */
  readonly epoch?: bigint;
  readonly spool?: {
    /** Bytes that wait for the service; default 64 MiB. A record counts as its text plus 128. */
    readonly bytesMax?: number;
    /** Records are also written to this file, and found again when the process restarts. */
    readonly file?: string;
  };
  /** How fragments of a text are merged into rows; false: one row per event. */
  readonly compression?:
    | {
        /** The longest time that a row stays open, milliseconds; default 250, at most 5,000. */
        readonly maxAgeMs?: number;
        /** The limit of text in a row, bytes of UTF-8; default 10,240, at most 65,536. */
        readonly textBytesMax?: number;
      }
    | false;
  /** Called with problems, in a separate turn of the event loop. Its errors are ignored. */
  readonly onProblem?: (problem: WriterProblem) => void;
  /** The limit for the answer to the opening of a stream, milliseconds; default 10,000. */
  readonly openTimeoutMs?: number;
  /** The limit of the push of a message, milliseconds; default 10,000. */
  readonly callTimeoutMs?: number;
  /** A stream that acknowledges nothing for this time is opened again; default 15,000. */
  readonly progressTimeoutMs?: number;
  /** A stream without activity for this time ends until the next record; default 10,000. */
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
  /** At most 128 bytes; a message with a stored key is not stored again. Default: random. */
  readonly key?: string;
  readonly sentAt?: Date;
  readonly sender?: Sender;
}

/** The answer of an agent: whole, in pieces, or as bytes of UTF-8. */
export type Text = string | AsyncIterable<string | Uint8Array>;

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
 * connecting: nothing was sent yet, or the service cannot be reached; streaming: sending;
 * idle: no event waits; fenced: another writer took over; refused: the service accepts nothing more
 * from this writer; closed: by `close`.
 */
export type WriterState = "idle" | "connecting" | "streaming" | "fenced" | "refused" | "closed";

export interface WriterStats {
  readonly events: Counts;
  readonly messages: Counts;
  /** Bytes of the waiting records, as the spool counts them. */
  readonly pendingBytes: number;
  /** Values inside of records that JSON cannot print, or that were nested too deep. */
  readonly replacedValues: number;
  readonly state: WriterState;
  /** The session's number of the last acknowledged event; 0n before the first. */
  readonly lastSeq: bigint;
  /** Undefined until the service has assigned it, and with a service without epochs. */
  readonly epoch: bigint | undefined;
}

export interface FlushResult {
  /** All records given before the call are committed, refused or dropped: nothing waits. */
  readonly complete: boolean;
  /** The counts of waiting records. */
  readonly events: number;
  readonly messages: number;
  readonly state: WriterState;
}

export interface CloseResult extends FlushResult {
  /** The waiting records are in the spool's file, for the next writer with that file. */
  readonly kept: boolean;
  readonly stats: WriterStats;
}

/** The reason, and the number of records of each kind. */
interface Loss {
  readonly reason: string;
  readonly message: string;
  readonly events: number;
  readonly messages: number;
}

export type WriterProblem =
  /** The spool is full: from here on records are dropped. Reported once per gap. */
  | { readonly kind: "dropping" }
  /** Room again; these were dropped, and a CUSTOM event in the stream marks the gap. */
  | {
      readonly kind: "dropped";
      readonly events: number;
      readonly messages: number;
      readonly since: string;
    }
  /** These records were refused, here or by the service; they will never be stored. */
  | {
      readonly kind: "refused";
      readonly stream: "events" | "messages";
      readonly count: number;
      readonly reason: string;
      readonly message: string;
    }
  /** A value that JSON cannot print, or that is nested too deep, was replaced. Once a `what`. */
  | {
      readonly kind: "replaced";
      readonly stream: "events" | "messages";
      readonly what: ReplacedKind;
      readonly message: string;
    }
  /**
   * Acknowledged events are lost: the service's database went back, by a failover or a restored
   * backup. They are not sent again; later events are sent.
   */
  | { readonly kind: "lost"; readonly stream: "events"; readonly count: number }
  /** A call failed and is tried again: the first failure in a row of each kind of record. */
  | {
      readonly kind: "unreachable";
      readonly stream: "events" | "messages";
      readonly reason: string;
      readonly message: string;
    }
  /** Another writer took over: waiting records are lost, and later ones are dropped. */
  | ({ readonly kind: "fenced" } & Loss)
  /** The service accepts no more (session deleted, no permission, …); losses as with `fenced`. */
  | ({ readonly kind: "ended" } & Loss)
  /** Records of an earlier process were lost: another writer took over before they were sent. */
  | ({ readonly kind: "left_lost" } & Loss)
  | SpoolFileProblem
  /** `close` did not wait for all records. `kept`: the next writer with the file sends them. */
  | {
      readonly kind: "left_behind";
      readonly events: number;
      readonly messages: number;
      readonly kept: boolean;
    }
  /** A record was given after `close`: it is dropped. Reported once. */
  | { readonly kind: "closed" };

export interface SessionWriter {
  /**
   * One AG-UI event, an object or its JSON. Never throws and never waits. An object is printed at
   * once, so it may be changed afterwards; all other work happens in the background. A value that JSON
   * cannot print (BigInt, a circle, code that throws) or that is nested deeper than 64 levels is
   * replaced and counted; the rest of the event stays. An event over 4,170,000 bytes counts as refused.
   */
  event(event: object | string): void;
  /** One message. Never throws and never waits. */
  message(message: WriterMessage): void;
  /**
   * A text, or a plain stream of one, as one run: RUN_STARTED, the text message and its pieces, RUN_FINISHED,
   * and one assistant message where messages are derived. Resolves when the stream has ended. When
   * the stream throws, the run ends with RUN_ERROR and the promise still resolves: the record has
   * the error, and the maker of the stream knows it.
   */
  text(answer: Text, options?: TextOptions): Promise<void>;
  /**
   * A signal for the work on a run: it aborts when somebody cancels the run (its reason is a
   * `RunCancelled`), and when the writer ends because another writer took over or the service
   * accepts no more (the failure). Asking for it keeps a stream open until the run's RUN_FINISHED or
   * RUN_ERROR is given, or another run's signal is asked for; so ask after the claim of the run.
   */
  runSignal(runId: string): AbortSignal;
  /**
   * Waits until all records given so far are settled. Never rejects. The default timeout is 10,000
   * ms, the maximum 2^31 - 1. Below 0 it does not wait, and an invalid number means the default.
   */
  flush(options?: { readonly timeoutMs?: number }): Promise<FlushResult>;
  /** Flushes, then closes all. Never rejects, may be repeated. Default timeout 10,000 ms. */
  close(options?: { readonly timeoutMs?: number }): Promise<CloseResult>;
  readonly stats: WriterStats;
}
