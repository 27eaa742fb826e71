import type { CallContext } from "../contract/context.ts";
import type { Transcripts } from "./transcripts.ts";
import type { SessionTranscript } from "./transcripts-fold.ts";

export interface TranscriptRequest {
  readonly sessionId: string;
  /** Undefined: the newest transcript. */
  readonly upToSeq: bigint | undefined;
}

export interface TranscriptHandlers {
  readTranscript(request: TranscriptRequest, context: CallContext): Promise<SessionTranscript>;
}

/** The handlers of calls that read transcripts. */
export function createTranscriptHandlers(
  transcripts: Pick<Transcripts, "read">,
): TranscriptHandlers {
  return {
    readTranscript: ({ sessionId, upToSeq }, { signal }) =>
      transcripts.read(sessionId, { upToSeq, signal }),
  };
}
