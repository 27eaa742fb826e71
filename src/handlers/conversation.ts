/** The transcript and the runs of a session as RPCs: what HTTP has, for generated clients. */
import { RunStatus } from "@session-ledger/proto/ambient/v1/conversation_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { actorOf } from "../auth/principal.ts";
import { serverBusy } from "../base/budget.ts";
import { checkSize, checkThat, refuse, TOKEN_RULE } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { timestampOf } from "../contract/times.ts";
import type { TranscriptHandlers } from "../conversation/transcripts.ts";
import { createRunsHandlers, type RunsParts } from "./runs.ts";

const RUNS_MAX = 100;
const TOKEN = /^\d{1,18}$/;
/** A text is encoded in up to three bytes per character. */
const BYTES_PER_CHAR = 3;
export const RUN_STATUSES = {
  running: RunStatus.RUNNING,
  finished: RunStatus.FINISHED,
  error: RunStatus.ERROR,
  interrupted: RunStatus.INTERRUPTED,
  unanswered: RunStatus.UNANSWERED,
  cancelled: RunStatus.CANCELLED,
  stalled: RunStatus.STALLED,
} as const;

/** The reads for HTTP, and the RPCs that call them. */
export function createConversation(
  parts: RunsParts,
  options: { readonly runStaleAfterMs: number },
) {
  const runs = createRunsHandlers(parts, options);
  const transcripts: TranscriptHandlers = {
    readTranscript: ({ sessionId, upToSeq }, { signal, principal }) =>
      parts.transcripts.read(sessionId, { upToSeq, signal, caller: actorOf(principal) }),
  };
  const handlers: Pick<Handlers<typeof SessionService>, "getTranscript" | "listRuns"> = {
    async getTranscript({ sessionId, upToSeq }, context) {
      refuse([checkThat("up_to_seq", upToSeq >= 0n, "must not be negative")]);
      const asked = { sessionId, upToSeq: upToSeq === 0n ? undefined : upToSeq };
      const transcript = await transcripts.readTranscript(asked, context);
      const { messagesText, stateText, interruptsText, branches } = transcript;
      const chars = messagesText.length + (stateText ?? "").length + interruptsText.length;
      if (context.memory?.resize("answer", chars * BYTES_PER_CHAR) === false) throw serverBusy();
      return {
        $typeName: "ambient.v1.Transcript",
        sessionId,
        upToSeq: transcript.seq,
        upToMessageSeq: transcript.cut.messages,
        messages: messagesText,
        ...(stateText === undefined ? {} : { state: stateText }),
        stateTooLarge: transcript.isStateTooLarge,
        interrupts: interruptsText,
        branches: [...branches],
      };
    },
    async listRuns({ sessionId, pageSize, pageToken }, context) {
      refuse([
        checkSize("page_size", pageSize, RUNS_MAX),
        checkThat("page_token", pageToken === "" || TOKEN.test(pageToken), TOKEN_RULE),
      ]);
      const afterSeq = pageToken === "" ? 0n : BigInt(pageToken);
      const runsMax = pageSize === 0 ? RUNS_MAX : pageSize;
      const page = await runs.listRuns({ sessionId, afterSeq, runsMax }, context);
      return {
        $typeName: "ambient.v1.ListRunsResponse",
        runs: page.runs.map((run) => ({
          $typeName: "ambient.v1.Run",
          runId: run.runId,
          ...(run.parentRunId === undefined ? {} : { parentRunId: run.parentRunId }),
          status: RUN_STATUSES[run.status],
          firstSeq: run.firstSeq,
          lastSeq: run.lastSeq,
          startedAt: timestampOf(run.startedAtMicros),
          ...(run.endedAtMicros === undefined ? {} : { endedAt: timestampOf(run.endedAtMicros) }),
          rawEvents: run.rawEvents,
          rows: run.rows,
          payloadBytes: run.bytes,
        })),
        nextPageToken: page.hasMore ? page.nextAfter.toString() : "",
      };
    },
  };
  return { reads: { runs, transcripts }, handlers };
}
