/**
 * Feedback of a person on a message, as a META event without an epoch: no fence refuses it, and it
 * is not checked against the order of events. The keys of one person's feedback on one message are
 * numbered:
 *
 *   read the newest ── the same content ────────────────────────────► that row
 *        ▲          └─ other, or none: push under the next number ──► the new row
 *        └──────────── another call was first ◄──────┘
 *
 * The limits of a session do not count feedback, which has three: messages with feedback of one
 * person, of all, and changes of one feedback. Concurrent calls may exceed the first two.
 */
import { hash } from "node:crypto";
import type { GiveFeedbackRequest } from "@session-ledger/proto/ambient/v1/conversation_pb";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { actorOf, type Principal, userIdOf } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import {
  type Check,
  checkTextBytes,
  checkThat,
  checkSessionId,
  refuse,
} from "../contract/checks.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import { toSessionEvent } from "../contract/rows-to-wire.ts";
import type { Transcripts } from "../conversation/transcripts.ts";
import type { Metrics } from "../observability/metrics.ts";
import { feedbackKey, feedbackPrefix, type FeedbackStore } from "../store/feedback.ts";
import { type Push, storedBytesOf } from "../store/rows.ts";
import { newEventRow, type PushParts } from "./push.ts";

const COMMENT_BYTES_MAX = 4_096;
const MESSAGE_ID_BYTES_MAX = 1_024;
const KIND = /^[A-Za-z0-9_.:-]{1,64}$/;
/** The kinds that AG-UI's draft names; a metric counts all others together. */
const COUNTED = ["thumbs_up", "thumbs_down"];
/** Messages on which one person may give feedback in a session, so that one person leaves room for others. */
const OF_PERSON_MAX = 500;
/** The same of all people: each message counts once for each of them. */
const OF_SESSION_MAX = 5_000;
/** Rows of one person's feedback on one message: the first, and its changes. */
const CHANGES_MAX = 20;
/** Each try means that the same person was faster in another call. */
const TRIES_MAX = 16;

export interface FeedbackParts extends Omit<PushParts, "groups"> {
  readonly store: FeedbackStore;
  readonly transcripts: Pick<Transcripts, "messageOf">;
  readonly metrics: Pick<Metrics, "feedback">;
}

export function createGiveFeedback(
  parts: FeedbackParts,
): Handlers<typeof SessionService>["giveFeedback"] {
  return async (request, context) => {
    refuse(checksOf(request));
    const { sessionId, messageId, kind, comment } = request;
    const { principal, signal } = context;
    parts.rates.take(principal, sessionId, Buffer.byteLength(comment));
    const storedId = await parts.transcripts
      .messageOf(sessionId, { messageId, signal })
      .catch((error: unknown) => {
        // In a session that is too large to be folded, the message is taken at its word.
        if (ServiceError.from(error).reason === "TRANSCRIPT_TOO_LARGE") return messageId;
        throw error;
      });
    if (storedId === undefined) throw messageNotFound(sessionId);
    const event = await give(parts, { ...request, messageId: storedId }, context);
    const counted = COUNTED.includes(kind) ? kind : "other";
    if (!event.deduplicated) parts.metrics.feedback.inc({ kind: counted });
    return event;
  };
}

function checksOf({ sessionId, messageId, ...texts }: GiveFeedbackRequest): readonly Check[] {
  const { kind, comment, traceId } = texts;
  return [
    checkSessionId(sessionId),
    checkThat("message_id", messageId !== "", "is required"),
    checkTextBytes("message_id", messageId, MESSAGE_ID_BYTES_MAX),
    checkThat("kind", KIND.test(kind), "must be 1 to 64 of A-Z a-z 0-9 . _ : -, such as thumbs_up"),
    checkTextBytes("comment", comment, COMMENT_BYTES_MAX),
    checkTextBytes("trace_id", traceId, ID_BYTES_MAX),
  ];
}

