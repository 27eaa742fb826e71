/** The middleware of a runner: `docs/sdk-http.md` is the guide. */
export type { Middleware, RunContext } from "./middleware.ts";
/** All of it, in the documented order. */
export { platformMiddleware } from "./platform.ts";
export type { PlatformMiddleware } from "./platform.ts";
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
