/**
 * A run of an AG-UI client: the new parts of its input become a message of the session, and the
 * answer follows the run that takes the message.
 *
 *   input ── nothing new ──────────────────────────────────────────────► join
 *        ├── new ── pushed as one `user` row ── stored, or stored before ─► join, until its run ends
 *        └── known, and no run has taken it: the client asks again ──────► join, until its run ends
 *
 * The key of the row is the id of the first new message, or of the call of a tool's result, so a
 * repeated request stores nothing twice. A request with more messages than one on its way has the
 * same key and another content: then the log is read again, and has the first messages by then.
 */
import { create } from "@bufbuild/protobuf";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { only, Pull } from "../base/pull.ts";
import { withNames } from "../contract/checks.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import type { Snapshot } from "../conversation/snapshot.ts";
import type { AguiRequest } from "../conversation/attach.ts";
import type { AguiFrame, AguiFrames } from "../conversation/event-writer.ts";
import type { AguiJoin } from "../conversation/join.ts";
import { refuseUnstored } from "../conversation/client-messages.ts";
import { USER_ROW_TYPE } from "@session-ledger/agui/canonical/user-messages";
import type { Transcripts } from "../conversation/transcripts.ts";
import {
  newRowIn,
  type RunInputParts,
  type RunInputRow,
  waitingRowIn,
} from "../conversation/run-input.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface AguiRunRequest extends Omit<AguiRequest, "answers"> {
  readonly runInput: RunInputParts | undefined;
  /** True: the request only reads, and a new message is refused. */
  readonly isReadOnly: boolean;
}

export type AguiRun = (request: AguiRunRequest, context: CallContext) => AsyncIterable<AguiFrame>;

interface AguiRunParts {
  readonly join: AguiJoin;
  readonly transcripts: Pick<Transcripts, "read">;
  /** With its own check of rights. */
  readonly push: Handlers<typeof SessionService>["pushSessionMessage"];
  readonly metrics: Pick<Metrics, "aguiInputs">;
}

/** The log is read again once, after another request has stored a part of the same input. */
const ATTEMPTS_MAX = 2;

export function createAguiRun(parts: AguiRunParts): AguiRun {
  return ({ runInput, isReadOnly, ...request }, context) => {
    const open = async (): Promise<AguiFrames> => {
      let answers: bigint | undefined;
      if (runInput !== undefined && isReadOnly) {
        refuseUnstored(request.messages, await currentSnapshot(parts, request.sessionId, context));
      } else if (runInput !== undefined) {
        answers = await rowOf(parts, { runInput, ...request }, context);
      }
      // A client that follows gets every run.
      return parts.join({ ...request, answers: request.follow ? undefined : answers }, context);
    };
    return new Pull(open, only);
  };
}

type InputRequest = Pick<AguiRunRequest, "sessionId" | "messages"> & {
  readonly runInput: RunInputParts;
};

/** The row that the client waits for; undefined: none. */
async function rowOf(
  parts: AguiRunParts,
  { runInput, sessionId, messages: listed }: InputRequest,
  context: CallContext,
): Promise<bigint | undefined> {
  for (let attempt = 1; ; attempt += 1) {
    const current = await currentSnapshot(parts, sessionId, context);
    const row = newRowIn(runInput, { sessionId, listed }, current);
    if (row === undefined) return current && waitingRowIn(runInput, current);
    try {
      const { payload, idempotencyKey } = row;
      const message = { sessionId, eventType: USER_ROW_TYPE, payload, idempotencyKey };
      const stored = await parts.push(create(PushSessionMessageRequestSchema, message), context);
      parts.metrics.aguiInputs.inc({ outcome: stored.deduplicated ? "repeated" : "stored" });
      return stored.seq;
    } catch (error) {
      const refused = ServiceError.from(error);
      if (refused.reason !== "KEY_REUSED" || attempt === ATTEMPTS_MAX) {
        throw inWordsOf(refused, row, runInput);
      }
    }
  }
}

/** Undefined: no such session. */
async function currentSnapshot(
  { transcripts }: AguiRunParts,
  sessionId: string,
  { signal }: CallContext,
): Promise<Snapshot | undefined> {
  try {
    return await transcripts.read(sessionId, { signal });
  } catch (error) {
    if (error instanceof ServiceError && error.reason === "SESSION_NOT_FOUND") return undefined;
    throw error;
  }
}

/** The caller sent an input, and no message row. */
function inWordsOf(
  error: ServiceError,
  { keyField }: RunInputRow,
  { path }: RunInputParts,
): ServiceError {
  const isDenied = error.reason === "PERMISSION_DENIED";
  const end = isDenied ? ": it may read the session, and what was typed is not stored" : "";
  const renamed = (words: string): string =>
    words.replaceAll(/\b(payload|idempotency_key)\b/g, (name) =>
      name === "payload" ? `${path}messages` : keyField,
    );
  return withNames(error, renamed, end);
}
