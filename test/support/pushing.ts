/** Pushes and reads of both streams under one name, for tests of both. */
import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type CallOptions, type MessageStream, type RpcClient, RpcFailure } from "./grpc-client.ts";

const { pushSessionMessage, pushSessionEvent, listSessionMessages, listSessionEvents } =
  SessionService.method;
const { createSession, listSessions, watchSessionMessages, watchSessionEvents } =
  SessionService.method;

export const STREAMS = ["messages", "events"] as const;
export type Stream = (typeof STREAMS)[number];
export type Row = SessionMessage | SessionEvent;

export interface Time {
  readonly seconds: bigint;
  readonly nanos: number;
}

/** Fields of either push; fields that a push does not have are not sent. */
export interface PushFields {
  readonly sessionId?: string;
  readonly eventType?: string;
  readonly payload?: string;
  readonly idempotencyKey?: string;
  readonly producerEpoch?: bigint;
  readonly sentAt?: Time;
  readonly sender?: Readonly<Partial<Record<SenderText, string>>> & { readonly isBot?: boolean };
  readonly completedAt?: Time;
  readonly createdAt?: Time;
  readonly eventCount?: number;
  readonly fragments?: MessageInitShape<typeof FragmentsSchema>;
}

type SenderText = "id" | "name" | "displayName" | "channel" | "channelId" | "threadId";

/** The default push. */
export const GOOD = {
  messages: { eventType: "user", payload: "hi" },
  events: { eventType: "CUSTOM", payload: '{"type":"CUSTOM","name":"n","value":1}' },
} as const satisfies Record<Stream, PushFields>;

export function newSession(): string {
  return `s-${randomUUID()}`;
}

/** Where sessions are created before they are used. */
export async function createdSession(client: RpcClient): Promise<string> {
  const { metadata } = await client.unary(createSession, { name: "created" });
  return metadata?.id ?? "";
}

export function push(
  client: RpcClient,
  stream: Stream,
  fields: PushFields,
  options: CallOptions = {},
): Promise<Row> {
  const request = { ...GOOD[stream], ...fields };
  return stream === "messages"
    ? client.unary(pushSessionMessage, request, options)
    : client.unary(pushSessionEvent, request, options);
}

export async function rowsOf(
  client: RpcClient,
  stream: Stream,
  sessionId: string,
): Promise<readonly Row[]> {
  const request = { sessionId, pageSize: 1_000 };
  const page =
    stream === "messages"
      ? await client.unary(listSessionMessages, request)
      : await client.unary(listSessionEvents, request);
  return page.items;
}

/** From the beginning. */
export function watch(client: RpcClient, stream: Stream, sessionId: string): MessageStream<Row> {
  return stream === "messages"
    ? client.serverStream(watchSessionMessages, { sessionId })
    : client.serverStream(watchSessionEvents, { sessionId });
}

export async function sessionCount(client: RpcClient): Promise<number> {
  const { metadata } = await client.unary(listSessions, { size: 1 });
  return metadata?.total ?? 0;
}

/** The status of a call that must not succeed. */
export async function failureOf(call: Promise<unknown>): Promise<RpcFailure> {
  const outcome = await call.then(
    () => "succeeded",
    (error: unknown) => error,
  );
  if (outcome instanceof RpcFailure) return outcome;
  throw new Error(`expected a refusal, got ${String(outcome)}`);
}

/** The number of the next pushed row, whatever the last row counts. */
export function nextSeq(row: Row | undefined): bigint {
  if (row === undefined) return 1n;
  return row.seq + ("eventCount" in row ? BigInt(row.eventCount) : 1n);
}

export interface Aftermath<T> {
  readonly outcome: T;
  /** Everything that it stored; empty when it stored nothing. */
  readonly traces: readonly string[];
}

/** Makes a call that must be refused, for a session with one row. */
export async function tracesOf<T>(
  client: RpcClient,
  stream: Stream,
  act: (sessionId: string) => Promise<T>,
): Promise<Aftermath<T>> {
  const sessionId = newSession();
  const first = await push(client, stream, { sessionId });
  const sessions = await sessionCount(client);
  const outcome = await act(sessionId);
  const rows = await rowsOf(client, stream, sessionId);
  const made = (await sessionCount(client)) - sessions;
  const next = await push(client, stream, { sessionId });
  const traces = [
    isDeepStrictEqual(rows, [first]) ? undefined : `${rows.length} rows`,
    made === 0 ? undefined : `${made} sessions more`,
    next.seq === nextSeq(first) ? undefined : `the next row is ${next.seq}`,
  ];
  return { outcome, traces: traces.filter((trace) => trace !== undefined) };
}
