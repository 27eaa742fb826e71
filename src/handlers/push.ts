/**
 * The two unary pushes: check the form, make the rows, give them to ingest, answer with the stored
 * row. The contract sets the order of the checks: the form, the rate limits, then under the
 * session's lock whether the session is deleted, the key, the epoch, and the room in the session.
 */
import { hash } from "node:crypto";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { PushSessionEventRequest } from "@session-ledger/proto/ambient/v1/events_pb";
import type { PushSessionMessageRequest } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { ValidationMode } from "@session-ledger/agui/conform";
import { checkMessageType } from "@session-ledger/agui/message-types";
import { PAYLOAD_BYTES_MAX, readPayload } from "@session-ledger/agui/payload";
import { type EventRow as AguiRow, eventRows, type RowsOptions } from "@session-ledger/agui/rows";
import { actorOf } from "../auth/principal.ts";
import type { Clock } from "@session-ledger/base/clock";
import { invalidArgument, type Violation } from "@session-ledger/base/errors";
import {
  checkFragments,
  encodeFragments,
  type FragmentIndex,
} from "@session-ledger/compressor/fragments";
import { rewrittenIndex } from "@session-ledger/compressor/rewrite";
import type { Ingest } from "../ingest/ingest.ts";
import type { Acknowledged } from "../ingest/queue.ts";
import type { RateLimits } from "../ingest/rate-limits.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import { type NewRow, type Push, storedBytesOf, type StreamName } from "../store/rows.ts";
import {
  checkEpoch,
  checkKey,
  checkText,
  checkTextBytes,
  checkTime,
  refuseLargeIndex,
  refuseLargePayload,
  violationsOf,
} from "../contract/checks.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import { countRenamed, newEventRow, rowId } from "./new-row.ts";
import type { OpenGroups } from "./push-stream/open-groups.ts";
import { senderText, toSessionEvent, toSessionMessage } from "../contract/rows-to-wire.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { microsOf } from "../contract/times.ts";

/** The limit of each field of a sender. */
const SENDER_BYTES_MAX = 1_024;

export { MESSAGE_TYPES } from "@session-ledger/agui/message-types";

export interface PushOptions {
  readonly validation: ValidationMode;
  readonly payloadBytesMax: number;
}

type PushHandlers = Pick<
  Handlers<typeof SessionService>,
  "pushSessionMessage" | "pushSessionEvent"
>;

export interface PushParts {
  readonly ingest: Pick<Ingest, "push">;
  readonly rates: Pick<RateLimits, "take">;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "aguiRenamed">;
  /**
   * Open groups of this replica's push streams. A unary push closes the group of its session first,
   * so earlier events commit first.
   */
  readonly groups: Pick<OpenGroups, "close">;
  /** Undefined: nothing is redacted. */
  readonly redactor?: Redactor | undefined;
}

/** The actor is no part of the content: a retry under another token is the same push. */
type Unattributed = Omit<Push, "actor">;

type AguiRows = readonly [AguiRow, ...AguiRow[]];

