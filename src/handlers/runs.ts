/**
 * Lists the runs of a session, a page at a time. The store returns stretches of rows; this file
 * joins the parts of a run and decides its status. A page never ends inside a run: several bounded
 * statements add a long one, as long as the caller waits. A run that began at or before the cursor
 * is skipped.
 */
import { isObject } from "@session-ledger/agui/json";
import { outcomeOf, type RunOutcome } from "@session-ledger/agui/run-end";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { LedgerReader } from "../store/reader.ts";
import { cursorBeyondHead, livingOf } from "../store/failure.ts";
import { joined, type RunStretch, type RunsReader } from "../store/runs.ts";
import { checkSessionId, refuse } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import type { Transcripts } from "../conversation/transcripts.ts";

/**
 *   running      no end yet, and the newest row is recent
 *   stalled      no end, and none is expected: another run began after it, or no row came for long
 *   finished     by RUN_FINISHED
 *   interrupted  by RUN_FINISHED too, to wait for an answer
 *   unanswered   the same, but a later run has ended without the answer, and nobody waits any more
 *   cancelled    by RUN_FINISHED too, because somebody cancelled it
 *   error        by RUN_ERROR
 */
export type RunStatus = "running" | "stalled" | "unanswered" | RunOutcome;

export interface RunSummary extends Omit<RunStretch, "hasStart" | "end" | "recordedAtMicros"> {
  /** The parent that its RUN_STARTED names. */
  readonly parentRunId: string | undefined;
  readonly status: RunStatus;
  readonly endedAtMicros: bigint | undefined;
}

export interface RunsPage {
  readonly runs: readonly RunSummary[];
  readonly nextAfter: bigint;
  readonly hasMore: boolean;
}

export interface RunsRequest {
  readonly sessionId: string;
  /** Only runs that begin after this number; 0: from the beginning. */
  readonly afterSeq: bigint;
  readonly runsMax: number;
}

export interface RunsHandlers {
  readonly listRuns: (request: RunsRequest, context: CallContext) => Promise<RunsPage>;
}

export interface RunsParts {
  readonly reader: RunsReader & Pick<LedgerReader, "heads">;
  /** They tell which questions were answered: an answer may be in a message. */
  readonly transcripts: Pick<Transcripts, "read">;
  readonly clock: Clock;
}

/** Statements for a page that finds no run; then the page tells how far it looked. */
const EMPTY_LOOKS_MAX = 5;

export function createRunsHandlers(
  { reader, transcripts, clock }: RunsParts,
  options: { readonly runStaleAfterMs: number },
): RunsHandlers {
  return {
    async listRuns(request, context) {
      const { sessionId, afterSeq } = request;
      refuse([checkSessionId(sessionId)]);
      const head = livingOf(sessionId, (await reader.heads([sessionId])).get(sessionId));
      if (afterSeq > head.eventSeq) throw cursorBeyondHead(head.eventSeq);
      const found = await collect(reader, request, context);
      const markers = await markersOf(reader, sessionId, found.stretches);
      const staleMicros = clock.nowMicros() - BigInt(options.runStaleAfterMs) * 1_000n;
      const isPast = ({ end }: RunStretch): boolean =>
        markers.get(end?.seq ?? 0n)?.outcome === "interrupted" &&
        end?.seq !== found.newest?.end?.seq;
      const unanswered = found.stretches.some(isPast)
        ? await unansweredIn(transcripts, sessionId, context)
        : NO_RUNS;
      const runs = found.stretches.map((stretch) =>
        runOf(stretch, { markers, staleMicros, unanswered, isNewest: stretch === found.newest }),
      );
      return { runs, nextAfter: found.nextAfter, hasMore: found.hasMore };
    },
  };
}

const NO_RUNS: ReadonlySet<unknown> = new Set();

/** In a session that cannot be folded now they are interrupted, as it is stored. */
async function unansweredIn(
  transcripts: RunsParts["transcripts"],
  sessionId: string,
  { signal }: CallContext,
): Promise<ReadonlySet<unknown>> {
  try {
    const read = await transcripts.read(sessionId, { signal });
    return read.unansweredRuns;
  } catch (error) {
    if (ServiceError.from(error).code === "overloaded") return NO_RUNS;
    throw error;
  }
}

