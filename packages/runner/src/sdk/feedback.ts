/**
 * Users' thumbs as scores of traces. A thumb mostly comes when the runner is gone, so this
 * follows the feed of all sessions, in any process, from a cursor that outlives it:
 *
 *   feed of META ─► thumb ─► its trace: named by the page, or the one of the run of its message
 *        ▲                     └─► score, tried again until it is taken ─► cursor saved
 *        └── after an end or a failure, from the saved cursor ◄───────────────┘
 *
 * A process that dies between the last two scores the thumb again, with the same id. A person who
 * changes their mind changes the score of that id.
 */
import { createHash } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import type { FeedEvent } from "@session-ledger/proto/ambient/v1/feed_pb";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import { isObject, type JsonObject, parseJson } from "@session-ledger/agui/json";
import { type LedgerClient, ledger } from "../client.ts";
import { RpcFailure, textOf } from "../failure.ts";
import { Retries, retrying } from "../retry.ts";

/** A thumb, for the trace that made the message. */
export interface Score {
  /** The same for all feedback of one user on one message. */
  readonly id: string;
  readonly traceId: string;
  /** 1: thumbs up. */
  readonly value: 0 | 1;
  readonly comment: string;
  readonly sessionId: string;
  readonly messageId: string;
  /** Empty: without authentication. */
  readonly userId: string;
}

/** A score that will never be taken: the follower reports it as a problem, and leaves it out. */
export class ScoreRefused extends Error {
  override readonly name = "ScoreRefused";
}

/** Where the follower has got. `fileCursor` keeps it in a file. */
export interface CursorStore {
  /** Undefined: begin with the oldest feedback. */
  load(): Promise<string | undefined>;
  save(cursor: string): Promise<void>;
}

export interface FollowFeedbackOptions {
  /** Its token must allow to watch the events of all sessions, or of a project. */
  readonly client: LedgerClient;
  readonly cursor: CursorStore;
  /** Called again after each failure but ScoreRefused; later feedback waits. */
  readonly score: (score: Score) => Promise<unknown>;
  /** Ends the follower. */
  readonly signal: AbortSignal;
  readonly projectId?: string;
  /** A score was refused, or a failure is the first one in a row. */
  readonly onProblem?: (message: string) => void;
}

/** Resolves after the signal. Rejects when the service refuses the feed, or the cursor's store fails. */
export async function followFeedback(options: FollowFeedbackOptions): Promise<void> {
  const { client, cursor, signal, projectId = "" } = options;
  const retryOptions = retryOf(options);
  const retries = new Retries(retryOptions);
  while (!signal.aborted) {
    try {
      const from = { cursor: (await cursor.load()) ?? "", eventTypes: ["META"], projectId };
      for await (const frame of client.watch(ledger.watchEvents, from, { signal })) {
        retries.succeeded();
        await settle(frame, options);
        if (frame.cursor !== "") await cursor.save(frame.cursor);
      }
      throw new RpcFailure("UNAVAILABLE", "the service has ended the feed");
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RpcFailure && retries.mayRepeat(error))) throw error;
      await retries.pauseAfter(error).catch(() => undefined); // Only the signal ends it early.
    }
  }
}

function retryOf({ signal, onProblem }: FollowFeedbackOptions) {
  return {
    retryForMs: Number.POSITIVE_INFINITY,
    signal,
    onRetry: ({ message }: RpcFailure, count: number) => {
      if (count === 1) onProblem?.(message);
    },
  };
}

async function settle({ event }: FeedEvent, options: FollowFeedbackOptions): Promise<void> {
  const score = event && (await scoreOf(event, options));
  if (score === undefined) return;
  const attempt = async (): Promise<void> => {
    try {
      await options.score(score);
    } catch (error) {
      if (!(error instanceof ScoreRefused)) {
        throw new RpcFailure("UNAVAILABLE", textOf(error), { cause: error });
      }
      options.onProblem?.(error.message);
    }
  };
  await retrying(attempt, retryOf(options));
}