async function give(
  parts: FeedbackParts,
  request: GiveFeedbackRequest,
  context: CallContext,
): Promise<SessionEvent> {
  const { store, ingest } = parts;
  const { sessionId, messageId, kind, comment, traceId } = request;
  // Without authentication all callers are one person.
  const by = actorOf(context.principal) ?? "anonymous";
  const prefix = feedbackPrefix({ by, messageId });
  // Before redaction, which may change with a release.
  const digest = hash("sha256", JSON.stringify([kind, comment, traceId]), "buffer");
  for (let tries = 1; ; tries += 1) {
    const newest = await store.newest(sessionId, prefix);
    if (newest !== undefined && digest.equals(newest.digest)) {
      const row = await store.read(sessionId, newest.seq);
      if (row !== undefined) return toSessionEvent(row, true);
    }
    if (newest === undefined) await refuseFull(store, sessionId, prefix);
    else if (newest.number >= CHANGES_MAX)
      throw feedbackFull(`${CHANGES_MAX} changes of one person's feedback on one message`);
    const key = feedbackKey(prefix, (newest?.number ?? 0) + 1);
    const push = pushOf(parts, request, { by, key, digest, principal: context.principal });
    try {
      const { rows, deduplicated } = await ingest.push(push, () => context.hasEnded, context.span);
      const [row] = rows;
      if (row?.stream !== "events") throw new Error("feedback became a message");
      return toSessionEvent(row, deduplicated);
    } catch (error) {
      const wasFirst = error instanceof ServiceError && error.reason === "KEY_REUSED";
      if (!wasFirst || tries === TRIES_MAX) throw error;
    }
  }
}

async function refuseFull(store: FeedbackStore, sessionId: string, prefix: string): Promise<void> {
  const { ofPerson, ofSession } = await store.counts(sessionId, prefix);
  if (ofPerson >= OF_PERSON_MAX)
    throw feedbackFull(`feedback on ${OF_PERSON_MAX} messages of a session by one person`);
  if (ofSession >= OF_SESSION_MAX)
    throw feedbackFull(`feedback on ${OF_SESSION_MAX} messages of a session by all people`);
}

function feedbackFull(limit: string): ServiceError {
  return new ServiceError("failed_precondition", "FEEDBACK_FULL", `at most ${limit}`);
}

interface FeedbackContent {
  readonly by: string;
  readonly key: string;
  readonly digest: Uint8Array;
  readonly principal: Principal;
}

/** AG-UI's draft has `messageId`, `userId` and `comment`; packages/agui/src/transcript/feedback.ts reads it. */
function pushOf(
  { clock, redactor }: FeedbackParts,
  { sessionId, messageId, kind, comment, traceId }: GiveFeedbackRequest,
  { by, key, digest, principal }: FeedbackContent,
): Push {
  const createdAtMicros = clock.nowMicros();
  const timestamp = Number(createdAtMicros / 1_000n);
  const payload = JSON.stringify({
    type: "META",
    metaType: kind,
    timestamp,
    payload: {
      messageId,
      userId: userIdOf(principal),
      ...(comment !== "" && { comment: redactor?.text(comment) ?? comment }),
      ...(traceId !== "" && { traceId }),
    },
    metadata: { session: { feedback: { by, at: new Date(timestamp).toISOString() } } },
  });
  const event = {
    eventType: "META",
    payload,
    createdAtMicros,
    completedAtMicros: undefined,
    eventCount: 1,
    conformant: false,
    mark: undefined,
  };
  const rows = [newEventRow(event, undefined)];
  return {
    sessionId,
    stream: "events",
    key,
    digest,
    actor: actorOf(principal),
    rows,
    bytes: storedBytesOf(rows),
    isFeedback: true,
  };
}

function messageNotFound(sessionId: string): ServiceError {
  const message = `the conversation of session ${sessionId} has no message with this id`;
  const violations = [{ field: "message_id", description: "expected the id of a message" }];
  return new ServiceError("not_found", "MESSAGE_NOT_FOUND", message, { violations });
}
