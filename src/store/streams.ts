/**
 * Opens push streams. The rules are in the function ledger_open_stream
 * (migrations/0002_push_streams.sql); a stream that was opened fences every one before it, so opening
 * once more, when nobody knows whether the first time was committed, does no harm.
 */
import { sql } from "drizzle-orm";
import { type Database, SERVER } from "./database.ts";

export interface StreamRequest {
  readonly sessionId: string;
  /** The writer's generation; 0: the highest so far plus 1. */
  readonly epoch: bigint;
}

/** The newest stream of its session. */
export interface OpenedStream {
  readonly epoch: bigint;
  /** Which stream of the session it is; what it appends carries this number. */
  readonly stream: bigint;
  /** The last number of the epoch that is committed or refused. */
  readonly lastClientSeq: bigint;
  /** How many numbers of the epoch were refused. */
  readonly refused: bigint;
}

export type Opening =
  | ({ readonly kind: "opened" } & OpenedStream)
  /** The epoch is below the session's, or there is none above it. */
  | { readonly kind: "stale_epoch"; readonly highest: bigint }
  | { readonly kind: "not_found" | "deleted" }
  /** Somebody holds the session; ask again, with `wait`. */
  | { readonly kind: "busy" };

export interface OpenOptions {
  /** Unknown sessions are made. */
  readonly createMissing: boolean;
  /** Wait for a session that somebody holds, for at most lock_timeout, instead of answering `busy`. */
  readonly wait: boolean;
}

/** Resolves after commit. Rejects with the driver's error. */
export async function openStream(
  database: Database,
  { sessionId, epoch }: StreamRequest,
  { createMissing, wait }: OpenOptions,
): Promise<Opening> {
  const [row] = await database.attempt(sql`
    select ledger_open_stream(
      ${sessionId}::text, ${epoch.toString()}::text::bigint,
      ${createMissing}::boolean, ${wait}::boolean)::text as answer, ${SERVER} as server`);
  database.answeredBy(row?.["server"]);
  const answer: Answer = JSON.parse(String(row?.["answer"]));
  switch (answer.kind) {
    case "opened":
      return {
        kind: "opened",
        epoch: BigInt(answer.epoch),
        stream: BigInt(answer.stream),
        lastClientSeq: BigInt(answer.client_seq),
        refused: BigInt(answer.refused),
      };
    case "stale_epoch":
      return { kind: "stale_epoch", highest: BigInt(answer.highest) };
    case "not_found":
    case "deleted":
    case "busy":
      return answer;
  }
}

/** A stream that was told of commits which the database does not have: a failover lost them. */
export interface ToldStream {
  readonly sessionId: string;
  readonly opened: Pick<OpenedStream, "epoch" | "stream">;
  /** The last number that it was told is committed. */
  readonly lastClientSeq: bigint;
}

/** The last number of the stream's epoch that the database has; undefined when nothing is lost. */
export async function lostAfter(
  database: Database,
  { sessionId, opened, lastClientSeq }: ToldStream,
): Promise<bigint | undefined> {
  const [row] = await database.run(sql`
    select producer_epoch::text as epoch, producer_stream::text as stream,
      producer_client_seq::text as client_seq
    from sessions where id = ${sessionId}`);
  const epoch = BigInt(String(row?.["epoch"] ?? -1));
  if (epoch < opened.epoch) return 0n;
  // Numbers of streams only rise: one that is below ours was the newest before ours was opened.
  const stream = BigInt(String(row?.["stream"]));
  if (epoch > opened.epoch || stream > opened.stream) return undefined;
  const committed = BigInt(String(row?.["client_seq"]));
  return stream < opened.stream || committed < lastClientSeq ? committed : undefined;
}

/** Numbers as text: JSON has no others that hold 64 bits. */
type Answer =
  | {
      readonly kind: "opened";
      readonly epoch: string;
      readonly stream: string;
      readonly client_seq: string;
      readonly refused: string;
    }
  | { readonly kind: "stale_epoch"; readonly highest: string }
  | { readonly kind: "not_found" | "deleted" | "busy" };
