/**
 * The runs of a stretch of a session's rows, and their tool calls, for the views of analytics. A run is
 * counted by its RUN_STARTED, as the list of runs has it (store/runs.ts). Tool calls outside of runs
 * are in no view.
 *
 *   rows ──► canonical events ──► first text, tool calls ─┐
 *      └─── RUN_STARTED, RUN_FINISHED, RUN_ERROR ─────────┴─► runs and calls that have changed
 *
 * A fold may begin inside a run. Then it gets the open run as it was stored.
 */
import { parseObject } from "@session-ledger/agui/json";
import { outcomeOf, type RunOutcome, type ModelUsage, usageIn } from "@session-ledger/agui/run-end";
import type { CanonicalEvent } from "@session-ledger/agui/canonical/event";
import { type CallFacts, RunFacts } from "@session-ledger/agui/canonical/run-facts";
import type { TranscriptRow } from "../store/pages.ts";

/** Times are microseconds since 1970. */
export interface FoundRun {
  /** The number of its RUN_STARTED. */
  readonly seq: bigint;
  /** The number of its last event. */
  lastSeq: bigint;
  readonly runId: string;
  readonly startedAt: number;
  firstTextAt: number | undefined;
  endedAt: number | undefined;
  /** Stalled: another run began before its end. */
  outcome: RunOutcome | "running" | "stalled";
  usage: readonly ModelUsage[];
}

export interface FoundCall extends CallFacts {
  /** The number of its first event. */
  readonly seq: bigint;
  readonly runSeq: bigint;
}

/** A run that has no end yet, with the calls that have no result yet. */
export interface OpenRun {
  readonly run: FoundRun;
  readonly calls: readonly FoundCall[];
}

/** The memory of a call; a rough number. */
const CALL_BYTES = 512;

export class RunFold {
  #run: FoundRun | undefined;
  #facts = new RunFacts();
  readonly #places = new WeakMap<CallFacts, Pick<FoundCall, "seq" | "runSeq">>();
  readonly #changedRuns = new Set<FoundRun>();
  readonly #changedCalls = new Set<CallFacts>();

  constructor(open?: OpenRun) {
    if (open === undefined) return;
    this.#run = { ...open.run };
    this.#facts.firstTextAt = open.run.firstTextAt;
    for (const call of open.calls) this.#places.set(this.#facts.add({ ...call }), call);
  }

  get isOpen(): boolean {
    return this.#run !== undefined;
  }

  get bytes(): number {
    return this.#facts.calls.size * CALL_BYTES;
  }

  take(row: TranscriptRow, events: readonly CanonicalEvent[]): void {
    const { seq, conformant, eventType, createdMicros, payload } = row;
    if (conformant && eventType === "RUN_STARTED") this.#begin(row);
    const run = this.#run;
    if (run === undefined) return;
    run.lastSeq = seq + BigInt(row.eventCount) - 1n;
    for (const { value } of events) {
      const call = this.#facts.onEvent(value, createdMicros);
      if (call === undefined) continue;
      if (call.endedAt === undefined) this.#places.set(call, { seq, runSeq: run.seq });
      this.#changedCalls.add(call);
    }
    if (run.firstTextAt !== this.#facts.firstTextAt) {
      run.firstTextAt = this.#facts.firstTextAt;
      this.#changedRuns.add(run);
    }
    if (!conformant || (eventType !== "RUN_FINISHED" && eventType !== "RUN_ERROR")) return;
    const end = parseObject(payload);
    run.endedAt = createdMicros;
    run.outcome = outcomeOf(end);
    run.usage = usageIn(end);
    this.#changedRuns.add(run);
    this.#leave();
  }

  /** The runs and calls that have changed since the last call; with `all` also the open run. */
  drain({ all }: { readonly all: boolean }): {
    readonly runs: readonly FoundRun[];
    readonly calls: readonly FoundCall[];
  } {
    if (all && this.#run !== undefined) this.#changedRuns.add(this.#run);
    const runs = [...this.#changedRuns].map((run) => ({ ...run }));
    const calls = [...this.#changedCalls].flatMap((call) => {
      const place = this.#places.get(call);
      return place === undefined ? [] : [{ ...call, seq: place.seq, runSeq: place.runSeq }];
    });
    this.#changedRuns.clear();
    this.#changedCalls.clear();
    return { runs, calls };
  }

  #begin({ seq, createdMicros, payload }: TranscriptRow): void {
    if (this.#run !== undefined) {
      this.#run.outcome = "stalled";
      this.#changedRuns.add(this.#run);
    }
    this.#leave();
    const { runId } = parseObject(payload);
    this.#run = {
      seq,
      lastSeq: seq,
      runId: typeof runId === "string" ? runId : "",
      startedAt: createdMicros,
      firstTextAt: undefined,
      endedAt: undefined,
      outcome: "running",
      usage: [],
    };
    this.#changedRuns.add(this.#run);
  }

  #leave(): void {
    this.#run = undefined;
    this.#facts = new RunFacts();
  }
}
