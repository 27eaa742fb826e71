/** The middleware of a runner: `docs/sdk-http.md` is the guide. */
import type { Middleware } from "./middleware.ts";
import { notes } from "./notes.ts";
import type { Redaction } from "./redaction.ts";

export type { Middleware, RunContext } from "./middleware.ts";
/** Secrets become `*`. */
export { redaction } from "./redaction.ts";
export type { Redaction, RedactionOptions } from "./redaction.ts";
/** A trace of each run, with the attributes of Langfuse. */
export { tracing } from "./tracing.ts";
export type { TracingOptions } from "./tracing.ts";
export type { TraceApi } from "./trace-api.ts";
/** The thumbs of people as scores of these traces. */
export { fileCursor, followFeedback, langfuseScores, ScoreRefused } from "../feedback.ts";
export type { CursorStore, FollowFeedbackOptions, LangfuseOptions, Score } from "../feedback.ts";

export interface PlatformMiddleware {
  /** Before all others: no trace has a secret. */
  readonly redaction?: Redaction;
  readonly tracing?: Middleware;
}

/** All of it, in the documented order: redaction, tracing, notes; the ledger is behind it. */
export function platformMiddleware(given: PlatformMiddleware = {}): readonly Middleware[] {
  const { redaction, tracing } = given;
  const told = notes({ mask: redaction?.mask, capabilities: true });
  const all = [redaction?.middleware, tracing, told];
  return all.filter((one) => one !== undefined);
}
