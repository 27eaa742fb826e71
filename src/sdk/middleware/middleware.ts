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

export type Middleware = (
  events: AsyncIterable<AgentEvent>,
  context: RunContext,
) => AsyncIterable<AgentEvent>;

/** The events of the last middleware of the list; without a list, the events themselves. */
export function through(
  middleware: readonly Middleware[],
  events: AsyncIterable<AgentEvent>,
  context: RunContext,
): AsyncIterable<AgentEvent> {
  return middleware.reduce((before, next) => next(before, context), events);
}
