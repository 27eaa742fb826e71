/**
 * What can be done here, by whom, and on what: the one table. Every RPC and every route is in it, which
 * test/unit/auth-actions.test.ts holds against the contract and against the routes that are served; so a
 * new one is decided on before it can be called. docs/security.md shows the same to operators.
 */
import type { Role } from "./principal.ts";

export type Action =
  | "session.create"
  | "session.read"
  | "session.list"
  | "session.status"
  | "session.delete"
  | "session.erase"
  | "message.push.user"
  | "message.push.other"
  | "event.push"
  | "token.issue"
  /** What is said about the service itself, and of no session. */
  | "contract.read";

export type Served =
  | Action
  /** It answers UNIMPLEMENTED, to whoever is authenticated. */
  | "unserved"
  /** `pushActionOf` says which, once the message is known. */
  | "by message type";

/** A principal may do what any of its roles may. */
export const ALLOWED: Readonly<Record<Action, readonly Role[]>> = {
  "session.create": ["admin", "editor"],
  "session.read": ["admin", "editor", "viewer", "runner"],
  "session.list": ["admin", "editor", "viewer", "runner"],
  "session.status": ["admin", "runner"],
  "session.delete": ["admin"],
  "session.erase": ["admin"],
  "message.push.user": ["admin", "editor"],
  "message.push.other": ["admin", "runner"],
  "event.push": ["admin", "runner"],
  "token.issue": ["admin"],
  "contract.read": ["admin", "editor", "viewer", "runner"],
};

/**
 * What of a scoped caller is compared, and with what:
 *
 *   session   the one session that the call names: of its project, or the very one
 *   sessions  none is named; the answer holds only what is the caller's, which the handler sees to
 *   project   none is there yet: what is made belongs to the caller's project, which the handler sees
 *             to, and a token for one session makes no other
 *   nothing   it is about no session
 */
export type Reach = "session" | "sessions" | "project" | "nothing";

export const REACH: Readonly<Record<Action, Reach>> = {
  "session.create": "project",
  "session.read": "session",
  "session.list": "sessions",
  "session.status": "session",
  "session.delete": "session",
  "session.erase": "session",
  "message.push.user": "session",
  "message.push.other": "session",
  "event.push": "session",
  "token.issue": "session",
  "contract.read": "nothing",
};

/** By the name of the RPC in ambient.v1.SessionService. */
export const METHOD_ACTIONS: Readonly<Record<string, Served>> = {
  GetSession: "session.read",
  CreateSession: "session.create",
  UpdateSession: "unserved",
  UpdateSessionStatus: "session.status",
  DeleteSession: "session.delete",
  ListSessions: "session.list",
  WatchSessions: "unserved",
  PushSessionMessage: "by message type",
  WatchSessionMessages: "session.read",
  PushSessionEvent: "event.push",
  WatchSessionEvents: "session.read",
  ListSessionMessages: "session.read",
  ListSessionEvents: "session.read",
  PushSessionEvents: "event.push",
  IssueSessionToken: "token.issue",
  EraseSession: "session.erase",
};

/** By method and pattern of the path; HEAD is as GET. */
export const ROUTE_ACTIONS: Readonly<Record<string, Served>> = {
  "GET /openapi.json": "contract.read",
  "GET /api/ambient/v1/sessions": "session.list",
  "GET /api/ambient/v1/sessions/:id": "session.read",
  "DELETE /api/ambient/v1/sessions/:id": "session.delete",
  "GET /api/ambient/v1/sessions/:id/messages": "session.read",
  "POST /api/ambient/v1/sessions/:id/messages": "by message type",
  "GET /api/ambient/v1/sessions/:id/events": "session.read",
  "GET /api/ambient/v1/sessions/:id/events/history": "session.read",
  "GET /api/ambient/v1/sessions/:id/runs": "session.read",
  "GET /api/ambient/v1/sessions/:id/transcript": "session.read",
  "GET /api/ambient/v1/sessions/:id/export": "session.read",
  "POST /agui/sessions/:id": "session.read",
  "GET /copilotkit/info": "contract.read",
  "POST /copilotkit/agent/:agent/connect": "session.read",
  "POST /copilotkit/agent/:agent/run": "unserved",
  "POST /copilotkit/agent/:agent/stop/:thread": "unserved",
  // Its envelope says what is meant: connect, or info, which is contract.read and for the same roles.
  "POST /copilotkit": "session.read",
};

/** Whoever speaks for the user may not speak for the agent, nor the other way round. */
export function pushActionOf(messageType: string): "message.push.user" | "message.push.other" {
  return messageType === "user" ? "message.push.user" : "message.push.other";
}
