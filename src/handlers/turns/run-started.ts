/**
 * The start of the run of a claim: the caller's RUN_STARTED, checked once and stored with the
 * service's own `metadata.session`. The text is edited, so the rest keeps its bytes.
 */
import type { ValidationMode } from "@session-ledger/agui/validate";
import { isObject } from "@session-ledger/agui/json";
import { type Payload, readPayload } from "@session-ledger/agui/payload";
import { type ValidatedEvent, splitEvent } from "@session-ledger/agui/split-event";
import { type Member, memberSpans } from "@session-ledger/agui/spans";
import { invalidArgument } from "@session-ledger/base/errors";
import { withNames } from "../../contract/checks.ts";

/** The service's own part of the metadata of a claimed run. */
export interface SessionMetadata {
  /** The first and last message of the turn. */
  readonly consumed: { readonly first: bigint; readonly last: bigint };
  readonly producerEpoch: bigint;
  /** The run that the claim ended; undefined: none. */
  readonly lostRunId: string | undefined;
}

export interface RunStarted {
  /** As every row of the run stores it. */
  readonly runId: string;
  row(session: SessionMetadata, nowMicros: bigint): ValidatedEvent;
}

/** Throws the violations, which name `run_started` and its members. */
export function runStarted(
  text: string,
  { sessionId, mode }: { readonly sessionId: string; readonly mode: ValidationMode },
): RunStarted {
  const read = readPayload(text);
  if (!read.ok) throw withNames(invalidArgument([read.violation]), renamed);
  const { payload } = read;
  refuseMetadata(payload.value["metadata"] ?? {});
  const accepted = splitEvent(
    {
      eventType: "RUN_STARTED",
      payload: threaded(payload, sessionId),
      eventCount: 1,
      createdAtMicros: undefined,
      completedAtMicros: undefined,
      hasFragments: false,
    },
    // An event that begins no run would be no turn, so lenient mode checks it too.
    { mode: mode === "lenient" ? "strict" : mode, nowMicros: 0n },
  );
  if (!accepted.ok) throw withNames(invalidArgument(accepted.violations), renamed);
  const [event] = accepted.rows;
  const runId = event.mark?.kind === "open" ? event.mark.runId : "";
  // Every version takes any object as metadata.
  const row: RunStarted["row"] = (session, createdAtMicros) => ({
    ...event,
    payload: withMetadata(event.payload, metadataText(session)),
    createdAtMicros,
  });
  if (runId !== "") return { runId, row };
  const field = "run_started.runId";
  throw invalidArgument([{ field, description: `${field} is required` }]);
}

/** Before 1.0.0 any value was metadata; the service needs an object without its own member. */
function refuseMetadata(metadata: unknown): void {
  const field = "run_started.metadata";
  if (!isObject(metadata)) {
    throw invalidArgument([{ field, description: `${field} must be an object` }]);
  }
  if (!Object.hasOwn(metadata, "session")) return;
  const description = `${field}.session must be absent: the service sets it`;
  throw invalidArgument([{ field: `${field}.session`, description }]);
}

/** Reads the metadata of a run that a claim has stored. */
export function sessionMetadataOf(payload: string): SessionMetadata | undefined {
  const event: unknown = JSON.parse(payload);
  const metadata = isObject(event) && isObject(event["metadata"]) ? event["metadata"] : {};
  const session = isObject(metadata["session"]) ? metadata["session"] : {};
  const consumed = isObject(session["consumed"]) ? session["consumed"] : {};
  const { first, last } = consumed;
  const { producerEpoch, lostRunId } = session;
  if (!Number.isSafeInteger(first) || !Number.isSafeInteger(last)) return undefined;
  if (typeof producerEpoch !== "string" || !/^\d{1,19}$/.test(producerEpoch)) return undefined;
  return {
    consumed: { first: BigInt(Number(first)), last: BigInt(Number(last)) },
    producerEpoch: BigInt(producerEpoch),
    lostRunId: typeof lostRunId === "string" ? lostRunId : undefined,
  };
}

/** The epoch is a text, as in the JSON of protobuf: it may be above 2^53. */
function metadataText({ consumed, producerEpoch, lostRunId }: SessionMetadata): string {
  const lost = lostRunId === undefined ? "" : `,"lostRunId":${JSON.stringify(lostRunId)}`;
  return `{"consumed":{"first":${consumed.first},"last":${consumed.last}},"producerEpoch":"${producerEpoch}"${lost}}`;
}

/** A run of this session is in the session's thread, unless its start names another one. */
function threaded({ text, value }: Payload, sessionId: string): string {
  if (Object.hasOwn(value, "threadId") || Object.hasOwn(value, "thread_id")) return text;
  return withMember(text, text.length, `"threadId":${JSON.stringify(sessionId)}`);
}

function withMetadata(text: string, session: string): string {
  const metadata = memberSpans(text).find(({ key }: Member) => key === "metadata")?.valueSpan;
  if (metadata === undefined)
    return withMember(text, text.length, `"metadata":{"session":${session}}`);
  const { start, end } = metadata;
  if (text[start] === "{") return withMember(text, end, `"session":${session}`);
  return `${text.slice(0, start)}{"session":${session}}${text.slice(end)}`;
}

/** Adds a member to the object that ends before `end`, as its last one. */
function withMember(text: string, end: number, member: string): string {
  const brace = text.lastIndexOf("}", end - 1);
  const isEmpty = /\{\s*$/.test(text.slice(0, brace));
  return `${text.slice(0, brace)}${isEmpty ? "" : ","}${member}${text.slice(brace)}`;
}

function renamed(words: string): string {
  return words.replaceAll(/\bpayload\b/g, "run_started");
}
