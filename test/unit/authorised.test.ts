/**
 * The check between callers and handlers runs before the handler, and adds no time of its own. The
 * table of permissions has its own test; here it is a stub with the answers of the test.
 */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  type PushSessionEventsRequest,
  PushSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import {
  PushSessionMessageRequestSchema,
  WatchSessionMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { CreateSessionRequestSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { Audit } from "../../src/auth/authorizer.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { authorisedMethods, type ServedMethods } from "../../src/handlers/authorised.ts";
import type { CallContext, BidiCaller } from "../../src/contract/context.ts";
import { sessionNotFound } from "../../src/store/failure.ts";
import { conversation } from "../support/rpc-fixture.ts";

type Act = Parameters<Audit["denied"]>[0];
type Denial = Parameters<Audit["denied"]>[1];

const SCOPED: Principal = { ...ANONYMOUS, id: "ci", kind: "static", projectId: "alpha" };

type Answer = (sessionId: string | undefined) => void | Promise<void>;

function behindThe(table: Answer, handlers: Partial<ServedMethods>) {
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
  return { methods: authorisedMethods(parts, served as ServedMethods), asked, denied };
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
  const open = (sessionId: string): PushSessionEventsRequest =>
    create(PushSessionEventsRequestSchema, { frame: { case: "open", value: { sessionId } } });
  const flush = create(PushSessionEventsRequestSchema, { frame: { case: "flush", value: {} } });

  function begun(principal: Principal, table: Answer) {
    const events: string[] = [];
    const behind = conversation({
      onMessage: ({ frame }) => {
        events.push(`heard ${frame.case}`);
        return frame.case === "open";
      },
      onClose: ({ reason }) => void events.push(`over ${reason}`),
      onHalfClose: () => void events.push("heard all"),
      record: { sessionId: "", counts: {} },
    });
    const caller: BidiCaller<unknown> = {
      principal,
      send: () => undefined,
      unsentBytes: 0,
      resume: () => void events.push("hear on"),
      end: (error) => void events.push(`end ${error?.reason}`),
    };
    const { methods } = behindThe(table, { pushSessionEvents: () => behind });
    return { events, behind, talk: methods.pushSessionEvents(caller) };
  }

  test("of an unscoped caller has no check in front of it", () => {
    const { talk, behind } = begun(ANONYMOUS, () => undefined);
    expect(talk).toBe(behind);
  });

  test("is refused at once for a caller that may not push", () => {
    const refuse = (): never => {
      throw new ServiceError("permission_denied", "PERMISSION_DENIED", "no");
    };
    expect(() => begun(SCOPED, refuse)).toThrow("no");
  });

  test("to a known session continues at once", () => {
    const { talk, events } = begun(SCOPED, () => undefined);
    expect(talk.onMessage(open("s1"))).toBe(true);
    expect(talk.onMessage(flush)).toBe(false);
    expect(events).toEqual(["heard open", "heard flush"]);
  });

  test("to an unknown session continues after the lookup", async () => {
    const looked = Promise.withResolvers<void>();
    const { talk, events } = begun(SCOPED, (id) => (id === undefined ? undefined : looked.promise));
    expect(talk.onMessage(open("s1"))).toBe(false);
    expect(events).toEqual([]);
    expect(talk.record.sessionId).toBe("s1");
    looked.resolve();
    await looked.promise;
    await Promise.resolve();
    expect(events).toEqual(["heard open", "hear on"]);
    expect(talk.onMessage(flush)).toBe(false);
    expect(events.at(-1)).toBe("heard flush");
  });

  test.each(["at once", "later"])("to a foreign session ends before it opens, %s", async (when) => {
    const { talk, events } = begun(SCOPED, (id) => {
      if (id === undefined) return;
      if (when === "at once") throw sessionNotFound(id);
      return Promise.reject(sessionNotFound(id));
    });
    expect(talk.onMessage(open("foreign"))).toBe(false);
    await new Promise(setImmediate);
    expect(events).toEqual(["over SESSION_NOT_FOUND", "end SESSION_NOT_FOUND"]);
  });

  test("is not opened when its caller leaves during the lookup", async () => {
    const looked = Promise.withResolvers<void>();
    const { talk, events } = begun(SCOPED, (id) => (id === undefined ? undefined : looked.promise));
    talk.onMessage(open("s1"));
    talk.onClose(new ServiceError("cancelled", "CANCELLED", "the caller left"));
    looked.resolve();
    await new Promise(setImmediate);
    expect(events).toEqual(["over CANCELLED"]);
  });

  test("without a session in its first frame is left to the handler", () => {
    const { talk, events } = begun(SCOPED, () => undefined);
    talk.onMessage(flush);
    expect(events).toEqual(["heard flush"]);
  });
});
