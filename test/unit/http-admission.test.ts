/**
 * A request is checked for its caller first, then for the permission, and then for all the rest.
 */
import { request as httpRequest } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { createAdmission } from "../../src/http/plumbing/admission.ts";
import { FastifyServer, type HttpParts } from "../../src/http/server.ts";
import { HTTP_OPTIONS, httpParts } from "../support/http-fixture.ts";

const SESSIONS = "/api/ambient/v1/sessions";
const CI: Principal = { ...ANONYMOUS, id: "ci", kind: "static" };

const ended: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
});

async function serving(parts: Parameters<typeof httpParts>[0]) {
  const server = new FastifyServer(httpParts(parts), HTTP_OPTIONS);
  await server.start();
  ended.push(() => server.stop());
  return (path: string, init?: RequestInit) => fetch(`http://${server.address}${path}`, init);
}

function asking(
  authenticate: HttpParts["authenticator"]["authenticate"],
): Pick<HttpParts, "authenticator"> {
  return { authenticator: { asks: true, authenticate, refusalOf: () => undefined } };
}

const unknown = (): never => {
  throw new ServiceError("unauthenticated", "UNAUTHENTICATED", "who?");
};
const forbidden = (): never => {
  throw new ServiceError("permission_denied", "PERMISSION_DENIED", "no");
};

describe("a request", () => {
  test("without a valid token is 401, also when other things are wrong with it", async () => {
    const ask = await serving(asking(unknown));
    for (const path of [SESSIONS, `${SESSIONS}?nonsense=1`, `${SESSIONS}/a%20b`, "/openapi.json"]) {
      const answer = await ask(path);
      expect(answer.status, `of ${path}`).toBe(401);
      expect(answer.headers.get("www-authenticate")).toBe("Bearer");
    }
    const wrong = { method: "POST", body: "{", headers: { "content-type": "text/plain" } };
    expect((await ask(`${SESSIONS}/s1/messages`, wrong)).status).toBe(401);
  });

  test("is 503 and not 401 when its token cannot be checked now", async () => {
    const reason = "DATABASE_UNAVAILABLE";
    const later = new ServiceError("unavailable", reason, "ask again", { retryAfterMs: 1_000 });
    const ask = await serving(asking(() => Promise.reject(later)));
    const answer = await ask(SESSIONS);
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("1");
  });

  test("is 403 without the permission, also when other things are wrong with it", async () => {
    const ask = await serving({ ...asking(() => CI), authorizer: { authorize: forbidden } });
    for (const path of [SESSIONS, `${SESSIONS}?nonsense=1`, `${SESSIONS}/a%20b`, "/openapi.json"]) {
      expect((await ask(path)).status, `of ${path}`).toBe(403);
    }
    expect((await ask(`${SESSIONS}/s1`, { method: "HEAD" })).status).toBe(403);
  });

  test("to push a message is checked against the roles alone before its type is known", async () => {
    const asked: unknown[] = [];
    const ask = await serving({
      ...asking(() => ({ ...CI, roles: ["editor"] })),
      authorizer: {
        authorize: (_principal, action, sessionId) => {
          asked.push([action, sessionId]);
          forbidden();
        },
      },
    });
    await ask(`${SESSIONS}/s1/messages`, { method: "POST", body: "{}" });
    expect(asked).toEqual([["message.push.user", undefined]]);
  });

  test("to push a message is refused before its body is read when the caller may push none", async () => {
    const ask = await serving({ ...asking(() => CI), authorizer: { authorize: forbidden } });
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: "{ not even JSON" };
    expect((await ask(`${SESSIONS}/s1/messages`, init)).status).toBe(403);
    expect((await ask("/copilotkit/agent/a/run", { ...init, body: "{}" })).status).toBe(403);
  });

  test("is checked with all its authorization headers, not only the first", async () => {
    const given: (readonly string[])[] = [];
    const server = new FastifyServer(
      httpParts(
        asking((values) => {
          given.push(values);
          return unknown();
        }),
      ),
      HTTP_OPTIONS,
    );
    await server.start();
    ended.push(() => server.stop());
    const [host = "", port] = server.address.split(":");
    const tokens = ["Authorization", "Bearer a", "AUTHORIZATION", "Bearer b"];
    const headers = ["host", server.address, "x-authorization", "no", ...tokens];
    const status = await new Promise((resolve) => {
      httpRequest({ host, port, path: SESSIONS, headers }, ({ statusCode }) =>
        resolve(statusCode),
      ).end();
    });
    expect(status).toBe(401);
    expect(given).toEqual([["Bearer a", "Bearer b"]]);
  });
});

test("a route that is missing in the table is not served", () => {
  const admission = createAdmission(httpParts());
  expect(() => admission.expect("GET", `${SESSIONS}/:id`)).not.toThrow();
  expect(() => admission.expect("HEAD", `${SESSIONS}/:id`)).not.toThrow();
  expect(() => admission.expect("PUT", `${SESSIONS}/:id`)).toThrow("the table does not say");
});
