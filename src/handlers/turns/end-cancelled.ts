/**
 * Ends a cancelled run in place of its producer: ENDs of everything open, then RUN_FINISHED with the
 * outcome `cancelled`. The epoch is raised first, so that the producer can add nothing while the ENDs
 * are looked for. Every commit is judged for the state that was read, so of several replicas one ends
 * the run, and the run of another claim is never touched.
 *
 *   read ── raise the epoch ── read ── fold up to the newest event ── end ── committed ──► true
 *    ▲             │                                                    │
 *    └─────────────┴───── in another state by now ──────────────────────┘
 *    └── the run is over, or was never cancelled ────────────────────────────────────────► false
 */
import type { ValidationMode } from "@session-ledger/agui/validate";
import { splitRawEvent } from "@session-ledger/agui/split-event";
import { ServiceError } from "@session-ledger/base/errors";
import type { Snapshot } from "../../conversation/snapshot.ts";
import type { Transcripts } from "../../conversation/transcripts.ts";
import { TurnMoved } from "../../ingest/refusal.ts";
import type { CancelStore, OpenCancel, RunState } from "../../store/cancels.ts";
import { type Push, type SeenState, storedBytesOf } from "../../store/rows.ts";
import { newEventRow, type PushParts } from "../push.ts";
import { INT64_MAX } from "../../contract/checks.ts";

/** A producer without an epoch is not fenced. After this many tries its last events do not count. */
const TRIES_MAX = 5;
/** The rows are ours, and legal in each mode. */
const MODE: ValidationMode = "strict";

export interface EndParts extends Pick<PushParts, "ingest" | "groups" | "clock"> {
  readonly cancels: Pick<CancelStore, "readRun">;
  readonly transcripts: Pick<Transcripts, "read">;
}

/** False: the run has ended in another way. */
export async function endCancelled(parts: EndParts, cancel: OpenCancel): Promise<boolean> {
  const { sessionId, runId, seq } = cancel;
  let raised: bigint | undefined;
  parts.groups.close(sessionId);
  for (let tries = 1; ; tries += 1) {
    const state = await parts.cancels.readRun({ sessionId, key: "" });
    if (state?.openRunId !== runId || state.cancelSeq !== seq || state.isDeleted) return false;
    try {
      if (raised === undefined) {
        const epoch = above(state);
        const seen = {
          turnSeq: undefined,
          openRunId: runId,
          epoch: state.epoch,
          eventSeq: undefined,
        };
        await parts.ingest.push({ ...pushTo(sessionId, seen), epoch }, () => false);
        raised = epoch;
      } else {
        // Another replica may have raised it too, and a producer may have taken the next one.
        const epoch = state.epoch === raised ? raised : above(state);
        await end(parts, cancel, { seen: state.epoch, epoch, isLast: tries >= TRIES_MAX });
        return true;
      }
    } catch (error) {
      if (!(error instanceof TurnMoved) || tries > TRIES_MAX) throw error;
    }
  }
}

/** The next epoch. */
function above({ epoch = 0n }: RunState): bigint {
  return epoch === INT64_MAX ? epoch : epoch + 1n;
}

interface CancelledEnd {
  readonly seen: bigint | undefined;
  readonly epoch: bigint;
  /** The run ends whatever its newest events are. */
  readonly isLast: boolean;
}

async function end(
  { ingest, transcripts, clock }: EndParts,
  { sessionId, runId }: OpenCancel,
  { seen: seenEpoch, epoch, isLast }: CancelledEnd,
): Promise<void> {
  const folded = await transcripts.read(sessionId, {}).catch(without);
  const run = folded?.run?.runId === runId ? folded.run : undefined;
  const finished = {
    type: "RUN_FINISHED",
    threadId: run?.threadId ?? sessionId,
    runId,
    outcome: { type: "cancelled" },
  };
  const createdAtMicros = clock.nowMicros();
  const ends = run === undefined ? [] : (folded?.endings() ?? []);
  const rows = [...ends, finished].flatMap((event) => {
    const payload = JSON.stringify(event);
    const made = splitRawEvent({ eventType: "", payload, createdAtMicros }, MODE);
    if (!made.ok) throw new Error("the end of a cancelled run is no event of AG-UI");
    return made.rows.map((row) => newEventRow(row, undefined));
  });
  const eventSeq = isLast ? undefined : folded?.cut.events;
  const seen = { turnSeq: undefined, openRunId: runId, epoch: seenEpoch, eventSeq };
  const push = { ...pushTo(sessionId, seen), epoch, rows, bytes: storedBytesOf(rows) };
  await ingest.push(push, () => false);
}

/** A session without a transcript gets no ENDs in its log. Its clients still get them. */
function without(error: unknown): Snapshot | undefined {
  if (ServiceError.from(error).reason === "TRANSCRIPT_TOO_LARGE") return undefined;
  throw error;
}

/** By the service itself: the cancel has the caller. */
function pushTo(sessionId: string, seen: SeenState): Push {
  return { sessionId, stream: "events", seen, rows: [], bytes: 0 };
}
