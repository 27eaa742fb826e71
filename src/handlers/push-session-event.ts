/**
 * PushSessionEvent: checks the form of an event, lets AG-UI's catalogue validate it, and stores its
 * rows: one, or those of a group.
 */
import type { PushSessionEventRequest } from "@session-ledger/proto/ambient/v1/events_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { PAYLOAD_BYTES_MAX, readPayload } from "@session-ledger/agui/payload";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import {
  splitEvent,
  type ValidatedEvent,
  type SplitOptions,
} from "@session-ledger/agui/split-event";
import { invalidArgument } from "@session-ledger/base/errors";
import {
  checkFragments,
  encodeFragments,
  type FragmentIndex,
} from "@session-ledger/compressor/fragments";
import { rewrittenIndex } from "@session-ledger/compressor/rewrite";
import {
  type Check,
  checkEpoch,
  checkKey,
  checkText,
  checkThat,
  refuseLargeIndex,
  refuseLargePayload,
  refuse,
  checkSessionId,
} from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { toSessionEvent } from "../contract/rows-to-wire.ts";
import type { Metrics } from "../observability/metrics.ts";
import {
  countRenamed,
  newEventRow,
  pushOf,
  type PushOptions,
  type PushParts,
  storePush,
  type UnattributedPush,
} from "./push.ts";
import { checkTimestamp, microsOf } from "../contract/times.ts";

export interface PushEventParts extends PushParts {
  readonly metrics: Pick<Metrics, "aguiRenamed">;
}

export function createPushSessionEvent(
  parts: PushEventParts,
  { validation, payloadBytesMax }: PushOptions,
): Handlers<typeof SessionService>["pushSessionEvent"] {
  const { clock, metrics, redactor } = parts;
  // Payload and fragment index together: a stored row must fit in one response.
  const rowBytesMax = Math.max(payloadBytesMax, PAYLOAD_BYTES_MAX);
  return async (request, context) => {
    refuse(checksOf(request));
    refuseLargePayload(request.payload, payloadBytesMax);
    const payload = redactor?.payload(request.payload) ?? request.payload;
    const nowMicros = clock.nowMicros();
    const accepted = acceptEvent(request, payload, { mode: validation, nowMicros });
    const push = pushWith(request, accepted, { redactor, rowBytesMax });
    const { rows, deduplicated } = await storePush(parts, push, context);
    if (!deduplicated) countRenamed(metrics, accepted);
    const [row] = rows;
    if (row?.stream !== "events") throw new Error("an event became a message");
    return toSessionEvent(row, deduplicated);
  };
}

function checksOf(request: PushSessionEventRequest): readonly Check[] {
  return [
    checkSessionId(request.sessionId),
    checkThat("event_type", request.eventType !== "", "is required"),
    checkText("event_type", request.eventType),
    checkText("payload", request.payload),
    checkKey(request.idempotencyKey),
    checkEpoch(request.producerEpoch),
    request.completedAt && checkTimestamp("completed_at", request.completedAt),
    request.createdAt && checkTimestamp("created_at", request.createdAt),
  ];
}

type EventRows = readonly [ValidatedEvent, ...ValidatedEvent[]];

/** The rows of one event; refuses an event that no version of AG-UI accepts. */
function acceptEvent(
  request: PushSessionEventRequest,
  payload: string,
  options: SplitOptions,
): EventRows {
  const { eventCount, fragments } = request;
  const accepted = splitEvent(
    {
      eventType: request.eventType,
      payload,
      eventCount,
      createdAtMicros: request.createdAt && microsOf(request.createdAt),
      completedAtMicros: request.completedAt && microsOf(request.completedAt),
      hasFragments: fragments !== undefined,
    },
    options,
  );
  if (!accepted.ok) throw invalidArgument(accepted.violations);
  return accepted.rows;
}

function pushWith(
  request: PushSessionEventRequest,
  [first, ...others]: EventRows,
  {
    redactor,
    rowBytesMax,
  }: { readonly redactor: Redactor | undefined; readonly rowBytesMax: number },
): UnattributedPush {
  const { eventCount, fragments } = request;
  const sent = redactor && fragments ? redactedIndex(request, first, redactor) : fragments;
  const index = sent && indexOf(sent, first, rowBytesMax);
  const rows = [newEventRow(first, index), ...others.map((row) => newEventRow(row, undefined))];
  const rest = [request.completedAt, eventCount, request.createdAt, fragments];
  return pushOf(request, "events", rows, rest);
}

/** Each event's `rawEvent` may have a secret, and the payload has only the first one. */
function redactedIndex(
  { payload, fragments }: PushSessionEventRequest,
  row: ValidatedEvent,
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

/** The fragment index in its stored form: checked, and encoded in the one canonical way. */
function indexOf(fragments: FragmentIndex, row: ValidatedEvent, rowBytesMax: number): Uint8Array {
  refuse(checkFragments(row, fragments));
  const index = encodeFragments(fragments);
  refuseLargeIndex(index.length, rowBytesMax - Buffer.byteLength(row.payload));
  return index;
}
