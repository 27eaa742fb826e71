/**
 * Checks every served call against the table of src/auth: the one place that checks the rights of a
 * caller. gRPC and HTTP get only the methods that this file returns, so neither can skip the check.
 * A method without a row in the table is not built.
 *
 *   called ── role ──► scope ──► the handler, which looks at the form of the request
 *                │        └─ not this session, or no session: NOT_FOUND, in the words for both
 *                └─ not with these roles: PERMISSION_DENIED, which reveals nothing of the session
 *
 * An id that no session can have passes to the handler, which reports the error in the id. For
 * callers who see every session the check is synchronous and costs no extra promise.
 */
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type Action, METHOD_ACTIONS, pushActionOf } from "../auth/actions.ts";
import type { Audit, Authorizer } from "../auth/authorizer.ts";
import type { Principal } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { only, Pull } from "../base/pull.ts";
import type { CallContext, Handlers } from "../contract/context.ts";
import type { ExportHandlers } from "./export.ts";
import type { HistoryHandlers } from "./pages.ts";
import type { EventListHandlers } from "./push-list.ts";
import type { OpenPushStream } from "./push-stream/push-streams.ts";
import { auditedCancel, auditedFork, audited, auditedClaim } from "./audited.ts";
import type { CancelHandlers } from "./turns/cancel-run.ts";
import type { RunsHandlers } from "./runs.ts";
import type { AguiRun } from "./agui-run.ts";
import type { TranscriptHandlers } from "../conversation/transcripts.ts";

type Methods = Handlers<typeof SessionService>;

/** The methods that have a handler, and those that only HTTP offers. */
export type ServedMethods = Methods & HistoryHandlers & EventListHandlers & CancelHandlers;

/** The same before the check. A push stream checks the session that its first frame names. */
export type UncheckedMethods = Omit<ServedMethods, "pushSessionEvents"> & {
  readonly pushSessionEvents: OpenPushStream;
};

export interface ServedReads {
  readonly runs: RunsHandlers;
  readonly transcripts: TranscriptHandlers;
  readonly exports: ExportHandlers;
  readonly runAgent: AguiRun;
}

export interface AuthorisingParts {
  readonly authorizer: Authorizer;
  readonly audit: Audit;
}

export function authorisedMethods(
  parts: AuthorisingParts,
  served: UncheckedMethods,
): ServedMethods {
  const { authorizer, audit } = parts;
  const bySession = (method: string): Allow<{ readonly sessionId: string }> => {
    const action = actionOf(method);
    return (principal, { sessionId }) => authorizer.authorize(principal, action, sessionId);
  };
  const readEvents = bySession("ListSessionEvents");
  const readMessages = bySession("ListSessionMessages");
  const pushEvent = bySession("PushSessionEvent");
  return {
    ...authorisedSessions(parts, served),
    // This method writes its own audit record, because only the handler knows the token's id.
    issueSessionToken: unary(bySession("IssueSessionToken"), served.issueSessionToken),
    forkSession: unary(bySession("ForkSession"), auditedFork(audit, served.forkSession)),
    pushSessionMessage: unary(
      (principal, { sessionId, eventType }) =>
        authorizer.authorize(principal, pushActionOf(eventType), sessionId),
      served.pushSessionMessage,
    ),
    pushSessionEvent: unary(pushEvent, served.pushSessionEvent),
    pushEventList: unary(pushEvent, served.pushEventList),
    claimTurn: unary(bySession("ClaimTurn"), auditedClaim(audit, served.claimTurn)),
    cancelRun: unary(bySession("CancelRun"), auditedCancel(audit, served.cancelRun)),
    stopRun: unary(bySession("CancelRun"), auditedCancel(audit, served.stopRun)),
    // The handler finds only texts of the caller's sessions.
    searchTexts: unary(ofAll(parts, "SearchTexts"), served.searchTexts),
    getTranscript: unary(bySession("GetTranscript"), served.getTranscript),
    listRuns: unary(bySession("ListRuns"), served.listRuns),
    giveFeedback: unary(bySession("GiveFeedback"), served.giveFeedback),
    pushSessionEvents: pushStream(authorizer, served.pushSessionEvents),
    listSessionMessages: unary(readMessages, served.listSessionMessages),
    listSessionEvents: unary(readEvents, served.listSessionEvents),
    watchSessionMessages: stream(bySession("WatchSessionMessages"), served.watchSessionMessages),
    watchSessionEvents: stream(bySession("WatchSessionEvents"), served.watchSessionEvents),
    watchEvents: stream(ofProject(parts, "WatchEvents"), served.watchEvents),
    watchMessages: stream(ofProject(parts, "WatchMessages"), served.watchMessages),
    readEventHistory: unary(
      (principal, { page }) => readEvents(principal, page),
      served.readEventHistory,
    ),
    readMessageHistory: unary(
      (principal, { page }) => readMessages(principal, page),
      served.readMessageHistory,
    ),
  };
}

