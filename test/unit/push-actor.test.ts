/** The actor of a row is the caller of its token; a row has none in a service without tokens. */
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { PushSessionEventRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { actorOf, ANONYMOUS, type Principal, userIdOf } from "../../src/auth/principal.ts";
import { systemClock } from "@session-ledger/base/clock";
import { createPushSessionEvent } from "../../src/handlers/push-session-event.ts";
import { createPushSessionMessage } from "../../src/handlers/push-session-message.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { Push } from "../../src/store/rows.ts";

const RUNNER: Principal = { ...ANONYMOUS, id: "runner-7", kind: "static", roles: ["runner"] };

async function pushesOf(principal: Principal): Promise<readonly Push[]> {
  const pushes: Push[] = [];
  const parts = {
    ingest: {
      push: (push: Push) => {
        pushes.push(push);
        return Promise.reject(new Error("enough"));
      },
    },
    rates: { take: () => undefined },
    clock: systemClock,
    metrics: createMetrics(),
    groups: { close: () => undefined },
  };
  const options = { validation: "strict", payloadBytesMax: 1_000 } as const;
  const pushSessionMessage = createPushSessionMessage(parts, options);
  const pushSessionEvent = createPushSessionEvent(parts, options);
  const context = { principal, signal: new AbortController().signal, hasEnded: false };
  const of = { sessionId: "s1", idempotencyKey: "k" };
  const message = { ...of, eventType: "assistant", payload: "hi" };
  const event = { ...of, eventType: "RAW", payload: '{"type":"RAW","event":1}' };
  await Promise.allSettled([
    pushSessionMessage(create(PushSessionMessageRequestSchema, message), context),
    pushSessionEvent(create(PushSessionEventRequestSchema, event), context),
  ]);
  return pushes;
}

test("a push carries its caller, and its digest does not depend on the caller", async () => {
  const [named, unnamed] = await Promise.all([pushesOf(RUNNER), pushesOf(ANONYMOUS)]);
  expect(named.map(({ actor }) => actor)).toEqual(["static:runner-7", "static:runner-7"]);
  expect(unnamed.map(({ actor }) => actor)).toEqual([undefined, undefined]);
  expect(named.map(({ digest }) => digest)).toEqual(unnamed.map(({ digest }) => digest));
  expect(named[0]?.digest).toBeDefined();
});

// Bug: such a person wrote in the name of the static token.
test("regression: a person whose `sub` is the id of a static token is another actor", () => {
  const of = (kind: Principal["kind"], id: string): Principal => ({ ...ANONYMOUS, kind, id });
  expect(actorOf(of("static", "ops"))).toBe("static:ops");
  expect(actorOf(of("oidc", "ops"))).toBe("oidc:ops");
  expect(actorOf(of("oidc", "static:ops"))).toBe("oidc:static:ops");
  expect(actorOf(of("oidc", "session:s1:runner"))).toBe("oidc:session:s1:runner");
  expect(actorOf(of("session", "session:s1:runner"))).toBe("session:s1:runner");
  expect(actorOf(ANONYMOUS)).toBeUndefined();
});

test("the creator of a session is named by its id alone, as clients know users", () => {
  expect(userIdOf({ ...ANONYMOUS, kind: "oidc", id: "f81d4fae" })).toBe("f81d4fae");
  expect(userIdOf(ANONYMOUS)).toBeUndefined();
});
