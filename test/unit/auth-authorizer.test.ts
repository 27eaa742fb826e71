import { describe, expect, test } from "vitest";
import { type Action, RULES } from "../../src/auth/actions.ts";
import { type Audit, type Authorizer, RoleAndScope } from "../../src/auth/authorizer.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { sessionNotFound } from "../../src/store/failure.ts";

const ACTIONS = Object.entries(RULES).flatMap(([action]) => (isAction(action) ? [action] : []));

function isAction(action: string): action is Action {
  return Object.hasOwn(RULES, action);
}

function principal(given: Partial<Principal>): Principal {
  return { ...ANONYMOUS, id: "ada", kind: "static", ...given };
}

interface Fixture {
  readonly authorizer: Authorizer;
  /** Sessions whose owner was looked up. */
  readonly asked: string[];
  readonly denied: (Parameters<Audit["done"]>[0] & { readonly reason: string })[];
  /** The result of a question: OK, or the reason of the refusal. */
  readonly ask: (who: Principal, action: Action, sessionId?: string) => Promise<string>;
}

const OWNERS: Readonly<Record<string, string | undefined>> = {
  mine: "p1",
  alsoMine: "p1",
  theirs: "p2",
  nobodys: undefined,
};

function fixture(limits?: { readonly ownersMax: number }): Fixture {
  const asked: string[] = [];
  const denied: (Parameters<Audit["done"]>[0] & { readonly reason: string })[] = [];
  const audit: Audit = {
    denied: (act, reason) => denied.push({ ...act, reason }),
    unauthenticated: () => undefined,
    done: () => undefined,
  };
  const owners = {
    async ownerOf(sessionId: string) {
      asked.push(sessionId);
      return Object.hasOwn(OWNERS, sessionId) ? { projectId: OWNERS[sessionId] } : undefined;
    },
  };
  const authorizer = new RoleAndScope({ owners, audit, notFound: sessionNotFound }, limits);
  return {
    authorizer,
    asked,
    denied,
    async ask(who, action, sessionId) {
      try {
        await authorizer.authorize(who, action, sessionId);
        return "OK";
      } catch (error) {
        return ServiceError.from(error).reason;
      }
    },
  };
}

describe("roles", () => {
  test("roles add up, and a caller without a role may do nothing", async () => {
    const { ask } = fixture();
    const both = principal({ roles: ["viewer", "runner"] });
    expect(await ask(both, "event.push", "mine")).toBe("OK");
    expect(await ask(both, "session.delete", "mine")).toBe("PERMISSION_DENIED");
    for (const action of ACTIONS) {
      expect(await ask(principal({ roles: [] }), action, "mine")).toBe("PERMISSION_DENIED");
    }
  });

  test("the refusal of a role is the same for own, foreign and unknown sessions", async () => {
    const { authorizer, asked } = fixture();
    const viewer = principal({ roles: ["viewer"], projectId: "p1" });
    const messages = ["mine", "theirs", "unknown"].map((sessionId) => {
      try {
        void authorizer.authorize(viewer, "session.delete", sessionId);
      } catch (error) {
        return String(error);
      }
      return "none";
    });
    expect(new Set(messages).size).toBe(1);
    expect(messages[0]).toContain("session.delete");
    expect(asked).toEqual([]);
  });
});