/** The methods whose requests name a session by `id`, or a project, or nothing. */
function authorisedSessions(parts: AuthorisingParts, served: UncheckedMethods) {
  const { authorizer, audit } = parts;
  const byId = (method: string): Allow<{ readonly id: string }> => {
    const action = actionOf(method);
    return (principal, { id }) => authorizer.authorize(principal, action, id);
  };
  const list = ofAll(parts, "ListSessions");
  return {
    createSession: unary(ofProject(parts, "CreateSession"), served.createSession),
    getSession: unary(byId("GetSession"), served.getSession),
    // The handler lists only the sessions of the caller.
    listSessions: unary(list, served.listSessions),
    watchSessions: stream(list, served.watchSessions),
    updateSession: unary(
      byId("UpdateSession"),
      audited(audit, "session.update", served.updateSession, (_, request) => ({
        fields: CHANGEABLE.filter((name) => request[name] !== undefined).join(","),
      })),
    ),
    updateSessionStatus: unary(byId("UpdateSessionStatus"), served.updateSessionStatus),
    deleteSession: unary(
      byId("DeleteSession"),
      audited(audit, "session.delete", served.deleteSession, () => ({})),
    ),
    eraseSession: unary(
      byId("EraseSession"),
      audited(audit, "session.erase", served.eraseSession, ({ messages, events }) => ({
        messages: String(messages),
        events: String(events),
      })),
    ),
    holdSession: unary(
      byId("HoldSession"),
      audited(audit, "session.hold", served.holdSession, ({ hold }) =>
        hold === undefined ? { released: "true" } : { reason: hold },
      ),
    ),
  } satisfies Partial<Methods>;
}

/** Reads that only HTTP offers in this form. `runAgent` also pushes, with its own check. */
export function authorisedReads(
  { authorizer }: AuthorisingParts,
  { runs, transcripts, exports, runAgent }: ServedReads,
): ServedReads {
  const allow: Allow<string> = (principal, sessionId) =>
    authorizer.authorize(principal, "session.read", sessionId);
  const allowOf: Allow<{ readonly sessionId: string }> = (principal, { sessionId }) =>
    allow(principal, sessionId);
  return {
    runs: { listRuns: unary(allowOf, runs.listRuns) },
    transcripts: { readTranscript: unary(allowOf, transcripts.readTranscript) },
    exports: {
      exportEvents: stream(allow, exports.exportEvents),
      exportMessages: stream(allow, exports.exportMessages),
      exportHistory: stream(allowOf, exports.exportHistory),
    },
    runAgent: stream(allowOf, runAgent),
  };
}

/** Returns undefined when the call is allowed; throws or rejects when it is not. */
type Allowed = ReturnType<Authorizer["authorize"]>;
type Allow<R> = (principal: Principal, request: R) => Allowed;

function unary<R, A>(
  allow: Allow<NoInfer<R>>,
  handle: (request: R, context: CallContext) => Promise<A>,
): (request: R, context: CallContext) => Promise<A> {
  return (request, context) => {
    const allowed = allow(context.principal, request);
    if (allowed === undefined) return handle(request, context);
    return allowed.then(() => handle(request, context));
  };
}

const CHANGEABLE = ["name", "labels", "annotations"] as const;

function stream<R, T>(
  allow: Allow<NoInfer<R>>,
  open: (request: R, context: CallContext) => AsyncIterable<T>,
): (request: R, context: CallContext) => AsyncIterable<T> {
  return (request, context) => {
    const allowed = allow(context.principal, request);
    return allowed === undefined
      ? open(request, context)
      : after(allowed, () => open(request, context));
  };
}

function after<T>(allowed: Promise<void>, open: () => AsyncIterable<T>): AsyncIterable<T> {
  const opened = async (): Promise<AsyncIterable<T>> => {
    await allowed;
    return open();
  };
  return new Pull(opened, only);
}

/** Checks the roles when the stream begins, and the session when the first frame has named it. */
function pushStream(authorizer: Authorizer, begin: OpenPushStream): Methods["pushSessionEvents"] {
  const action = actionOf("PushSessionEvents");
  return (caller) => {
    const allow = (sessionId: string | undefined): Allowed =>
      authorizer.authorize(caller.principal, action, sessionId);
    // A call without a session id needs no look-up and no wait.
    void allow(undefined);
    return begin(caller, allow);
  };
}

/** The request names no session. */
function ofAll({ authorizer }: AuthorisingParts, method: string): Allow<unknown> {
  const action = actionOf(method);
  return (principal) => authorizer.authorize(principal, action, undefined);
}

/** The request may name the caller's project or none. */
function ofProject(
  parts: AuthorisingParts,
  method: string,
): Allow<{ readonly projectId?: string | undefined }> {
  const action = actionOf(method);
  const allow = ofAll(parts, method);
  return (principal, { projectId }) => {
    const allowed = allow(principal, undefined);
    const isFree = principal.projectId === undefined || projectId === undefined || projectId === "";
    if (isFree || projectId === principal.projectId) return allowed;
    parts.audit.denied({ principal, action, sessionId: undefined }, "scope");
    const description = "project_id must be the token's project, or empty";
    const violations = [{ field: "project_id", description }];
    throw new ServiceError("permission_denied", "PERMISSION_DENIED", description, { violations });
  };
}

function actionOf(method: string): Action {
  const served = METHOD_ACTIONS[method];
  if (served !== undefined && served !== "by message type") return served;
  throw new Error(`the table does not say what ${method} does`);
}
