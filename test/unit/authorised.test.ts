/**
 * The check between callers and handlers runs before the handler, and adds no time of its own. The
 * table of permissions has its own test; here it is a stub with the answers of the test.
 */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  PushSessionMessageRequestSchema,
  WatchSessionMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { CreateSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Audit } from "../../src/auth/authorizer.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { authorisedMethods, type UncheckedMethods } from "../../src/handlers/authorised.ts";
import type { AllowSession } from "../../src/handlers/push-stream/push-streams.ts";
import type { CallContext, BidiCaller } from "../../src/contract/context.ts";
import { sessionNotFound } from "../../src/store/failure.ts";
import { conversation } from "../support/rpc-fixture.ts";

type Act = Parameters<Audit["denied"]>[0];
type Denial = Parameters<Audit["denied"]>[1];

const SCOPED: Principal = { ...ANONYMOUS, id: "ci", kind: "static", projectId: "alpha" };

type Answer = (sessionId: string | undefined) => void | Promise<void>;

function behindThe(table: Answer, handlers: Partial<UncheckedMethods>) {
  const asked: (string | undefined)[] = [];
  const denied: (Act & { reason: Denial })[] = [];
  const notAsked = (): never => {
    throw new Error("nobody should ask for this");
  };
  const served = new Proxy(handlers, {
    get: (given, name, receiver) => Reflect.get(given, name, receiver) ?? notAsked,
  });
  const parts = {
    authorizer: {
      authorize: (_principal: Principal, action: string, sessionId: string | undefined) => {
        asked.push(`${action} ${sessionId ?? "-"}`);
        return table(sessionId);
      },
    },
    audit: {
      denied: (act: Act, reason: Denial) => void denied.push({ ...act, reason }),
      unauthenticated: notAsked,
      done: () => undefined,
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- The proxy has the others.
  return { methods: authorisedMethods(parts, served as UncheckedMethods), asked, denied };
}

function contextOf(principal: Principal): CallContext {
  return { principal, signal: new AbortController().signal, hasEnded: false };
}

const pushing = (sessionId: string, eventType = "assistant") =>
  create(PushSessionMessageRequestSchema, { sessionId, eventType, payload: "hi" });

describe("a call", () => {
  test("reaches its handler in the same turn when it is allowed at once", () => {
    let reached = false;
    const { methods } = behindThe(() => undefined, {
      pushSessionMessage: () => {
        reached = true;
        return new Promise(() => undefined);
      },
    });
    void methods.pushSessionMessage(pushing("s1"), contextOf(ANONYMOUS));
    expect(reached).toBe(true);
  });

  test("reaches its handler after the lookup, and never when it is refused", async () => {
    const reached: string[] = [];
    const { promise: known, resolve } = Promise.withResolvers<void>();
    const { methods } = behindThe(
      async (sessionId) => {
        await known;
        if (sessionId === "foreign") throw sessionNotFound(sessionId);
      },
      {
        pushSessionMessage: async ({ sessionId }) => {
          reached.push(sessionId);
          throw new ServiceError("aborted", "CANCELLED", "enough");
        },
      },
    );
    const own = methods.pushSessionMessage(pushing("own"), contextOf(SCOPED));
    const foreign = methods.pushSessionMessage(pushing("foreign"), contextOf(SCOPED));
    expect(reached).toEqual([]);
    resolve();
    await expect(own).rejects.toMatchObject({ code: "aborted" });
    await expect(foreign).rejects.toMatchObject({ reason: "SESSION_NOT_FOUND" });
    expect(reached).toEqual(["own"]);
  });

  test("has another action for a user's message than for an agent's", async () => {
    const refuse = (): never => {
      throw sessionNotFound("s1");
    };
    const { methods, asked } = behindThe(refuse, {});
    for (const type of ["user", "assistant", "", "shout"]) {
      expect(() => methods.pushSessionMessage(pushing("s1", type), contextOf(SCOPED))).toThrow(
        "does not exist",
      );
    }
    const other = "message.push.other s1";
    expect(asked).toEqual(["message.push.user s1", other, other, other]);
  });

  test("that streams begins only after it is allowed", async () => {
    let begun = 0;
    const allowed = Promise.withResolvers<void>();
    const { methods } = behindThe(() => allowed.promise, {
      async *watchSessionMessages() {
        begun += 1;
        yield* [];
      },
    });
    const request = create(WatchSessionMessagesRequestSchema, { sessionId: "s1" });
    const rows = methods.watchSessionMessages(request, contextOf(SCOPED));
    const first = rows[Symbol.asyncIterator]().next();
    expect(begun).toBe(0);
    allowed.resolve();
    expect(await first).toEqual({ done: true, value: undefined });
    expect(begun).toBe(1);
  });
});

describe("a created session", () => {
  test("may not name another project, and the attempt is audited", () => {
    const { methods, denied } = behindThe(() => undefined, {});
    const request = create(CreateSessionRequestSchema, { name: "n", projectId: "beta" });
    expect(() => methods.createSession(request, contextOf(SCOPED))).toThrow(
      expect.objectContaining({
        code: "permission_denied",
        violations: [expect.objectContaining({ field: "project_id" })],
      }),
    );
    expect(denied).toMatchObject([{ action: "session.create", reason: "scope" }]);
  });
});

describe("a push stream", () => {
  function begun(principal: Principal, table: Answer) {
    const caller: BidiCaller<unknown> = {
      principal,
      send: () => undefined,
      unsentBytes: 0,
      resume: () => undefined,
      end: () => undefined,
    };
    const allowed: AllowSession[] = [];
    const { methods, asked } = behindThe(table, {
      pushSessionEvents: (_, allow) => {
        allowed.push(allow);
        return conversation({});
      },
    });
    methods.pushSessionEvents(caller);
    return { allow: (sessionId: string) => allowed[0]?.(sessionId), asked };
  }

  test("is refused at once for a caller that may not push", () => {
    const refuse = (): never => {
      throw new ServiceError("permission_denied", "PERMISSION_DENIED", "no");
    };
    expect(() => begun(SCOPED, refuse)).toThrow("no");
  });

  test("gives its handler the check of a session, and asks first without one", async () => {
    const { allow, asked } = begun(SCOPED, (sessionId) => {
      if (sessionId === "foreign") throw sessionNotFound(sessionId);
      return sessionId === "unknown" ? Promise.reject(sessionNotFound(sessionId)) : undefined;
    });
    expect(allow("own")).toBeUndefined();
    expect(() => allow("foreign")).toThrow("does not exist");
    await expect(allow("unknown")).rejects.toThrow("does not exist");
    const action = "event.push";
    expect(asked).toEqual(["-", "own", "foreign", "unknown"].map((id) => `${action} ${id}`));
  });
});
