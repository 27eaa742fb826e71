/** The table has exactly the served methods and routes. */
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import {
  type Action,
  ALLOWED,
  METHOD_ACTIONS,
  pushActionOf,
  REACH,
  ROUTE_ACTIONS,
} from "../../src/auth/actions.ts";
import { ANONYMOUS, ROLES } from "../../src/auth/principal.ts";
import { createApp } from "../../src/http/plumbing/app.ts";
import { OpenRequests } from "../../src/http/plumbing/open-requests.ts";
import { RequestRecords } from "../../src/http/plumbing/request-records.ts";
import { serveRoutes } from "../../src/http/server.ts";
import { HTTP_OPTIONS, httpParts } from "../support/http-fixture.ts";

const ACTIONS = Object.keys(ALLOWED);

test("every RPC of the contract has an action, and no other method has one", () => {
  const methods = SessionService.methods.map(({ name }) => name);
  expect(Object.keys(METHOD_ACTIONS).toSorted()).toEqual(methods.toSorted());
});

test("every served route has an action, and no other route has one", async () => {
  const seen = new Set<string>();
  const parts = httpParts();
  const app = createApp(
    {
      openRequests: new OpenRequests(),
      records: new RequestRecords(parts, HTTP_OPTIONS),
      admission: {
        expect: (method, url) => seen.add(`${method === "HEAD" ? "GET" : method} ${url}`),
        admit: () => ANONYMOUS,
      },
      isOnLoopback: true,
      serverFactory: (handle) => createServer(handle),
    },
    HTTP_OPTIONS,
  );
  serveRoutes(app, parts, HTTP_OPTIONS);
  await app.ready();
  await app.close();
  expect(seen.size).toBeGreaterThan(10);
  expect([...seen].toSorted()).toEqual(Object.keys(ROUTE_ACTIONS).toSorted());
});

describe("roles", () => {
  test("every action belongs to a method or a route, and has a reach", () => {
    const served = new Set([...Object.values(METHOD_ACTIONS), ...Object.values(ROUTE_ACTIONS)]);
    const byType = MESSAGE_TYPES.map(pushActionOf);
    const used = new Set<string>([...served, ...byType]);
    used.delete("unserved");
    used.delete("public");
    used.delete("by message type");
    expect([...used].toSorted()).toEqual(ACTIONS.toSorted());
    expect(Object.keys(REACH).toSorted()).toEqual(ACTIONS.toSorted());
  });

  test("an admin may do everything, and only an admin deletes, erases, holds and issues tokens", () => {
    for (const roles of Object.values(ALLOWED)) expect(roles).toContain("admin");
    const alone = ACTIONS.filter((action) => ALLOWED[known(action)].length === 1);
    expect(alone.toSorted()).toEqual([
      "session.delete",
      "session.erase",
      "session.hold",
      "token.issue",
    ]);
  });

  // A list has the failures of sessions, whose texts are of their events.
  test("every role that lists sessions may read them", () => {
    const lists = ALLOWED["session.list"].filter((role) => !ALLOWED["session.read"].includes(role));
    expect(lists).toEqual([]);
  });

  test("no role but admin may push messages of the user and of the agent", () => {
    expect(MESSAGE_TYPES.filter((type) => pushActionOf(type) === "message.push.user")).toEqual([
      "user",
    ]);
    // Neither another spelling nor no type at all is a user's.
    for (const type of ["User", "user ", ""]) expect(pushActionOf(type)).toBe("message.push.other");
    for (const role of ROLES.filter((one) => one !== "admin")) {
      const mine = ["message.push.user", "message.push.other"].filter((action) =>
        ALLOWED[known(action)].includes(role),
      );
      expect([role, mine]).not.toEqual([role, ["message.push.user", "message.push.other"]]);
    }
  });

  test("reading the envelope of CopilotKit needs the same role as reading a session", () => {
    expect(ALLOWED["contract.read"]).toEqual(ALLOWED["session.read"]);
  });

  test("docs/security.md shows the table of roles", () => {
    const text = readFileSync("docs/security.md", "utf8");
    const rows = ACTIONS.map((action) => {
      const marks = ROLES.map((role) => (ALLOWED[known(action)].includes(role) ? "yes" : ""));
      return `| \`${action}\` | ${marks.join(" | ")} |`
        .replaceAll("|  |", "| |")
        .replaceAll("|  |", "| |");
    });
    expect(text).toContain([`| action | ${ROLES.join(" | ")} |`].join("\n"));
    for (const row of rows) expect(text).toContain(row);
  });
});

function known(action: string): Action {
  const found = Object.keys(ALLOWED).find((one): one is Action => one === action);
  if (found === undefined) throw new Error(action);
  return found;
}