describe("the scope of a project", () => {
  const admin = principal({ projectId: "p1" });

  test("a foreign session is looked up even if its owner is cached, so that time reveals nothing", async () => {
    const { ask, asked } = fixture();
    await ask(principal({ projectId: "p2" }), "session.read", "theirs");
    await ask(principal({ projectId: "p2" }), "session.read", "theirs");
    expect(asked).toEqual(["theirs"]);
    await ask(admin, "session.read", "theirs");
    await ask(admin, "session.read", "theirs");
    await ask(admin, "session.read", "unknown");
    expect(asked).toEqual(["theirs", "theirs", "theirs", "unknown"]);
  });

  test("a cached owner is used at once, and the least recently used one is dropped first", async () => {
    const { authorizer, ask, asked } = fixture({ ownersMax: 2 });
    const other = principal({ projectId: "p2" });
    await ask(admin, "session.read", "mine");
    await ask(admin, "session.read", "alsoMine");
    expect(authorizer.authorize(admin, "session.read", "mine")).toBeUndefined();
    await ask(other, "session.read", "theirs");
    expect(authorizer.authorize(admin, "session.read", "mine")).toBeUndefined();
    expect(authorizer.authorize(admin, "session.read", "alsoMine")).toBeInstanceOf(Promise);
    expect(asked).toEqual(["mine", "alsoMine", "theirs", "alsoMine"]);
  });

  test("creating and listing sessions needs no lookup", async () => {
    const { ask, asked } = fixture();
    expect(await ask(admin, "session.create")).toBe("OK");
    expect(await ask(admin, "session.list")).toBe("OK");
    expect(asked).toEqual([]);
  });
});

describe("the scope of a session", () => {
  const runner = principal({ kind: "session", roles: ["runner", "editor"], sessionId: "mine" });

  test("allows that session and no other, without a lookup", async () => {
    const { authorizer, ask, asked } = fixture();
    expect(authorizer.authorize(runner, "event.push", "mine")).toBeUndefined();
    for (const sessionId of ["alsoMine", "unknown"]) {
      expect(await ask(runner, "event.push", sessionId)).toBe("SESSION_NOT_FOUND");
    }
    expect(asked).toEqual([]);
  });

  test("does not allow creating sessions", async () => {
    const { ask, denied } = fixture();
    expect(await ask(runner, "session.create")).toBe("PERMISSION_DENIED");
    expect(denied).toMatchObject([{ action: "session.create", reason: "scope" }]);
  });

  test("requires the project to match as well when both are given", async () => {
    const { ask } = fixture();
    const both = principal({ sessionId: "theirs", projectId: "p1" });
    expect(await ask(both, "session.read", "theirs")).toBe("SESSION_NOT_FOUND");
  });
});

test("a caller without a scope needs no lookup and no wait", () => {
  const { authorizer, asked } = fixture();
  expect(authorizer.authorize(ANONYMOUS, "session.erase", "unknown")).toBeUndefined();
  expect(asked).toEqual([]);
});

test("an id that no session can have is checked against the roles, and left to the handler", async () => {
  const { authorizer, ask, asked } = fixture();
  for (const scope of [{ projectId: "p1" }, { sessionId: "mine" }]) {
    for (const id of ["", "..", "a b", "x".repeat(129)]) {
      const runner = principal({ roles: ["runner"], ...scope });
      expect(authorizer.authorize(runner, "event.push", id)).toBeUndefined();
      expect(await ask(runner, "session.delete", id)).toBe("PERMISSION_DENIED");
    }
  }
  expect(asked).toEqual([]);
});

test("every denial is audited with its actor, action, session and reason", async () => {
  const { ask, denied } = fixture();
  const viewer = principal({ roles: ["viewer"], projectId: "p1" });
  await ask(viewer, "event.push", "mine");
  await ask(viewer, "session.read", "theirs");
  expect(denied).toEqual([
    { principal: viewer, action: "event.push", sessionId: "mine", reason: "role" },
    { principal: viewer, action: "session.read", sessionId: "theirs", reason: "scope" },
  ]);
});

test("a call is refused when the owner cannot be looked up", async () => {
  const failure = new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "down");
  const audit: Audit = {
    denied: () => undefined,
    unauthenticated: () => undefined,
    done: () => undefined,
  };
  const owners = { ownerOf: () => Promise.reject(failure) };
  const authorizer = new RoleAndScope({ owners, audit, notFound: sessionNotFound });
  const asked = authorizer.authorize(principal({ projectId: "p1" }), "session.read", "mine");
  await expect(asked).rejects.toBe(failure);
});
