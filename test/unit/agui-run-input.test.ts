/** What of an AG-UI client's input is new to a session, and which row it becomes. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { JsonObject } from "@session-ledger/agui/json";
import { Fold } from "../../src/conversation/fold.ts";
import { clientMessagesIn } from "../../src/conversation/client-messages.ts";
import { newRowIn, runInputIn, waitingRowIn } from "../../src/conversation/run-input.ts";
import { assistant, finished, started, user } from "../support/agui-events.ts";

const TIMES = { recordedMicros: 1, createdMicros: 1, eventCount: 1 } as const;

type Row = JsonObject | string;

/** A session with these events and payloads of people, in this order. */
function sessionOf(...rows: readonly Row[]) {
  const fold = new Fold("s");
  const seqs = { events: 0n, messages: 0n };
  for (const row of rows) {
    if (typeof row === "string") {
      const seq = (seqs.messages += 1n);
      const said = { sender: undefined, createdAtMicros: 1n, sentAtMicros: undefined };
      const own = { id: `row-${seq}`, eventType: "user", idempotencyKey: undefined, ...said };
      fold.take({ stream: "messages", seq, payload: row, ...own, ...TIMES });
    } else {
      const seq = (seqs.events += 1n);
      const event = { eventType: String(row["type"]), payload: JSON.stringify(row) };
      fold.take({ stream: "events", seq, conformant: true, newestMicros: 1n, ...event, ...TIMES });
    }
  }
  return fold.snapshot();
}

const result = (id: string, toolCallId: string) => ({ id, role: "tool", toolCallId, content: id });
const typed = (...messages: readonly object[]): string => JSON.stringify({ messages });
const call = (toolCallId: string, parentMessageId: string) => ({
  type: "TOOL_CALL_START",
  toolCallId,
  toolCallName: "pick",
  parentMessageId,
});
const text = (messageId: string) => ({ type: "TEXT_MESSAGE_CHUNK", messageId, delta: messageId });
const claimed = (first: number, last: number) => ({
  metadata: { session: { consumed: { first, last } } },
});
const asks = (id: string) => ({
  outcome: { type: "interrupt", interrupts: [{ id, reason: "ask" }] },
});

/** The ids of the new messages and answers, and the key. */
function newOf(input: JsonObject, known: ReturnType<typeof sessionOf> | undefined) {
  const parts = runInputIn(input, "");
  const row =
    parts &&
    newRowIn(
      parts,
      {
        sessionId: "s",
        listed: clientMessagesIn(z.array(z.unknown()).default([]).parse(input["messages"]), {
          field: "messages",
        }),
      },
      known,
    );
  if (row === undefined) return undefined;
  const { messages, resume = [], ...rest } = JSON.parse(row.payload);
  const ids = messages.map(({ id }: { readonly id: string }) => id);
  const answers = resume.map(({ interruptId }: { readonly interruptId: string }) => interruptId);
  return { ids, answers, rest, key: row.idempotencyKey };
}

describe("new messages", () => {
  const known = sessionOf(typed(user("u1")), started("r1"), text("a1"), finished("r1"));
  const all = [user("u1"), assistant("a1")];

  test.each([
    ["nothing", [], undefined],
    ["the answer at the end", all, undefined],
    ["a known question at the end", [user("u1")], undefined],
    ["one question", [...all, user("u2")], ["u2"]],
    [
      "two questions, of which the first was never sent",
      [...all, user("u2"), user("u3")],
      ["u2", "u3"],
    ],
    ["a question that the log has lost, before a known one", [user("old"), user("u1")], undefined],
    ["a history that the log has lost", [user("old"), assistant("old-a"), ...all], undefined],
    ["only a history of another place", [user("x"), assistant("y"), user("z")], ["z"]],
    ["a greeting of the page", [...all, assistant("greeting"), user("u2")], ["u2"]],
    ["things that are no messages", [1, null, "x"], undefined],
  ])("of %s", (_name, messages, ids) => {
    expect(newOf({ messages }, known)?.ids).toEqual(ids);
  });

  test("come with the ids of the client's request, which a stop names later", () => {
    const ids = { runId: "c1", parentRunId: "c0" };
    const restOf = (more: object) => newOf({ ...more, messages: [user("u1")] }, undefined)?.rest;
    expect(restOf({ ...ids, threadId: "other" })).toEqual({ threadId: "s", ...ids });
    expect(restOf({ runId: "", parentRunId: null })).toEqual({ threadId: "s" });
  });

  test("are those at the end of the input where the session does not exist", () => {
    const messages = [user("u1"), assistant("a1"), result("t1", "c1"), user("u2")];
    expect(newOf({ messages }, undefined)).toMatchObject({ ids: ["t1", "u2"] });
  });

  test("are results of calls without a result, at the end or behind the call", () => {
    const rows = [typed(user("u1")), started("r1"), call("c1", "a1"), call("c2", "a1"), text("a2")];
    const session = sessionOf(...rows, finished("r1"));
    const of = (...messages: readonly object[]) => newOf({ messages }, session)?.ids;
    expect(of(user("u1"), assistant("a1"), result("t1", "c1"), assistant("a2"))).toEqual(["t1"]);
    expect(of(user("u1"), assistant("a1"), assistant("a2"), result("t1", "c1"))).toEqual(["t1"]);
    expect(of(user("u1"), result("t9", "c9"), assistant("a2"))).toBeUndefined();
    const answered = sessionOf(...rows, finished("r1"), typed(result("t1", "c1")));
    const again = [user("u1"), assistant("a1"), result("other", "c1"), result("t2", "c2")];
    expect(newOf({ messages: again }, answered)?.ids).toEqual(["t2"]);
  });
});

