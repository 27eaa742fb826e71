import type { Cancel } from "@session-ledger/proto/ambient/v1/event_stream_pb";

/** The reason of the signal of a run that somebody has cancelled. */
export class RunCancelled extends Error {
  /** As of other aborts, so that libraries do not report it as a failure. */
  override readonly name = "AbortError";
  readonly runId: string;
  /** The reason from the caller of CancelRun; empty: none. */
  readonly reason: string;

  constructor({ runId, reason }: Pick<Cancel, "runId" | "reason">) {
    super(`run ${runId} was cancelled${reason === "" ? "" : `: ${reason}`}`);
    this.runId = runId;
    this.reason = reason;
  }
}

/** The signal of the run that a writer writes. A session has one run at a time. */
export class RunSignal {
  #run: { readonly runId: string; readonly controller: AbortController } | undefined;
  #newest: RunCancelled | undefined;

  /** True while somebody may wait for a cancel. */
  get isOpen(): boolean {
    return this.#run !== undefined && !this.#run.controller.signal.aborted;
  }

  /** The signal of an earlier run aborts no more. */
  of(runId: string): AbortSignal {
    if (this.#run?.runId === runId) return this.#run.controller.signal;
    const controller = new AbortController();
    // The frame may have come before the caller asked for the signal.
    if (this.#newest?.runId === runId) controller.abort(this.#newest);
    this.#run = { runId, controller };
    return controller.signal;
  }

  cancel(cancel: Cancel): void {
    this.#newest = new RunCancelled(cancel);
    if (this.#run?.runId === cancel.runId) this.#run.controller.abort(this.#newest);
  }

  /** The writer has ended, and with it the run. */
  abort(failure: Error): void {
    this.#run?.controller.abort(failure);
    this.#run = undefined;
  }

  /** The producer has ended the run. */
  end(): void {
    this.#run = undefined;
  }
}