export function createPushHandlers(
  { ingest, rates, clock, metrics, groups, redactor }: PushParts,
  options: PushOptions,
): PushHandlers {
  // Payload and fragment index together: a stored row must fit in one response.
  const rowBytesMax = Math.max(options.payloadBytesMax, PAYLOAD_BYTES_MAX);
  const pay = ({ sessionId, bytes }: Unattributed, { principal }: CallContext): void =>
    rates.take(principal, sessionId, bytes);
  const store = (push: Unattributed, context: CallContext): Promise<Acknowledged> =>
    ingest.push(
      { ...push, actor: actorOf(context.principal) },
      () => context.hasEnded,
      context.span,
    );
  return {
    async pushSessionMessage(request, context) {
      refuse(messageViolations(request));
      refuseLargePayload(request.payload, options.payloadBytesMax);
      const push = messagePush(request, { redactor, nowMicros: clock.nowMicros() });
      pay(push, context);
      const { rows, deduplicated } = await store(push, context);
      const [row] = rows;
      if (row?.stream !== "messages") throw new Error("a message became an event");
      return toSessionMessage(row, deduplicated);
    },
    async pushSessionEvent(request, context) {
      refuse(eventViolations(request));
      refuseLargePayload(request.payload, options.payloadBytesMax);
      const mode = options.validation;
      const payload = redactor?.payload(request.payload) ?? request.payload;
      const accepted = acceptEvent(request, payload, { mode, nowMicros: clock.nowMicros() });
      const push = eventPush(request, accepted, { redactor, rowBytesMax });
      pay(push, context);
      groups.close(request.sessionId);
      const { rows, deduplicated } = await store(push, context);
      if (!deduplicated) countRenamed(metrics, accepted);
      const [row] = rows;
      if (row?.stream !== "events") throw new Error("an event became a message");
      return toSessionEvent(row, deduplicated);
    },
  };
}

function messageViolations(request: PushSessionMessageRequest): readonly Violation[] {
  const { sender } = request;
  return violationsOf([
    checkSessionId(request.sessionId),
    checkMessageType(request.eventType),
    checkText("payload", request.payload),
    checkKey(request.idempotencyKey),
    checkEpoch(request.producerEpoch),
    checkTime("sent_at", request.sentAt),
    checkTextBytes("sender.id", sender?.id, SENDER_BYTES_MAX),
    checkTextBytes("sender.name", sender?.name, SENDER_BYTES_MAX),
    checkTextBytes("sender.display_name", sender?.displayName, SENDER_BYTES_MAX),
    checkTextBytes("sender.channel", sender?.channel, SENDER_BYTES_MAX),
    checkTextBytes("sender.channel_id", sender?.channelId, SENDER_BYTES_MAX),
    checkTextBytes("sender.thread_id", sender?.threadId, SENDER_BYTES_MAX),
  ]);
}

function eventViolations(request: PushSessionEventRequest): readonly Violation[] {
  const required =
    request.eventType === ""
      ? { field: "event_type", description: "event_type is required" }
      : checkText("event_type", request.eventType);
  return violationsOf([
    checkSessionId(request.sessionId),
    required,
    checkText("payload", request.payload),
    checkKey(request.idempotencyKey),
    checkEpoch(request.producerEpoch),
    checkTime("completed_at", request.completedAt),
    checkTime("created_at", request.createdAt),
  ]);
}

interface Kept {
  readonly redactor: Redactor | undefined;
  readonly nowMicros: bigint;
}

function messagePush(
  request: PushSessionMessageRequest,
  { redactor, nowMicros }: Kept,
): Unattributed {
  const sender = request.sender === undefined ? undefined : senderText(request.sender);
  const row: NewRow = {
    id: rowId(),
    eventType: request.eventType,
    payload: redactor?.text(request.payload) ?? request.payload,
    createdAtMicros: nowMicros,
    completedAtMicros: undefined,
    eventCount: 1,
    fragments: undefined,
    conformant: true,
    mark: undefined,
    sender: sender && (redactor?.payload(sender) ?? sender),
    sentAtMicros: optionalMicros(request.sentAt),
  };
  return pushOf(request, "messages", [row], [request.sentAt, sender]);
}

/** The rows of one event; refuses an event that no version of AG-UI accepts. */
function acceptEvent(
  request: PushSessionEventRequest,
  payload: string,
  options: RowsOptions,
): AguiRows {
  const { eventCount, fragments } = request;
  const accepted = eventRows(
    {
      eventType: request.eventType,
      payload,
      eventCount,
      createdAtMicros: optionalMicros(request.createdAt),
      completedAtMicros: optionalMicros(request.completedAt),
      hasFragments: fragments !== undefined,
    },
    options,
  );
  if (!accepted.ok) throw invalidArgument(accepted.violations);
  return accepted.rows;
}