describe("answers to interrupts", () => {
  const asking = [typed(user("u1")), started("r1"), finished("r1", asks("i1"))] as const;
  const resume = [{ interruptId: "i1", status: "resolved" }];
  const answer = JSON.stringify({ messages: [], resume });

  test("are new while the session waits for them, and no row has answered", () => {
    const known = sessionOf(...asking);
    const row = newOf({ resume }, known);
    expect(row).toMatchObject({ ids: [], answers: ["i1"] });
    expect(newOf({ resume }, known)?.key).toBe(row?.key);
    expect(newOf({ resume: [{ interruptId: "i2", status: "resolved" }] }, known)).toBeUndefined();
    expect(newOf({ resume }, sessionOf(...asking, answer))).toBeUndefined();
    const later = sessionOf(...asking, answer, started("r2"), finished("r2", asks("i1")));
    expect(newOf({ resume }, later)?.key).not.toBe(row?.key); // The agent asks again.
  });

  test("end the interrupt when a run takes them, and not before", () => {
    const ids = (...rows: readonly Row[]) =>
      sessionOf(...asking, ...rows).interrupts.map(({ id }) => id);
    expect(ids(answer)).toEqual(["i1"]);
    expect(ids(answer, started("r2"))).toEqual([]);
    expect(ids(answer, started("r2", claimed(2, 2)))).toEqual([]);
    expect(ids("other", answer, started("r2", claimed(2, 2)))).toEqual(["i1"]);
  });
});

describe("the row that a client waits for", () => {
  const waits = (input: JsonObject, ...rows: readonly Row[]) => {
    const parts = runInputIn(input, "");
    return parts && waitingRowIn(parts, sessionOf(...rows));
  };
  const [one, two] = [typed(user("u1")), typed(user("u2"))];
  const input = { messages: [user("u1"), user("u2")] };

  test("has the last message, until a run has taken it", () => {
    expect(waits(input, one, two)).toBe(2n);
    expect(waits(input, one, two, started("r1", claimed(1, 1)))).toBe(2n);
    expect(waits(input, one, two, started("r1", claimed(1, 2)))).toBeUndefined();
    expect(waits(input, one, two, started("r1"))).toBeUndefined();
    expect(waits(input, one, started("r1"), two)).toBe(2n);
    // Only claims take messages of a session that is claimed.
    expect(waits(input, one, started("r1", claimed(1, 1)), two, started("r2"))).toBe(2n);
  });

  test("is none for a message that got its id here", () => {
    expect(waits({ messages: [user("row-1")] }, "hello")).toBeUndefined();
  });
});

test("the row has the rest of the input that is not empty, and a state only if the client changed it", () => {
  const state = { a: 1, b: [2] };
  const input = {
    threadId: "other",
    runId: "r",
    messages: [user("u1")],
    tools: [{ name: "pick" }],
    context: [],
    forwardedProps: { k: 1 },
    state: { b: [2], a: 1 },
  };
  const known = sessionOf({ type: "STATE_SNAPSHOT", snapshot: state });
  const rest = { threadId: "s", runId: "r", tools: input.tools, forwardedProps: { k: 1 } };
  expect(newOf(input, known)?.rest).toEqual(rest);
  expect(newOf({ ...input, state: { a: 2 } }, known)?.rest).toEqual({ ...rest, state: { a: 2 } });
  expect(newOf(input, undefined)?.rest).toEqual({ ...rest, state });
});