/** `newest` is the last run that was seen; it may lie after the page. */
async function collect(
  reader: RunsReader,
  { sessionId, afterSeq, runsMax }: RunsRequest,
  context: CallContext,
) {
  const stretches: RunStretch[] = [];
  let after = afterSeq;
  let cut = afterSeq > 0n ? await reader.runOpenAt(sessionId, afterSeq) : undefined;
  for (let looks = 1; ; looks += 1) {
    const looked = await reader.lookForRuns(sessionId, after);
    for (const stretch of looked.stretches) {
      const isCut = stretch.runId === cut;
      if (!isCut || stretch.end !== undefined) cut = undefined;
      if (isCut) continue;
      const last = stretches.at(-1);
      const whole = last === undefined ? undefined : joined(last, stretch);
      if (whole === undefined) stretches.push(stretch);
      else stretches[stretches.length - 1] = whole;
    }
    after = looked.upTo;
    const newest = stretches.at(-1);
    const beyond = stretches[runsMax];
    if (beyond !== undefined) {
      return {
        stretches: stretches.slice(0, runsMax),
        newest,
        nextAfter: beyond.firstSeq - 1n,
        hasMore: true,
      };
    }
    if (!looked.more || context.hasEnded) {
      return { stretches, newest, nextAfter: after, hasMore: false };
    }
    if (looks >= EMPTY_LOOKS_MAX && stretches.length === 0) {
      return { stretches, newest, nextAfter: after, hasMore: true };
    }
  }
}

interface Marker {
  readonly parentRunId: string | undefined;
  /** Of a RUN_FINISHED. */
  readonly outcome: RunOutcome;
}

/** Reads the fields that only the payloads of RUN_STARTED and RUN_FINISHED have. */
async function markersOf(
  reader: RunsReader,
  sessionId: string,
  stretches: readonly RunStretch[],
): Promise<ReadonlyMap<bigint, Marker>> {
  let wanted = stretches.flatMap(({ firstSeq, hasStart, end }) => [
    ...(hasStart ? [firstSeq] : []),
    ...(end?.eventType === "RUN_FINISHED" ? [end.seq] : []),
  ]);
  const markers = new Map<bigint, Marker>();
  while (wanted.length > 0) {
    const payloads = await reader.payloadsOf(sessionId, wanted);
    for (const [seq, payload] of payloads) markers.set(seq, markerOf(payload));
    const last = [...payloads.keys()].at(-1);
    if (last === undefined) break; // The rows were erased meanwhile.
    wanted = wanted.filter((seq) => seq > last);
  }
  return markers;
}

function markerOf(payload: string): Marker {
  const event: unknown = JSON.parse(payload);
  if (!isObject(event)) return { parentRunId: undefined, outcome: "finished" };
  const { parentRunId } = event;
  return {
    parentRunId: typeof parentRunId === "string" ? parentRunId : undefined,
    outcome: outcomeOf(event),
  };
}

interface StatusFacts {
  readonly markers: ReadonlyMap<bigint, Marker>;
  readonly staleMicros: bigint;
  readonly unanswered: ReadonlySet<unknown>;
  readonly isNewest: boolean;
}

function runOf(stretch: RunStretch, seen: StatusFacts): RunSummary {
  const { hasStart, recordedAtMicros: _, end, ...rest } = stretch;
  return {
    ...rest,
    parentRunId: hasStart ? seen.markers.get(stretch.firstSeq)?.parentRunId : undefined,
    status: statusOf(stretch, seen),
    endedAtMicros: end?.atMicros,
  };
}

function statusOf({ runId, end, recordedAtMicros }: RunStretch, seen: StatusFacts): RunStatus {
  if (end === undefined) {
    // A session has at most one open run: the run that began last.
    return seen.isNewest && recordedAtMicros >= seen.staleMicros ? "running" : "stalled";
  }
  if (end.eventType === "RUN_ERROR") return "error";
  const outcome = seen.markers.get(end.seq)?.outcome ?? "finished";
  return outcome === "interrupted" && seen.unanswered.has(runId) ? "unanswered" : outcome;
}
