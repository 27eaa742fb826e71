/**
 * The common part of pushes. The contract sets the order of the checks: the form, the rate limits,
 * then under the session's lock whether it is deleted, the key, the epoch, and the room.
 */
import { hash } from "node:crypto";
import { v7 } from "uuid";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { ValidatedEvent } from "@session-ledger/agui/split-event";
import type { ValidationMode } from "@session-ledger/agui/validate";
import type { Clock } from "@session-ledger/base/clock";
import { actorOf } from "../auth/principal.ts";
import type { CallContext } from "../contract/context.ts";
import type { Ingest } from "../ingest/ingest.ts";
import type { Acknowledged } from "../ingest/queue.ts";
import type { RateLimits } from "../ingest/rate-limits.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { OpenGroups } from "./push-stream/open-groups.ts";
import {
  type EventRow,
  type MessageRow,
  type Push,
  storedBytesOf,
  type StoredRow,
  type StreamName,
} from "../store/rows.ts";

export interface PushOptions {
  readonly validation: ValidationMode;
  readonly payloadBytesMax: number;
}

export interface PushParts {
  readonly ingest: Pick<Ingest, "push">;
  readonly rates: Pick<RateLimits, "take">;
  readonly clock: Clock;
  /** A push of events closes the group of its session first, so that earlier events commit first. */
  readonly groups: Pick<OpenGroups, "close">;
  /** Undefined: nothing is redacted. */
  readonly redactor?: Redactor | undefined;
}

/** The actor is no part of the content: a retry under another token is the same push. */
export type UnattributedPush = Omit<Push, "actor">;

/** Charges the caller and the session, and stores the rows. */
export function storePush(
  { ingest, rates, groups }: Pick<PushParts, "ingest" | "rates" | "groups">,
  push: UnattributedPush,
  context: CallContext,
): Promise<Acknowledged> {
  const { principal, span } = context;
  rates.take(principal, push.sessionId, push.bytes);
  if (push.stream === "events") groups.close(push.sessionId);
  return ingest.push({ ...push, actor: actorOf(principal) }, () => context.hasEnded, span);
}

interface PushRequest {
  readonly sessionId: string;
  readonly eventType: string;
  readonly payload: string;
  readonly idempotencyKey: string;
  readonly producerEpoch?: bigint | undefined;
}

/**
 * The digest of a keyed push tells whether a retry has the same content: all received fields except
 * key and epoch, before redaction, which may change with a release. `rest` has the fields of one
 * kind of push.
 */
export function pushOf(
  request: PushRequest,
  stream: StreamName,
  rows: readonly StoredRow[],
  rest: readonly unknown[],
): UnattributedPush {
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

/** The row of an accepted event, before its commit. Other fields of `event` are not stored. */
export function newEventRow(
  event: Omit<ValidatedEvent, "address">,
  fragments: Uint8Array | undefined,
): EventRow {
  const { mark } = event;
  return {
    stream: "events",
    sessionId: "",
    seq: 0n,
    id: rowId(),
    eventType: event.eventType,
    payload: event.payload,
    createdAtMicros: event.createdAtMicros,
    completedAtMicros: event.completedAtMicros,
    eventCount: event.eventCount,
    runId: mark?.kind === "open" ? mark.runId : "",
    ...(mark?.kind === "close" && { runOutcome: mark.outcome }),
    ...(mark?.kind === "ask" && { runOutcome: "asked" }),
    fragments,
    conformant: event.conformant,
  };
}

export function newMessageRow(
  message: Omit<MessageRow, "stream" | "sessionId" | "seq" | "id">,
): MessageRow {
  return { stream: "messages", sessionId: "", seq: 0n, id: rowId(), ...message };
}

/** For rows that a push has stored. */
export function countRenamed(
  { aguiRenamed }: Pick<Metrics, "aguiRenamed">,
  rows: readonly Pick<ValidatedEvent, "renamed">[],
): void {
  for (const { renamed } of rows) if (renamed !== undefined) aguiRenamed.inc({ field: renamed });
}

const RANDOM_BYTES = 16;
const pool = new Uint8Array(256 * RANDOM_BYTES);
let used = pool.length;

/**
 * UUIDv7 for rows, with random bytes for 256 ids at a time: the `uuid` package asks the system for
 * each id, which took 4 % of a busy service.
 */
export function rowId(): string {
  if (used === pool.length) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  const random = pool.subarray(used, used + RANDOM_BYTES);
  used += RANDOM_BYTES;
  return v7({ random });
}