function eventPush(
  request: PushSessionEventRequest,
  [first, ...others]: AguiRows,
  { redactor, rowBytesMax }: Pick<Kept, "redactor"> & { readonly rowBytesMax: number },
): Unattributed {
  const { eventCount, fragments } = request;
  const kept = redactor && fragments ? redactedIndex(request, first, redactor) : fragments;
  const index = kept && indexOf(kept, first, rowBytesMax);
  const rows = [newEventRow(first, index), ...others.map((row) => newEventRow(row, undefined))];
  const rest = [request.completedAt, eventCount, request.createdAt, fragments];
  return pushOf(request, "events", rows, rest);
}

/**
 * The index for a row whose payload is redacted: the `rawEvent` of each event may have a secret, and
 * the row's payload has only the first one.
 */
function redactedIndex(
  { payload, fragments }: PushSessionEventRequest,
  row: AguiRow,
  redactor: Redactor,
): FragmentIndex | undefined {
  if (fragments?.rawEvents === undefined || !readPayload(payload).ok) return fragments;
  const { eventType, eventCount } = row;
  const sent = { eventType, payload, eventCount };
  refuse(checkFragments(sent, fragments));
  const numbered = { ...sent, fragments, seq: 1n, createdAtMicros: 0n };
  const index = rewrittenIndex(numbered, row.payload, (one) => redactor.besidesDelta(one).payload);
  if (index !== undefined) return index;
  const description = "fragments.raw_events must have one form also after redaction";
  throw invalidArgument([{ field: "fragments.raw_events", description }]);
}

/**
 * The fragment index in its stored form: checked against its row, and encoded in the one canonical
 * way.
 */
function indexOf(fragments: FragmentIndex, row: AguiRow, rowBytesMax: number): Uint8Array {
  refuse(checkFragments(row, fragments));
  const index = encodeFragments(fragments);
  refuseLargeIndex(index.length, rowBytesMax - Buffer.byteLength(row.payload));
  return index;
}

interface PushRequest {
  readonly sessionId: string;
  readonly eventType: string;
  readonly payload: string;
  readonly idempotencyKey: string;
  readonly producerEpoch?: bigint | undefined;
}

/**
 * The push of these rows. The digest of a keyed push tells whether a retry has the same
 * content. The digest covers the fields as received, except key and epoch. It is made before
 * redaction, which may change with a release. `rest` holds the fields that only one kind of push
 * has.
 */
function pushOf(
  request: PushRequest,
  stream: StreamName,
  rows: readonly NewRow[],
  rest: readonly unknown[],
): Unattributed {
  const { sessionId, eventType, payload, idempotencyKey: key, producerEpoch: epoch } = request;
  return {
    sessionId,
    stream,
    rows,
    bytes: storedBytesOf(rows),
    key: key === "" ? undefined : key,
    digest: key === "" ? undefined : contentDigest(eventType, payload, rest),
    epoch,
    range: undefined,
  };
}

function contentDigest(eventType: string, payload: string, rest: readonly unknown[]): Uint8Array {
  const text = JSON.stringify([eventType, rest], plainBigint) + payload;
  return hash("sha256", text, "buffer");
}

/** The content of events that have nothing but a payload; one event has that of a unary push. */
export function payloadsDigest(eventType: string, payloads: readonly string[]): Uint8Array {
  const [payload = "", ...others] = payloads;
  return others.length === 0
    ? contentDigest(eventType, payload, [undefined, 0, undefined, undefined])
    : contentDigest(
        "",
        payloads.join(""),
        payloads.map(({ length }) => length),
      );
}

function plainBigint(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function optionalMicros(time: Timestamp | undefined): bigint | undefined {
  return time === undefined ? undefined : microsOf(time);
}

function refuse(violations: readonly Violation[]): void {
  if (violations.length > 0) throw invalidArgument(violations);
}
