/** The transcript and the runs of a session as RPCs: what HTTP has, for generated clients. */
import { RunStatus } from "@session-ledger/proto/ambient/v1/conversation_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { actorOf } from "../auth/principal.ts";
import { serverBusy } from "../base/budget.ts";
import { invalidArgument } from "@session-ledger/base/errors";
import { refuse } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { timestampOf } from "../contract/times.ts";
import type { TranscriptHandlers } from "../conversation/transcripts.ts";
import { createRunsHandlers, type RunsHandlers, type RunsParts } from "./runs.ts";

const RUNS_MAX = 100;
const TOKEN = /^\d{1,18}$/;
/** A text is encoded in up to three bytes per character. */
const BYTES_PER_CHAR = 3;
const STATUS = {
  running: RunStatus.RUNNING,
  finished: RunStatus.FINISHED,
  error: RunStatus.ERROR,
  interrupted: RunStatus.INTERRUPTED,
  unanswered: RunStatus.UNANSWERED,
  cancelled: RunStatus.CANCELLED,
  stalled: RunStatus.STALLED,
} as const;

type ConversationHandlers = Pick<Handlers<typeof SessionService>, "getTranscript" | "listRuns">;

interface ConversationReads {
  readonly runs: RunsHandlers;
  readonly transcripts: TranscriptHandlers;
}

/** The reads for HTTP, and the RPCs that call them. */
export function createConversation(
  parts: RunsParts,
  options: { readonly runStaleAfterMs: number },
): { readonly reads: ConversationReads; readonly handlers: ConversationHandlers } {
  const { transcripts } = parts;
  const reads: ConversationReads = {
    runs: createRunsHandlers(parts, options),
    transcripts: {
      readTranscript: ({ sessionId, upToSeq }, { signal, principal }) =>
        transcripts.read(sessionId, { upToSeq, signal, caller: actorOf(principal) }),
    },
  };
  return { reads, handlers: createConversationHandlers(reads) };
}

function createConversationHandlers({
  runs,
  transcripts,
}: ConversationReads): ConversationHandlers {
  return {
    async getTranscript({ sessionId, upToSeq }, context) {
      const description = "up_to_seq must not be negative";
      if (upToSeq < 0n) throw invalidArgument([{ field: "up_to_seq", description }]);
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
        pageSize >= 0 && pageSize <= RUNS_MAX
          ? undefined
          : {
              field: "page_size",
              description: `page_size must be 1 to ${RUNS_MAX}, or 0 for the default`,
            },
        pageToken === "" || TOKEN.test(pageToken)
          ? undefined
          : {
              field: "page_token",
              description: "page_token must be next_page_token of the page before, or empty",
            },
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
          status: STATUS[run.status],
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
}
