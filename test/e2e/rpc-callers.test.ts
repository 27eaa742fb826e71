/**
 * Authentication of gRPC calls: the questions to the authenticator, the calls that wait for its answer,
 * and streams whose token ends. authorisation.test.ts has the rights of callers.
 */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionSchema, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  Health,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "@session-ledger/proto/grpc/health/v1/health_pb";
import type { Authenticator } from "../../src/auth/authenticator.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import {
  callHeaders,
  FLAG,
  FRAME,
  frame,
  http2Frame,
  RawConnection,
} from "../support/http2-frames.ts";
import { conversation, startRpc } from "../support/rpc-fixture.ts";

const { getSession, pushSessionEvents, watchSessionEvents } = SessionService.method;
const GET = "/ambient.v1.SessionService/GetSession";
const RUNNER: Principal = { ...ANONYMOUS, id: "r1", kind: "static", roles: ["runner"] };

/** Accepts one token, `good`, at once or later; `asked` has the headers that it was given. */
class Gate implements Pick<Authenticator, "asks" | "authenticate" | "refusalOf"> {
  readonly asks = true;
  readonly asked: (readonly string[])[] = [];
  refusal: ServiceError | undefined;
  readonly #isLate: boolean;

  constructor({ isLate }: { readonly isLate: boolean } = { isLate: false }) {
    this.#isLate = isLate;
  }

  authenticate(authorization: readonly string[]): Principal | Promise<Principal> {
    this.asked.push(authorization);
    const answer = (): Principal => {
      if (authorization.join() !== "Bearer good") throw unauthenticated("not accepted");
      return RUNNER;
    };
    return this.#isLate ? new Promise((resolve) => setImmediate(resolve)).then(answer) : answer();
  }

  refusalOf(principal: Principal): ServiceError | undefined {
    return principal === RUNNER ? this.refusal : undefined;
  }
}

function unauthenticated(message: string): ServiceError {
  return new ServiceError("unauthenticated", "UNAUTHENTICATED", message);
}

const good = { metadata: { authorization: "Bearer good" } };

describe.each([false, true])("a caller with a slow authentication: %s", (isLate) => {
  test("is known to the handler, for every kind of call", async () => {
    const seen: Principal[] = [];
    await using rpc = await startRpc(
      {
        getSession: async (_, { principal }) => {
          seen.push(principal);
          return create(SessionSchema);
        },
        async *watchSessionEvents(_, { principal }) {
          seen.push(principal);
          yield create(SessionEventSchema, { seq: 1n });
        },
        pushSessionEvents: (caller) => {
          seen.push(caller.principal);
          caller.end();
          return conversation({});
        },
      },
      {},
      { authenticator: new Gate({ isLate }) },
    );
    await rpc.client.unary(getSession, {}, good);
    for await (const _ of rpc.client.serverStream(watchSessionEvents, {}, good)) continue;
    for await (const _ of rpc.client.bidiStream(pushSessionEvents, good)) continue;
    expect(seen).toEqual([RUNNER, RUNNER, RUNNER]);
  });

  test("without valid authentication reaches no handler and learns nothing", async () => {
    const gate = new Gate({ isLate });
    await using rpc = await startRpc(
      {
        getSession: () => Promise.reject(new Error("the handler must not see it")),
        pushSessionEvents: () => {
          throw new Error("the handler must not see it");
        },
      },
      {},
      { authenticator: gate },
    );
    const refused = { code: "UNAUTHENTICATED", reason: "UNAUTHENTICATED" };
    const bad = { metadata: { authorization: "Bearer bad" } };
    await expect(rpc.client.unary(getSession, {})).rejects.toMatchObject(refused);
    await expect(rpc.client.unary(getSession, {}, bad)).rejects.toMatchObject(refused);
    const { listSessions } = SessionService.method; // No handler here.
    await expect(rpc.client.unary(listSessions, {}, bad)).rejects.toMatchObject(refused);
    const watch = rpc.client.serverStream(watchSessionEvents, {}, bad);
    await expect(watch.next()).rejects.toMatchObject(refused);
    const push = rpc.client.bidiStream(pushSessionEvents, bad);
    await expect(push.next()).rejects.toMatchObject(refused);
    expect(gate.asked).toEqual([[], ...Array.from({ length: 4 }, () => ["Bearer bad"])]);
    // The authenticator's audit says it, as often as is good for the disk.
    const lines = rpc.records.filter(({ msg, level }) => msg === "call" && level !== "debug");
    expect(lines).toEqual([]);
  });
});

