/** Audit records of calls that have done something: one file, because authorised.ts decides who may. */
import { ServiceError } from "@session-ledger/base/errors";
import type { CallContext, Handlers } from "../contract/context.ts";
import { cancelTextOf } from "./turns/cancel-run.ts";
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Action } from "../auth/actions.ts";
import type { Audit } from "../auth/authorizer.ts";
import { isUnscoped } from "../auth/principal.ts";

type ClaimTurn = Handlers<typeof SessionService>["claimTurn"];
type ForkSession = Handlers<typeof SessionService>["forkSession"];

/**
 * Audits an action that cannot be undone: the old texts are lost too. An interrupted action may be
 * done in part, for example an erasure whose caller left.
 */
export function audited<R extends { readonly id: string }, A>(
  audit: Audit,
  action: Action,
  handle: (request: R, context: CallContext) => Promise<A>,
  fieldsOf: (answer: A, request: R) => Readonly<Record<string, string>>,
): (request: R, context: CallContext) => Promise<A> {
  return async (request, context) => {
    const act = { principal: context.principal, action, sessionId: request.id };
    try {
      const answer = await handle(request, context);
      audit.done(act, fieldsOf(answer, request));
      return answer;
    } catch (error) {
      const { code, reason } = ServiceError.from(error);
      const isRefused = code === "invalid_argument" || code === "not_found";
      if (!isRefused) audit.done(act, { unfinished: reason });
      throw error;
    }
  };
}

/** Writes an audit record of each run that a claim has ended. */
export function auditedClaim(audit: Audit, handle: ClaimTurn): ClaimTurn {
  return async (request, context) => {
    const answer = await handle(request, context);
    const { lostRunId, producerEpoch, runStarted } = answer;
    if (lostRunId !== "" && runStarted?.deduplicated !== true) {
      const { principal } = context;
      const act = { principal, action: "turn.claim", sessionId: request.sessionId } as const;
      audit.done(act, { lostRunId, producerEpoch: String(producerEpoch) });
    }
    return answer;
  };
}

/** Writes an audit record of each run that a caller asks to end. */
export function auditedCancel<R extends { readonly sessionId: string }>(
  audit: Audit,
  handle: (request: R, context: CallContext) => Promise<SessionMessage>,
): (request: R, context: CallContext) => Promise<SessionMessage> {
  return async (request, context) => {
    const message = await handle(request, context);
    if (!message.deduplicated) {
      const { sessionId } = request;
      const act = { principal: context.principal, action: "run.cancel", sessionId } as const;
      const runId = cancelTextOf(message.payload)?.runId ?? "";
      audit.done(act, { runId, messageSeq: String(message.seq) });
    }
    return message;
  };
}

/**
 * Audits each fork, also for a repeated request. Ids are shared by all projects: a caller with a
 * scope who chose one could take that of a later session, and learn which ids are taken.
 */
export function auditedFork(audit: Audit, handle: ForkSession): ForkSession {
  return async (request, context) => {
    const { sessionId, newId, atSeq, atMessageSeq } = request;
    const { principal } = context;
    const act = { principal, action: "session.fork", sessionId } as const;
    if (newId !== "" && !isUnscoped(principal)) {
      audit.denied(act, "scope");
      const description = "new_id must be empty with a token of a project; use idempotency_key";
      const violations = [{ field: "new_id", description }];
      throw new ServiceError("permission_denied", "PERMISSION_DENIED", description, { violations });
    }
    const session = await handle(request, context);
    const at = atSeq > 0n ? { atSeq: String(atSeq) } : { atMessageSeq: String(atMessageSeq) };
    audit.done(act, { newId: session.metadata?.id ?? "", ...at });
    return session;
  };
}
