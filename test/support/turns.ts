/** Claims and the rows around them, for tests of turns. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import type {
  CancelRunRequestSchema,
  ClaimTurnRequestSchema,
  ClaimTurnResponse,
} from "@session-ledger/proto/ambient/v1/turns_pb";
import type { CallOptions, RpcClient } from "./grpc-client.ts";

const { cancelRun, claimTurn, getSession, pushSessionEvent, pushSessionMessage } =
  SessionService.method;

type ClaimFields = Omit<
  Exclude<MessageInitShape<typeof ClaimTurnRequestSchema>, { $typeName: string }>,
  "runStarted"
>;

/** Claims as run `runId`. */
export function claim(
  client: RpcClient,
  { runId, ...fields }: ClaimFields & { readonly runId: string },
  options?: CallOptions,
): Promise<ClaimTurnResponse> {
  return client.unary(claimTurn, { ...fields, runStarted: JSON.stringify({ runId }) }, options);
}

export async function say(client: RpcClient, sessionId: string, payload: string): Promise<bigint> {
  return (await client.unary(pushSessionMessage, { sessionId, eventType: "user", payload })).seq;
}

type EventFields = Readonly<Record<string, unknown>> & { readonly type: string };

export async function emit(
  client: RpcClient,
  sessionId: string,
  event: EventFields,
  producerEpoch?: bigint,
): Promise<void> {
  const { type: eventType } = event;
  const fenced = producerEpoch === undefined ? {} : { producerEpoch };
  const payload = JSON.stringify(event);
  await client.unary(pushSessionEvent, { sessionId, eventType, payload, ...fenced });
}

export function finish(client: RpcClient, sessionId: string, runId: string): Promise<void> {
  return emit(client, sessionId, { type: "RUN_FINISHED", threadId: sessionId, runId });
}

/** The texts of a turn. */
export function textsOf({ messages }: ClaimTurnResponse): readonly string[] {
  return messages.map(({ payload }) => payload);
}

/** The watermark, the number of waiting messages, and the open run. */
export async function standing(client: RpcClient, id: string): Promise<readonly unknown[]> {
  const { turnSeq, waiting, openRunId } = await client.unary(getSession, { id });
  return [turnSeq, waiting, openRunId];
}

/** Asks to end a run. */
export function cancel(
  client: RpcClient,
  run: MessageInitShape<typeof CancelRunRequestSchema>,
): Promise<SessionMessage> {
  return client.unary(cancelRun, run);
}
