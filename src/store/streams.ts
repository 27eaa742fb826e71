/** Opens push streams (ledger_open_producer_stream). Each fences earlier ones, so a repeat does no harm. */
import { sql } from "drizzle-orm";
import { bigintOf, type Database, SERVER } from "./database.ts";

export interface StreamRequest {
  readonly sessionId: string;
  /** The writer's generation; 0 means the highest so far plus 1. */
  readonly epoch: bigint;
}

/** The newest stream of its session. */
export interface OpenedStream {
  readonly epoch: bigint;
  /** The number of the stream in its session; its rows carry this number. */
  readonly stream: bigint;
  /** The last number of the epoch that is committed or refused. */
  readonly lastClientSeq: bigint;
  /** The count of refused numbers of the epoch. */
  readonly refused: bigint;
  /** The open run is cancelled. */
  readonly isCancelled: boolean;
}

export type OpeningResult =
  | ({ readonly kind: "opened" } & OpenedStream)
  /** The epoch is below the session's, or no higher one exists. */
  | { readonly kind: "stale_epoch"; readonly highest: bigint }
  | { readonly kind: "not_found" | "deleted" }
  /** Another transaction holds the session; try again, with `wait`. */
  | { readonly kind: "busy" };

interface OpenOptions {
  readonly createMissing: boolean;
  /** True: wait for a locked session, for at most lock_timeout, instead of answering `busy`. */
  readonly wait: boolean;
}

/** Resolves after commit. Rejects with the driver's error. */
export async function openStream(
  database: Database,
  { sessionId, epoch }: StreamRequest,
  { createMissing, wait }: OpenOptions,
): Promise<OpeningResult> {
  const [row] = await database.attempt(sql`
    select kind, epoch::text, stream::text, client_seq::text, refused::text, cancels, ${SERVER} as server
    from ledger_open_producer_stream(
      ${sessionId}::text, ${epoch.toString()}::text::bigint, ${createMissing}::boolean, ${wait}::boolean)`);
  database.onAnswer(row?.["server"]);
  const kind = String(row?.["kind"]);
  switch (kind) {
    case "opened":
      return {
        kind,
        epoch: bigintOf(row?.["epoch"]),
        stream: bigintOf(row?.["stream"]),
        lastClientSeq: bigintOf(row?.["client_seq"]),
        refused: bigintOf(row?.["refused"]),
        isCancelled: row?.["cancels"] !== null,
      };
    case "stale_epoch":
      return { kind, highest: bigintOf(row?.["epoch"]) };
    case "not_found":
    case "deleted":
    case "busy":
      return { kind };
    default:
      throw new Error("ledger_open_producer_stream did not answer");
  }
}

/** A stream with acknowledged commits that may be lost in a failover. */
export interface StreamOpening {
  readonly sessionId: string;
  readonly opened: Pick<OpenedStream, "epoch" | "stream">;
  /** The last number that was acknowledged to it as committed. */
  readonly lastClientSeq: bigint;
}

/** The last number of the stream's epoch that the database has; undefined when nothing is lost. */
export async function lostAfter(
  database: Database,
  { sessionId, opened, lastClientSeq }: StreamOpening,
): Promise<bigint | undefined> {
  const [row] = await database.run(sql`
    select producer_epoch::text as epoch, producer_stream::text as stream,
      producer_client_seq::text as client_seq
    from sessions where id = ${sessionId}`);
  const epoch = BigInt(String(row?.["epoch"] ?? -1));
  if (epoch < opened.epoch) return 0n;
  // Stream numbers only rise: a number below ours was the newest before ours was opened.
  const stream = BigInt(String(row?.["stream"]));
  if (epoch > opened.epoch || stream > opened.stream) return undefined;
  const committed = BigInt(String(row?.["client_seq"]));
  return stream < opened.stream || committed < lastClientSeq ? committed : undefined;
}
