/** The middleware of a runner: `docs/writing.md` is the guide. */
import type { Middleware } from "./middleware.ts";
import { developerEvents } from "./developer-events.ts";
import type { Redaction } from "./redaction.ts";

export type { Middleware, RunContext } from "./middleware.ts";
/** Secrets become `*`. */
export { redaction } from "./redaction.ts";
export type { Redaction, RedactionOptions } from "./redaction.ts";
/** A trace of each run, with the attributes of Langfuse. */
export { tracing } from "./tracing.ts";
export type { TracingOptions } from "./tracing.ts";
export type { TraceApi } from "./trace-api.ts";
/** Users' thumbs as scores of these traces. */
export { fileCursor, followFeedback, langfuseScores, ScoreRefused } from "../feedback.ts";
export type { CursorStore, FollowFeedbackOptions, LangfuseOptions, Score } from "../feedback.ts";

export interface PlatformMiddleware {
  /** Before all others: no trace has a secret. */
  readonly redaction?: Redaction;
  readonly tracing?: Middleware;
}

/** All middleware, in the documented order: redaction, tracing, notes; then the ledger. */
export function platformMiddleware(options: PlatformMiddleware = {}): readonly Middleware[] {
  const { redaction, tracing } = options;
  const withNotes = developerEvents({ mask: redaction?.mask, capabilities: true });
  const all = [redaction?.middleware, tracing, withNotes];
  return all.filter((one) => one !== undefined);
}
