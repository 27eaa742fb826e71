/**
 * For runners that bring an agent: a bridge in two methods, and the loop that gives it the turns of a
 * session and writes what it does. `docs/writing.md` is the guide.
 */

/** Gives the turns of a session to the agent of a bridge. */
export { createRunner } from "./loop.ts";
export type { Runner } from "./loop.ts";
export type { AgentFunction } from "./text-agent.ts";
export type { AgentSettings, RunnerOptions, RunnerProblem } from "./core.ts";
export type { RunnerStats } from "./metrics.ts";
export type { PoolOptions } from "./pool.ts";
/** The reason of the signal of a run when its process stops. */
export { RunnerStopped } from "./run.ts";

/** A bridge brings an agent framework, and creates its adapters. */
export { capabilitiesOf, PlatformBridge, RunInProgress } from "./bridge.ts";
export type {
  Adapter,
  AgentEvent,
  AgentMessage,
  FrameworkCapabilities,
  ObservableEvents,
  PlatformContext,
  ResumeEntry,
  RunInput,
} from "./bridge.ts";

/** The RunAgentInput of a claimed turn, and the user texts in one. */
export { promptsOf, toRunAgentInput } from "./input.ts";
export type { ClaimedTurn, InputOptions, TurnInput } from "./input.ts";
