import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Audit } from "../auth/authorizer.ts";
import { SESSION_TOKEN_ROLES, type SessionTokens } from "../auth/session-tokens.ts";
import { invalidArgument } from "@session-ledger/base/errors";
import { sessionNotFound } from "../store/failure.ts";
import { violationsOf, checkSessionId, checkThat } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import type { SessionRecord } from "../store/sessions.ts";
import { timestampOf, durationMs } from "../contract/times.ts";

export interface TokenParts {
  readonly tokens: Pick<SessionTokens, "issue">;
  readonly getSession: (id: string) => Promise<SessionRecord | undefined>;
  readonly audit: Audit;
}

const TTL_DEFAULT_MS = 3_600_000;
const ROLE_DEFAULT = "runner";
const ROLE_RULE = `must be one of ${SESSION_TOKEN_ROLES.join(", ")}, or empty for ${ROLE_DEFAULT}`;

export function createIssueSessionToken(
  { tokens, getSession, audit }: TokenParts,
  { sessionTokenTtlMaxMs: ttlMaxMs }: { readonly sessionTokenTtlMaxMs: number },
): Handlers<typeof SessionService>["issueSessionToken"] {
  return async ({ sessionId, role: named, ttl }, { principal }) => {
    const role = SESSION_TOKEN_ROLES.find((one) => one === (named || ROLE_DEFAULT));
    const ttlMs = ttl === undefined ? Math.min(TTL_DEFAULT_MS, ttlMaxMs) : durationMs(ttl);
    const ttlRule = `must be more than 0 and at most ${ttlMaxMs / 1_000} s`;
    const violations = violationsOf([
      checkSessionId(sessionId),
      checkThat("role", role !== undefined, ROLE_RULE),
      checkThat("ttl", ttlMs > 0 && ttlMs <= ttlMaxMs, ttlRule),
    ]);
    if (violations.length > 0 || role === undefined) throw invalidArgument(violations);
    if ((await getSession(sessionId)) === undefined) throw sessionNotFound(sessionId);
    const { id, token, expiresAtMs } = await tokens.issue({ sessionId, role, ttlMs });
    // The only record of who issued a token, and for which session. It never has the token.
    const act = { principal, action: "token.issue", sessionId } as const;
    audit.done(act, { tokenId: id, role, expiresAt: new Date(expiresAtMs).toISOString() });
    return {
      $typeName: "ambient.v1.IssueSessionTokenResponse",
      token,
      expiresAt: timestampOf(BigInt(expiresAtMs) * 1_000n),
    };
  };
}
