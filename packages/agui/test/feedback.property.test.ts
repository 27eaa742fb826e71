/**
 * In any order of feedback, other events and snapshots, a message shows the last feedback of each person
 * on it, the one that changed last at the end. The model is a list that is searched from its end.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { properties } from "../../../test/support/random.ts";

const MESSAGES = ["m1", "m2", "m3"];

interface Given {
  readonly messageId: string;
  readonly by: string;
  readonly kind: string;
  readonly comment: string;
}

const given: fc.Arbitrary<Given> = fc.record({
  messageId: fc.constantFrom(...MESSAGES, "missing", "__proto__"),
  by: fc.constantFrom("static:ann", "static:bob", "anonymous", "__proto__"),
  kind: fc.constantFrom("thumbs_up", "thumbs_down", "note"),
  comment: fc.constantFrom("", "good", "bad"),
});

/** As src/handlers/feedback.ts stores it. */
function stored({ messageId, by, kind, comment }: Given): JsonObject {
  return {
    type: "META",
    metaType: kind,
    payload: { messageId, ...(comment !== "" && { comment }) },
    metadata: { session: { feedback: { by, at: "2026-01-01T00:00:00.000Z" } } },
  };
}

const snapshot = (ids: readonly string[]): JsonObject => ({
  type: "MESSAGES_SNAPSHOT",
  messages: ids.map((id) => ({ id, role: "assistant", content: "new" })),
});

const event: fc.Arbitrary<Given | JsonObject> = fc.oneof(
  { weight: 4, arbitrary: given },
  fc.subarray(MESSAGES).map(snapshot),
  fc.constantFrom(...MESSAGES).map((messageId) => ({
    type: "TEXT_MESSAGE_START",
    messageId,
    role: "assistant",
    metadata: { usage: 1, session: { createdAt: "then" } },
  })),
  fc.constantFrom<JsonObject>(
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
    { type: "META", metaType: "thumbs_down", payload: { messageId: "m1", userId: "ann" } },
  ),
);

function isGiven(one: Given | JsonObject): one is Given {
  return "by" in one;
}

function shown(events: readonly (Given | JsonObject)[]): readonly JsonObject[] {
  const canonical = new Canonical("s");
  const transcript = new Transcript();
  for (const [at, one] of events.entries()) {
    const value: JsonObject = isGiven(one) ? stored(one) : one;
    const eventType = String(value["type"]);
    const payload = JSON.stringify(value);
    const conformant = eventType !== "META";
    const logged = { seq: BigInt(at + 1), eventType, payload, conformant };
    for (const { value: told } of canonical.next(logged)) transcript.apply(told);
  }
  return transcript.messages();
}

function feedbackOn({ metadata }: JsonObject): readonly unknown[] {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const feedback = isObject(session) ? session["feedback"] : undefined;
  return Array.isArray(feedback) ? feedback : [];
}

function expected(all: readonly Given[], id: unknown): readonly unknown[] {
  const on = all.filter(({ messageId }) => messageId === id);
  const last = on.filter(({ by }, at) => on.findLastIndex((one) => one.by === by) === at);
  return last.map(({ by, kind, comment }) => ({
    by,
    kind,
    ...(comment !== "" && { comment }),
    at: "2026-01-01T00:00:00.000Z",
  }));
}

describe("feedback", () => {
  test("on a message is the last of each person, whatever comes between", () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        const all = events.filter(isGiven);
        for (const message of shown(events))
          expect(feedbackOn(message)).toEqual(expected(all, message["id"]));
      }),
      properties({ runs: 2_000 }),
    );
  });

  test("changes nothing else of a transcript", () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        const others = events.filter((one) => !isGiven(one));
        const without = shown(events).map(withoutFeedback);
        expect(without).toEqual(shown(others).map(withoutFeedback));
      }),
      properties({ runs: 500 }),
    );
  });
});

/** Without the metadata that only the feedback needs, too. */
function withoutFeedback({ metadata, ...message }: JsonObject): JsonObject {
  if (!isObject(metadata)) return message;
  const { session, ...others } = metadata;
  const { feedback: _, ...rest } = isObject(session) ? session : {};
  const left = { ...others, ...(Object.keys(rest).length > 0 && { session: rest }) };
  return Object.keys(left).length > 0 ? { ...message, metadata: left } : message;
}
