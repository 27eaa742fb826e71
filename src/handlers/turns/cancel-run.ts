/**
 * Asks to end the open run of a session. The session is read without a lock, and the commit refuses
 * the message if another run is open by then, or if somebody else has asked: the state is read again.
 *
 *   read ─┬─ this run has a cancel ────────────────► that message again
 *    ▲    ├─ the run is not open ──────────────────► RUN_NOT_FOUND
 *    │    └─ append ── committed ──────────────────► answered; cancels.ts tells the producer
 *    └───────── in another state by now
 *
 * A page names its own request, or no run: then the run that answers the request, or the open run, is
 * the run to end.
 */
import { hash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  type CancelRunRequest,
  CancelRunRequestSchema,
} from "@session-ledger/proto/ambient/v1/turns_pb";
import { isObject, parseJson } from "@session-ledger/agui/json";
import { actorOf } from "../../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import { checkTextBytes, checkThat, checkSessionId, refuse } from "../../contract/checks.ts";
import type { CallContext, Handlers } from "../../contract/context.ts";
import { toSessionMessage } from "../../contract/rows-to-wire.ts";
import { TurnMoved } from "../../ingest/refusal.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { CancelStore, RunState } from "../../store/cancels.ts";
import type { Transcripts } from "../../conversation/transcripts.ts";
import { sessionDeleted, sessionNotFound } from "../../store/failure.ts";
import { type MessageRow, type Push, storedBytesOf } from "../../store/rows.ts";
import { newMessageRow, type PushParts } from "../push.ts";

const REASON_BYTES_MAX = 1_024;
const EVENT = "cancel_requested";

export interface CancelRunParts extends Omit<PushParts, "groups"> {
  readonly cancels: CancelStore;
  readonly transcripts: Pick<Transcripts, "read">;
  /** Called after a cancel that is on disk. */
  readonly onCancel: () => void;
  readonly metrics: Pick<Metrics, "cancels">;
}

export interface CancelHandlers extends Pick<Handlers<typeof SessionService>, "cancelRun"> {
  /** Throws RUN_NOT_FOUND when the named run is not open. */
  readonly stopRun: (request: StopRequest, context: CallContext) => Promise<SessionMessage>;
}

export interface StopRequest {
  readonly sessionId: string;
  /** The id of a run, or of a client's request that a run answers; undefined: the open run. */
  readonly runId: string | undefined;
}

export function createCancelHandlers(parts: CancelRunParts): CancelHandlers {
  const { metrics } = parts;
  const cancelRun: CancelHandlers["cancelRun"] = async (request, context) => {
    try {
      const message = await cancel(parts, request, context);
      metrics.cancels.inc({ outcome: message.deduplicated ? "repeated" : "asked" });
      return message;
    } catch (error) {
      const isUnknown = ServiceError.from(error).code === "not_found";
      metrics.cancels.inc({ outcome: isUnknown ? "not_found" : "failed" });
      throw error;
    }
  };
  return {
    cancelRun,
    async stopRun(request, context) {
      const { sessionId } = request;
      refuse([checkSessionId(sessionId)]);
      const runId = await runToStop(parts, request, context);
      return cancelRun(create(CancelRunRequestSchema, { sessionId, runId }), context);
    },
  };
}

async function runToStop(
  { cancels, transcripts }: CancelRunParts,
  { sessionId, runId }: StopRequest,
  { signal }: CallContext,
): Promise<string> {
  const state = await stateOf(cancels, { sessionId, key: "" });
  const { openRunId } = state;
  if (runId === undefined && openRunId === "")
    throw runNotOpen(`no run is open in session ${sessionId}`);
  if (runId === undefined || runId === openRunId) return openRunId;
  const run = (await transcripts.read(sessionId, { signal })).runOf(runId);
  if (run === "waits")
    throw runNotOpen(`run ${runId} has not begun: its message waits for a runner`);
  if (run === undefined) throw runNotFound({ sessionId, runId }, state);
  return run.runId;
}

async function stateOf(
  cancels: CancelStore,
  run: { readonly sessionId: string; readonly key: string },
): Promise<RunState> {
  const state = await cancels.readRun(run);
  if (state === undefined) throw sessionNotFound(run.sessionId);
  if (state.isDeleted) throw sessionDeleted(run.sessionId);
  return state;
}

