/** The roles of the table; test/e2e/authorisation.test.ts holds that it has the served methods and routes. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import {
  type Action,
  METHOD_ACTIONS,
  pushActionOf,
  ROUTE_ACTIONS,
  RULES,
} from "../../src/auth/actions.ts";
import { ROLES } from "../../src/auth/principal.ts";

const ACTIONS = Object.keys(RULES);

describe("roles", () => {
  test("every action belongs to a method or a route, and has a reach", () => {
    const served = new Set([...Object.values(METHOD_ACTIONS), ...Object.values(ROUTE_ACTIONS)]);
    const byType = MESSAGE_TYPES.map(pushActionOf);
    const used = new Set<string>([...served, ...byType]);
    used.delete("public");
    used.delete("by message type");
    expect([...used].toSorted()).toEqual(ACTIONS.toSorted());
  });

  test("an admin may do everything, and only an admin deletes, erases, holds and issues tokens", () => {
    for (const { roles } of Object.values(RULES)) expect(roles).toContain("admin");
    const alone = ACTIONS.filter((action) => RULES[known(action)].roles.length === 1);
    expect(alone.toSorted()).toEqual([
      "session.delete",
      "session.erase",
      "session.hold",
      "token.issue",
    ]);
  });

  // A list has the failures of sessions, whose texts are of their events.
  test("every role that lists sessions may read them", () => {
    const lists = RULES["session.list"].roles.filter(
      (role) => !RULES["session.read"].roles.includes(role),
    );
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
        RULES[known(action)].roles.includes(role),
      );
      expect([role, mine]).not.toEqual([role, ["message.push.user", "message.push.other"]]);
    }
  });

  test("reading the envelope of CopilotKit needs the same role as reading a session", () => {
    expect(RULES["contract.read"].roles).toEqual(RULES["session.read"].roles);
  });

  test("docs/security.md shows the table of roles", () => {
    const text = readFileSync("docs/security.md", "utf8");
    const rows = ACTIONS.map((action) => {
      const marks = ROLES.map((role) => (RULES[known(action)].roles.includes(role) ? "yes" : ""));
      return `| \`${action}\` | ${marks.join(" | ")} |`
        .replaceAll("|  |", "| |")
        .replaceAll("|  |", "| |");
    });
    expect(text).toContain([`| action | ${ROLES.join(" | ")} |`].join("\n"));
    for (const row of rows) expect(text).toContain(row);
  });
});

function known(action: string): Action {
  const found = Object.keys(RULES).find((one): one is Action => one === action);
  if (found === undefined) throw new Error(action);
  return found;
}
