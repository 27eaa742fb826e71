/**
 * Authenticates and authorises a caller before any other part of a request is read, so a caller
 * without the right learns that and nothing about its parameters. The handlers check each call
 * again, as for gRPC. A route without a row in the table is not served.
 *
 * The type of a message is in its body, and decides which role may push it. So only a caller that
 * may push no message at all is refused here; the handler refuses the others with
 * PERMISSION_DENIED.
 */
import type { FastifyRequest } from "fastify";
import { type Action, ROUTE_ACTIONS, RULES, type Served } from "../../auth/actions.ts";
import type { Authenticator } from "../../auth/authenticator.ts";
import type { Authorizer } from "../../auth/authorizer.ts";
import { ANONYMOUS, type Principal } from "../../auth/principal.ts";

export interface Admission {
  /** Announces a route; throws when the table does not have it. */
  readonly expect: (method: string, url: string) => unknown;
  /** Returns the caller, at once or later; throws or rejects when the request may not continue. */
  admit(request: FastifyRequest): Principal | Promise<Principal>;
}

export function createAdmission({
  authenticator,
  authorizer,
}: {
  readonly authenticator: Pick<Authenticator, "asks" | "authenticate">;
  readonly authorizer: Authorizer;
}): Admission {
  return {
    expect: servedBy,
    admit(request) {
      const { method, url = "" } = request.routeOptions;
      const served = servedBy([method].flat()[0] ?? "", url);
      if (served === "public") return ANONYMOUS;
      const allowed = (principal: Principal): Principal | Promise<Principal> => {
        const pending =
          served === "by message type"
            ? authorizer.authorize(principal, pushOf(principal), undefined)
            : authorizer.authorize(principal, served, sessionIdIn(request.params));
        return pending === undefined ? principal : pending.then(() => principal);
      };
      if (!authenticator.asks) return allowed(ANONYMOUS);
      const principal = authenticator.authenticate(authorizationOf(request.raw.rawHeaders));
      return principal instanceof Promise ? principal.then(allowed) : allowed(principal);
    },
  };
}

function servedBy(method: string, url: string): Served | "public" {
  const name = `${method === "HEAD" ? "GET" : method} ${url}`;
  const served = ROUTE_ACTIONS[name];
  if (served === undefined) throw new Error(`the table does not say who may ${name}`);
  return served;
}

/** One of the two pushes; one that the roles allow, if any. */
function pushOf({ roles }: Principal): Action {
  const maySpeakForUsers = roles.some((role) => RULES["message.push.user"].roles.includes(role));
  return maySpeakForUsers ? "message.push.user" : "message.push.other";
}

/** All values, with names and values alternating: of several headers Node keeps only the first. */
function authorizationOf(rawHeaders: readonly string[]): readonly string[] {
  return rawHeaders.filter(
    (_value, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === "authorization",
  );
}

function sessionIdIn(params: unknown): string | undefined {
  if (typeof params !== "object" || params === null || !("id" in params)) return undefined;
  const { id } = params;
  return typeof id === "string" ? id : undefined;
}