/** Undefined: it is no thumb, or nobody has traced the message. */
async function scoreOf(
  { sessionId, payload }: SessionEvent,
  options: FollowFeedbackOptions,
): Promise<Score | undefined> {
  const { metaType, payload: feedbackPayload, metadata } = objectIn(parseJson(payload));
  const { messageId, traceId, comment, userId } = objectIn(feedbackPayload);
  if (metaType !== "thumbs_up" && metaType !== "thumbs_down") return undefined;
  if (typeof messageId !== "string") return undefined;
  const trace = textIn(traceId) || (await traceOf({ sessionId, messageId }, options));
  if (trace === "") return undefined;
  const { by } = objectIn(objectIn(objectIn(metadata)["session"])["feedback"]);
  const key = JSON.stringify([sessionId, messageId, textIn(by)]);
  return {
    id: createHash("sha256").update(key).digest("hex").slice(0, 32),
    traceId: trace,
    value: metaType === "thumbs_up" ? 1 : 0,
    comment: textIn(comment),
    sessionId,
    messageId,
    userId: textIn(userId),
  };
}

const PAGE_SIZE = 1_000;

/** From the newest message to the oldest: feedback is mostly about a new one. */
async function traceOf(
  { sessionId, messageId }: { readonly sessionId: string; readonly messageId: string },
  options: FollowFeedbackOptions,
): Promise<string> {
  const retryOptions = retryOf(options);
  const list = (request: object) =>
    options.client.call(ledger.listSessionEvents, { sessionId, ...request }, retryOptions);
  const eventTypes = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK"];
  try {
    for (let beforeSeq = 0n; ; ) {
      const order = { eventTypes, descending: true, pageSize: PAGE_SIZE, beforeSeq };
      const { items, hasMore, nextBeforeSeq } = await list(order);
      const own = items.find(
        ({ payload }) => objectIn(parseJson(payload))["messageId"] === messageId,
      );
      if (own !== undefined) {
        const { items: starts } = await list({ runId: own.runId, eventTypes: ["RUN_STARTED"] });
        const { metadata } = objectIn(parseJson(starts[0]?.payload ?? "{}"));
        return textIn(objectIn(metadata)["traceId"]);
      }
      if (!hasMore) return "";
      beforeSeq = nextBeforeSeq;
    }
  } catch (error) {
    // The session was deleted since.
    if (error instanceof RpcFailure && error.code === "NOT_FOUND") return "";
    throw error;
  }
}

function objectIn(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

function textIn(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** A file that is replaced at once: a crash leaves the old cursor or the new one. */
export function fileCursor(path: string): CursorStore {
  return {
    async load() {
      try {
        return (await readFile(path, "utf8")).trim();
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
        throw error;
      }
    },
    async save(cursor) {
      // `wx` follows no link from somebody else; the file is on the disk before its name.
      await rm(`${path}.new`, { force: true });
      await writeFile(`${path}.new`, cursor, { flag: "wx", flush: true });
      await rename(`${path}.new`, path);
    },
  };
}

export interface LangfuseOptions {
  /** Such as `https://cloud.langfuse.com`. */
  readonly baseUrl: string;
  readonly publicKey: string;
  readonly secretKey: string;
}

const SCORE_LIMIT_MS = 10_000;

/** Sends scores to Langfuse, as the score `user-feedback`. */
export function langfuseScores({ baseUrl, publicKey, secretKey }: LangfuseOptions) {
  const url = `${baseUrl.replace(/\/+$/, "")}/api/public/scores`;
  const authorization = `Basic ${Buffer.from(`${publicKey}:${secretKey}`).toString("base64")}`;
  return async ({ id, traceId, value, comment, ...metadata }: Score): Promise<void> => {
    const response = await fetch(url, {
      method: "POST",
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify({
        id,
        traceId,
        name: "user-feedback",
        dataType: "BOOLEAN",
        value,
        ...(comment !== "" && { comment }),
        metadata,
      }),
      signal: AbortSignal.timeout(SCORE_LIMIT_MS),
    });
    await response.body?.cancel();
    if (response.ok) return;
    const message = `Langfuse answered ${response.status} to the score of trace ${traceId}`;
    // Other answers may change: a wrong key is replaced, a limit passes.
    if (response.status === 400 || response.status === 422) throw new ScoreRefused(message);
    throw new Error(message);
  };
}
