/** A long session as an agent leaves it: one run, many messages, a token a fragment; raw or merged. */
import { create, toBinary } from "@bufbuild/protobuf";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { type MergedEvent, mergeFragments } from "../support/merging.ts";
import type { StreamEvent } from "../support/streams.ts";
import type { Bench } from "./bench.ts";
import type { Ledger } from "./servers.ts";
import { BEGAN_MICROS, storeRows } from "./store-rows.ts";

/** Fragments of one message. */
const FRAGMENTS = 98;
/** RUN_STARTED and RUN_FINISHED, and of each message a START and an END. */
const EVENTS_A_MESSAGE = FRAGMENTS + 2;
/** One event a millisecond. */
const BEGAN_MS = Number(BEGAN_MICROS / 1_000n);

/** The approximate number of events; a third of a tool call's arguments is as long as the text of a message. */
export function conversation(rawEvents: number): readonly StreamEvent[] {
  const messages = Math.max(1, Math.round(rawEvents / EVENTS_A_MESSAGE));
  const run = { threadId: "bench", runId: "run" };
  const events: object[] = [{ type: "RUN_STARTED", ...run }];
  for (let message = 0; message < messages; message += 1) {
    events.push(...(message % 3 === 2 ? toolCall(message) : textMessage(message)));
  }
  events.push({ type: "STATE_SNAPSHOT", snapshot: { done: messages } });
  events.push({ type: "RUN_FINISHED", ...run });
  return events.map((event, at) => {
    const timed: Record<string, unknown> = { ...event, timestamp: BEGAN_MS + at };
    return { eventType: String(timed["type"]), payload: JSON.stringify(timed) };
  });
}

function textMessage(message: number): readonly object[] {
  const messageId = `message-${message}`;
  return [
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    ...tokens().map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
    { type: "TEXT_MESSAGE_END", messageId },
  ];
}

function toolCall(message: number): readonly object[] {
  const toolCallId = `call-${message}`;
  const parentMessageId = `message-${message - 1}`;
  return [
    { type: "TOOL_CALL_START", toolCallId, toolCallName: "search", parentMessageId },
    ...tokens().map((delta) => ({ type: "TOOL_CALL_ARGS", toolCallId, delta })),
    { type: "TOOL_CALL_END", toolCallId },
  ];
}

function tokens(): readonly string[] {
  return Array.from({ length: FRAGMENTS }, (_, at) => (at % 7 === 0 ? " and" : " word"));
}

/** By the store's own append; the rows that it takes. */
export async function storeSession(
  bench: Bench,
  ledger: Ledger,
  session: {
    readonly sessionId: string;
    readonly events: readonly StreamEvent[];
    readonly isMerged: boolean;
  },
): Promise<number> {
  const { sessionId, events, isMerged } = session;
  const rows = isMerged ? mergeFragments(events) : mergeFragments(events, { eventsMax: 1 });
  await storeRows(
    bench,
    ledger,
    rows.map(({ fragments: index, ...row }) => ({
      sessionId,
      row: { ...row, fragments: row.eventCount > 1 ? encoded(index) : undefined },
    })),
  );
  return rows.length;
}

function encoded(index: MergedEvent["fragments"]): Uint8Array | undefined {
  return index && toBinary(FragmentsSchema, create(FragmentsSchema, index));
}