/** Undefined: the payload is not that of a cancel. */
export function cancelTextOf(
  payload: string,
): { readonly runId: string; readonly reason: string } | undefined {
  const value = parseJson(payload);
  if (!isObject(value) || value["event"] !== EVENT) return undefined;
  const { run_id: runId, reason = "" } = value;
  if (typeof runId !== "string" || typeof reason !== "string") return undefined;
  return { runId, reason };
}

async function cancel(
  parts: CancelRunParts,
  request: CancelRunRequest,
  context: CallContext,
): Promise<SessionMessage> {
  const { cancels, ingest, rates, redactor } = parts;
  const { sessionId, runId, reason } = request;
  refuseFaults(request);
  const cancelEvent = { event: EVENT, run_id: runId, ...(reason === "" ? {} : { reason }) };
  const text = JSON.stringify(cancelEvent);
  const payload = redactor?.payload(text) ?? text;
  rates.take(context.principal, sessionId, Buffer.byteLength(payload));
  const key = `cancel:${runId}`;
  // Each turn of the loop means that another run or another cancel came first.
  for (;;) {
    const state = await stateOf(cancels, { sessionId, key });
    const earlier = await earlierCancel(cancels, request, state);
    if (earlier !== undefined) return toSessionMessage(earlier, true);
    if (state.openRunId !== runId) throw runNotFound(request, state);
    // The key belongs to an earlier run with this id: then the commit alone finds a second cancel.
    const ownKey = state.repeatedSeq === undefined ? key : undefined;
    const { openRunId, epoch } = state;
    const rows = [
      newMessageRow({
        eventType: "lifecycle",
        payload,
        createdAtMicros: parts.clock.nowMicros(),
        sentAtMicros: undefined,
        sender: undefined,
      }),
    ];
    const push: Push = {
      sessionId,
      stream: "messages",
      key: ownKey,
      // A repeated cancel is the same cancel, whatever its reason.
      digest: ownKey === undefined ? undefined : hash("sha256", ownKey, "buffer"),
      actor: actorOf(context.principal),
      seen: { turnSeq: undefined, openRunId, epoch, eventSeq: undefined },
      cancels: true,
      rows,
      bytes: storedBytesOf(rows),
    };
    try {
      const stored = await ingest.push(push, () => context.hasEnded, context.span);
      const [row] = stored.rows;
      if (row?.stream !== "messages") throw new Error("a cancel became an event");
      parts.onCancel();
      return toSessionMessage(row, stored.deduplicated);
    } catch (error) {
      if (!(error instanceof TurnMoved) || context.hasEnded) throw error;
    }
  }
}

/** The cancel of the open run, or of a run that has ended since. */
async function earlierCancel(
  cancels: CancelStore,
  { sessionId, runId }: CancelRunRequest,
  { openRunId, cancelSeq, repeatedSeq }: RunState,
): Promise<MessageRow | undefined> {
  const seq = openRunId === runId ? cancelSeq : repeatedSeq;
  if (seq === undefined) return undefined;
  const row = await cancels.readCancel(sessionId, seq);
  return row !== undefined && cancelTextOf(row.payload) !== undefined ? row : undefined;
}

function refuseFaults({ sessionId, runId, reason }: CancelRunRequest): void {
  refuse([
    checkSessionId(sessionId),
    checkThat("run_id", runId !== "", "is required"),
    checkTextBytes("run_id", runId, ID_BYTES_MAX),
    checkTextBytes("reason", reason, REASON_BYTES_MAX),
  ]);
}

function runNotFound(
  { sessionId, runId }: Pick<CancelRunRequest, "sessionId" | "runId">,
  { openRunId }: RunState,
): ServiceError {
  const open = openRunId === "" ? "no run is open" : `the open run is ${openRunId}`;
  return runNotOpen(`run ${runId} is not open in session ${sessionId}: ${open}`);
}

function runNotOpen(message: string): ServiceError {
  return new ServiceError("not_found", "RUN_NOT_FOUND", message);
}
