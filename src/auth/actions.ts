/**
 * Which roles may do each action, and on which objects. A new RPC or route needs a decision here
 * before it can be called: test/unit/auth-actions.test.ts compares the table with both.
 * docs/security.md shows it to operators.
 */
import type { CallerRole } from "./principal.ts";

/**
 * The check of a scoped caller's scope:
 *
 *   session   the call names one session: one of the caller's project, or the caller's own session
 *   copy      the same, and a new session goes into the project of that one; not for a token for one
 *             session
 *   sessions  the call names none; the handler limits the answer to the caller's sessions
 *   project   the call concerns a whole project: a new session goes into the caller's project, and a
 *             feed has the rows of that project; a token for one session may do neither
 *   nothing   the call concerns no session
 */
type Reach = "session" | "copy" | "sessions" | "project" | "nothing";

interface Rule {
  readonly reach: Reach;
  /** A principal may do everything that any of its roles may do. */
  readonly roles: readonly CallerRole[];
}

const TABLE = {
  "session.create": { reach: "project", roles: ["admin", "editor"] },
  "session.read": { reach: "session", roles: ["admin", "editor", "viewer", "runner", "service"] },
  /** Makes another session with its history. */
  "session.fork": { reach: "copy", roles: ["admin", "editor"] },
  "session.list": { reach: "sessions", roles: ["admin", "editor", "viewer", "runner", "service"] },
  /** The texts of all sessions that the caller may read. */
  "session.search": {
    reach: "sessions",
    roles: ["admin", "editor", "viewer", "runner", "service"],
  },
  "session.update": { reach: "session", roles: ["admin", "editor"] },
  "session.status": { reach: "session", roles: ["admin", "runner"] },
  "session.delete": { reach: "session", roles: ["admin"] },
  "session.erase": { reach: "session", roles: ["admin"] },
  "session.hold": { reach: "session", roles: ["admin"] },
  "message.push.user": { reach: "session", roles: ["admin", "editor"] },
  "message.push.other": { reach: "session", roles: ["admin", "runner"] },
  "event.push": { reach: "session", roles: ["admin", "runner"] },
  "turn.claim": { reach: "session", roles: ["admin", "runner"] },
  "run.cancel": { reach: "session", roles: ["admin", "editor"] },
  "feedback.give": { reach: "session", roles: ["admin", "editor", "viewer"] },
  "token.issue": { reach: "session", roles: ["admin"] },
  /** The rows of all sessions in one stream. */
  "feed.read": { reach: "project", roles: ["admin", "service"] },
  /** Facts about the service itself, without a session. */
  "contract.read": { reach: "nothing", roles: ["admin", "editor", "viewer", "runner", "service"] },
} satisfies Readonly<Record<string, Rule>>;

export type Action = keyof typeof TABLE;
export const RULES: Readonly<Record<Action, Rule>> = TABLE;

export type Served =
  | Action
  /** `pushActionOf` returns the action once the message is known. */
  | "by message type";

/** Keyed by the name of the RPC in ambient.v1.SessionService. */
export const METHOD_ACTIONS: Readonly<Record<string, Served>> = {
  GetSession: "session.read",
  CreateSession: "session.create",
  ForkSession: "session.fork",
  UpdateSession: "session.update",
  UpdateSessionStatus: "session.status",
  DeleteSession: "session.delete",
  ListSessions: "session.list",
  WatchSessions: "session.list",
  SearchTexts: "session.search",
  PushSessionMessage: "by message type",
  WatchSessionMessages: "session.read",
  PushSessionEvent: "event.push",
  WatchSessionEvents: "session.read",
  ListSessionMessages: "session.read",
  ListSessionEvents: "session.read",
  PushSessionEvents: "event.push",
  ClaimTurn: "turn.claim",
  CancelRun: "run.cancel",
  GetTranscript: "session.read",
  ListRuns: "session.read",
  GiveFeedback: "feedback.give",
  IssueSessionToken: "token.issue",
  EraseSession: "session.erase",
  HoldSession: "session.hold",
  WatchEvents: "feed.read",
  WatchMessages: "feed.read",
};

/**
 * Keyed by method and pattern of the path; HEAD counts as GET. A public route is a page without data:
 * every caller gets it, also without a token.
 */
export const ROUTE_ACTIONS: Readonly<Record<string, Served | "public">> = {
  "GET /": "public",
  "GET /sessions/:id": "public",
  "GET /inbox": "public",
  "GET /sessions/:id/compare": "public",
  "GET /assets/:file": "public",
  "GET /openapi.json": "contract.read",
  "GET /api/ambient/v1/caller": "contract.read",
  "GET /api/ambient/v1/events": "feed.read",
  "GET /api/ambient/v1/messages": "feed.read",
  "GET /api/ambient/v1/search": "session.search",
  "GET /api/ambient/v1/sessions": "session.list",
  "POST /api/ambient/v1/sessions": "session.create",
  "GET /api/ambient/v1/sessions/:id": "session.read",
  "POST /api/ambient/v1/sessions/:id/fork": "session.fork",
  "PATCH /api/ambient/v1/sessions/:id": "session.update",
  "PATCH /api/ambient/v1/sessions/:id/status": "session.status",
  "DELETE /api/ambient/v1/sessions/:id": "session.delete",
  "PUT /api/ambient/v1/sessions/:id/hold": "session.hold",
  "DELETE /api/ambient/v1/sessions/:id/hold": "session.hold",
  "GET /api/ambient/v1/sessions/:id/messages": "session.read",
  "POST /api/ambient/v1/sessions/:id/messages": "by message type",
  "POST /api/ambient/v1/sessions/:id/messages/:message/feedback": "feedback.give",
  "POST /api/ambient/v1/sessions/:id/turns": "turn.claim",
  "POST /api/ambient/v1/sessions/:id/runs/:run/cancel": "run.cancel",
  "GET /api/ambient/v1/sessions/:id/events": "session.read",
  "POST /api/ambient/v1/sessions/:id/events": "event.push",
  "GET /api/ambient/v1/sessions/:id/events/history": "session.read",
  "GET /api/ambient/v1/sessions/:id/runs": "session.read",
  "GET /api/ambient/v1/sessions/:id/transcript": "session.read",
  "GET /api/ambient/v1/sessions/:id/export": "session.read",
  "GET /api/ambient/v1/sessions/:id/history": "session.read",
  // A new message is pushed by PushSessionMessage, which checks message.push.user; so it is below.
  "POST /agui/sessions/:id": "session.read",
  "GET /copilotkit/info": "contract.read",
  "POST /copilotkit/agent/:agent/connect": "session.read",
  "POST /copilotkit/agent/:agent/run": "session.read",
  "POST /copilotkit/agent/:agent/stop/:thread": "run.cancel",
  // The envelope names the request: connect, run and info have this action's roles; stop is
  // run.cancel, and is checked when the envelope is open.
  "POST /copilotkit": "session.read",
};

/** A caller that pushes for the user may not push for the agent, and the other way round. */
export function pushActionOf(messageType: string): "message.push.user" | "message.push.other" {
  return messageType === "user" ? "message.push.user" : "message.push.other";
}
