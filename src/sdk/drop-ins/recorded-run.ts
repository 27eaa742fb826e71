/** A run of a framework that the ledger has not started, as it is recorded. Nothing here throws. */
import { textOf } from "../../runner/failure.ts";
import type { SessionWriter, WriterProblem } from "../../runner/writer/types.ts";
import { createSessionWriter } from "../../runner/writer/writer.ts";
import type { AgentEvent } from "../bridge.ts";
import { EventMaker } from "../../agui/event-maker.ts";
import { type Connection, onCancel } from "./follow-run.ts";

export interface RecordOptions extends Connection {
  /** Called with the problems of writing. */
  readonly onProblem?: (sessionId: string, problem: WriterProblem) => void;
}

interface Ids {
  readonly sessionId: string;
  readonly runId: string;
}

export class RecordedRun {
  readonly constructs = new EventMaker();
  readonly #ids: Ids;
  readonly #writer: SessionWriter;
  readonly #stopping: AbortController;

  /** A cancel aborts `stopping`; then the run ends as cancelled. */
  constructor(
    ids: Ids,
    { address, token, tls, onProblem }: RecordOptions,
    stopping = new AbortController(),
  ) {
    this.#ids = ids;
    this.#stopping = stopping;
    const { sessionId } = ids;
    this.#writer = createSessionWriter({
      address,
      sessionId,
      ...(token && { token }),
      ...(tls && { tls }),
      ...(onProblem && { onProblem: (problem) => onProblem(sessionId, problem) }),
    });
  }

  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  /** The questions are messages of the session, before the run. */
  begin(questions: readonly string[]): void {
    const { sessionId, runId } = this.#ids;
    for (const [at, payload] of questions.entries())
      this.#writer.message({ type: "user", payload, key: `${runId}:user:${at}`.slice(-128) });
    this.#writer.event({ type: "RUN_STARTED", threadId: sessionId, runId });
    onCancel(this.#writer, runId, (reason) => this.#stopping.abort(reason));
  }

  write(events: Iterable<AgentEvent>): void {
    for (const event of events) this.#writer.event(event);
  }

  /** Resolves when the run is stored, or cannot be stored for now. */
  async finish(more: object = {}): Promise<void> {
    const { sessionId, runId } = this.#ids;
    this.write(this.constructs.endAll());
    const outcome = this.signal.aborted ? { outcome: { type: "cancelled" } } : {};
    this.#writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId, ...more, ...outcome });
    await this.#writer.close();
  }

  /** The framework of a cancelled run fails with the abort. */
  async fail(error: unknown): Promise<void> {
    if (this.signal.aborted) return this.finish();
    this.write(this.constructs.endAll());
    this.#writer.event({ type: "RUN_ERROR", message: textOf(error) });
    await this.#writer.close();
  }
}