describe("two authorization values", () => {
  const cases = [
    ["the same", ["Bearer good", "Bearer good"], ["Bearer good"], "OK"],
    ["differing", ["Bearer good", "Bearer bad"], ["Bearer good", "Bearer bad"], "UNAUTHENTICATED"],
    [
      "the other way",
      ["Bearer bad", "Bearer good"],
      ["Bearer bad", "Bearer good"],
      "UNAUTHENTICATED",
    ],
    ["three", ["Bearer good", "Bearer good", "x"], ["Bearer good", "x"], "UNAUTHENTICATED"],
    ["once", ["Bearer good"], ["Bearer good"], "OK"],
    ["never", [], [], "UNAUTHENTICATED"],
  ] as const;
  test.each(cases)("%s", async (_, sent, asked, code) => {
    const gate = new Gate();
    await using rpc = await startRpc(
      { getSession: async () => create(SessionSchema) },
      {},
      { authenticator: gate },
    );
    using raw = (await RawConnection.to(rpc.server.address)).begin();
    const headers = callHeaders(
      GET,
      sent.map((value) => ["authorization", value]),
    );
    raw.write(
      http2Frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream: 1 }, headers),
      http2Frame({ type: FRAME.data, flags: FLAG.endStream, stream: 1 }, frame(Buffer.alloc(0))),
    );
    expect(await rpc.recorded("call")).toMatchObject({ code });
    expect(gate.asked).toEqual([asked]);
  });
});

test("health and reflection need no authentication", async () => {
  const gate = new Gate();
  await using rpc = await startRpc({}, {}, { authenticator: gate });
  const answer = await rpc.client.unary(Health.method.check, {});
  expect(answer).toMatchObject({ status: ServingStatus.SERVING });
  expect(gate.asked).toEqual([]);
});

test("the streams of an expired token end, and others continue", async () => {
  const over = Promise.withResolvers<ServiceError>();
  const ended = Promise.withResolvers<unknown>();
  const gate = new Gate();
  await using rpc = await startRpc(
    {
      async *watchSessionEvents(_, { signal }) {
        yield create(SessionEventSchema, { seq: 1n });
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        ended.resolve(signal.reason);
      },
      pushSessionEvents: () => conversation({ onClose: over.resolve }),
    },
    { tickMs: 5 },
    { authenticator: gate },
  );
  const watch = rpc.client.serverStream(watchSessionEvents, {}, good);
  await watch.next();
  const push = rpc.client.bidiStream(pushSessionEvents, good);
  await push.attached;
  const health = rpc.client.serverStream(Health.method.watch, {});
  await health.next();
  let healthEnded = false;
  const ends = (): void => {
    healthEnded = true;
  };
  health.next().then(ends, ends);

  gate.refusal = unauthenticated("the bearer token has expired");
  const refused = { code: "UNAUTHENTICATED", message: "the bearer token has expired" };
  await expect(watch.next()).rejects.toMatchObject(refused);
  await expect(push.next()).rejects.toMatchObject(refused);
  expect(await over.promise).toMatchObject({ reason: "UNAUTHENTICATED" });
  expect(await ended.promise).toMatchObject({ reason: "UNAUTHENTICATED" });
  expect(healthEnded).toBe(false);
});
