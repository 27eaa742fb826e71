/**
 * A middleware changes, adds or watches the events of one run. The events of an agent pass through
 * the list in its order; the ledger is behind the last one:
 *
 *   agent ─► redaction ─► tracing ─► developer events ─► ambient CUSTOMs ─► ledger
 *
 * The events of a run begin with RUN_STARTED and end with RUN_FINISHED or RUN_ERROR: the runner adds
 * those that the agent leaves out before the first middleware. An agent that throws has become
 * RUN_ERROR there, so a middleware sees an error of the agent only as an event.
 */
import type { JsonObject } from "@session-ledger/agui/json";
import type { AgentEvent, PlatformBridge, RunInput } from "../bridge.ts";

/** One run, as each middleware knows it. */
export interface RunContext {
  readonly sessionId: string;
  readonly runId: string;
  readonly input: RunInput;
  readonly bridge: PlatformBridge;
  /** Aborts when the run is cancelled, and when the process stops. */
  readonly signal: AbortSignal;
}

export interface Middleware {
  (events: AsyncIterable<AgentEvent>, context: RunContext): AsyncIterable<AgentEvent>;
  /**
   * Members of the `metadata` of RUN_STARTED. A claim stores that event before the run begins, so they
   * are asked for before, with each claim; not every claim becomes a run.
   */
  readonly metadataOf?: (runId: string) => JsonObject | undefined;
}

/** The `metadata` of RUN_STARTED, from all middleware of the list. */
export function metadataOf(middleware: readonly Middleware[], runId: string): JsonObject {
  return Object.assign({}, ...middleware.map((one) => one.metadataOf?.(runId)));
}

/** The events of the last middleware of the list; without a list, the events themselves. */
export function through(
  middleware: readonly Middleware[],
  events: AsyncIterable<AgentEvent>,
  context: RunContext,
): AsyncIterable<AgentEvent> {
  return middleware.reduce((before, next) => next(before, context), events);
}
