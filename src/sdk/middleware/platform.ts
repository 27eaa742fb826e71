/** The middleware of a runner in its order: redaction, tracing, notes; the ledger is behind it. */
import type { Middleware } from "./middleware.ts";
import { notes } from "./notes.ts";
import type { Redaction } from "./redaction.ts";

export interface PlatformMiddleware {
  /** Before all others: no trace has a secret. */
  readonly redaction?: Redaction;
  readonly tracing?: Middleware;
}

export function platformMiddleware(given: PlatformMiddleware = {}): readonly Middleware[] {
  const { redaction, tracing } = given;
  const told = notes({ mask: redaction?.mask, capabilities: true });
  const all = [redaction?.middleware, tracing, told];
  return all.filter((one) => one !== undefined);
}
