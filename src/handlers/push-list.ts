/**
 * A list of raw events as one push, for HTTP: all of it is stored, or nothing. The objects of a push
 * stream take the events, so fragments of one text are merged, and a secret is found that is spread
 * over several events:
 *
 *   payloads ──► accept ──► redaction, the open group ──► rows ──► one push, with the key of the list
 *                  └─ a refused event refuses the list; the error names the event by its index
 *
 * The key is stored with the first row. The rows of a push are stored together, so the key stands for
 * the whole list.
 */
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError, type Violation, VIOLATIONS_MAX } from "@session-ledger/base/errors";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import { checkEpoch, checkKey, checkSessionId, checkThat, refuse } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import { TimeSlice } from "../contract/time-slice.ts";
import { storedBytesOf } from "../store/rows.ts";
import { countRenamed, payloadsDigest, type PushOptions, storePush } from "./push.ts";
import type { PushEventParts } from "./push-session-event.ts";
import { lastSeqOfRows, RowBuilder } from "./push-stream/row-builder.ts";

/** A list is committed whole, by one statement. A push stream has no such limit. */
export const LIST_EVENTS_MAX = 10_000;

export interface EventList {
  readonly sessionId: string;
  /** AG-UI events as JSON texts, 1 to LIST_EVENTS_MAX. */
  readonly payloads: readonly string[];
  /** Empty: a repeated list is stored twice. */
  readonly idempotencyKey: string;
  /** The writer's generation; undefined: never fenced. */
  readonly producerEpoch: bigint | undefined;
}

export interface StoredList {
  readonly firstSeq: bigint;
  readonly lastSeq: bigint;
  /** An earlier push with the same key stored it. */
  readonly deduplicated: boolean;
}

export interface EventListHandlers {
  /** A fault of an event has the field `events[INDEX].payload.FIELD`. */
  readonly pushEventList: (list: EventList, context: CallContext) => Promise<StoredList>;
}

export function createEventListHandlers(
  parts: PushEventParts,
  { validation, payloadBytesMax }: PushOptions,
): EventListHandlers {
  const { clock, metrics, redactor } = parts;
  const compressor = {
    ...COMPRESSOR_LIMITS,
    payloadBytesMax: Math.min(payloadBytesMax, COMPRESSOR_LIMITS.payloadBytesMax),
  };
  return {
    async pushEventList(list, context) {
      const { sessionId, payloads, idempotencyKey, producerEpoch: epoch } = list;
      const { length: count } = payloads;
      refuse([
        checkSessionId(sessionId),
        checkThat(
          "events",
          count > 0 && count <= LIST_EVENTS_MAX,
          `must be 1 to ${LIST_EVENTS_MAX}`,
        ),
        checkKey(idempotencyKey),
        checkEpoch(epoch),
      ]);
      const accept = { validation, payloadBytesMax, merges: true, redactor };
      const rows = new RowBuilder({ ...accept, compressor });
      const eventType = await addAll(payloads, { rows, clock });
      const built = rows.take();
      const bytes = storedBytesOf(built.rows);
      const key = idempotencyKey === "" ? undefined : idempotencyKey;
      const push = {
        sessionId,
        stream: "events",
        rows: built.rows,
        bytes,
        key,
        digest: key === undefined ? undefined : payloadsDigest(eventType, payloads),
        epoch,
      } as const;
      const { rows: stored, deduplicated } = await storePush(parts, push, context);
      if (!deduplicated) countRenamed(metrics, built.renamed);
      const [first] = stored;
      if (first === undefined) throw new Error("a list of events became no row");
      return { firstSeq: first.seq, lastSeq: lastSeqOfRows(built, first.seq), deduplicated };
    },
  };
}

/** Adds the rows of every event, or throws the faults of those that are refused. */
async function addAll(
  payloads: readonly string[],
  { rows, clock }: { readonly rows: RowBuilder; readonly clock: Clock },
): Promise<string> {
  const nowMicros = clock.nowMicros();
  const nowMs = clock.monotonicMs();
  let firstType: string | undefined;
  const faults: Violation[] = [];
  const slice = new TimeSlice();
  for (const [index, payload] of payloads.entries()) {
    const event = { $typeName: "ambient.v1.RawEvent", eventType: "", payload } as const;
    const result = rows.add(event, { nowMs, nowMicros });
    if (result.ok) {
      firstType ??= result.eventType;
    } else {
      faults.push(...faultsOf(result.error, index));
      if (faults.length >= VIOLATIONS_MAX) break;
    }
    const turn = slice.turn();
    if (turn !== undefined) await turn;
  }
  refuse(faults);
  rows.close("end");
  return firstType ?? "";
}

/** Any other error than one of the input, such as a payload that is too large, ends the list. */
function faultsOf({ code, reason, message, violations }: ServiceError, index: number): Violation[] {
  const place = `events[${index}].`;
  const faults = violations.map(({ field, description }) => ({
    field: place + field,
    description: description.startsWith(field) ? place + description : description,
  }));
  if (code === "invalid_argument") return faults;
  throw new ServiceError(code, reason, place + message, { violations: faults });
}
