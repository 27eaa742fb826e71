/** An input that repeats the conversation under new ids: which of its messages the log has already. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { sameConversation } from "@session-ledger/agui/canonical/same-conversation";
import { properties } from "../../../test/support/random.ts";

const user = (id: string, content: unknown) => ({ id, role: "user", content });
const agent = (id: string, content: string, ...calls: readonly string[]) => ({
  id,
  role: "assistant",
  content,
  toolCalls: calls.map((args) => ({
    id: `${id}-${args}`,
    type: "function",
    function: { name: "f", arguments: args },
  })),
});
const result = (id: string, content: string) => ({ id, role: "tool", toolCallId: "c", content });

const NOTHING_WAITS = (): boolean => false;

function same(
  listed: readonly object[],
  log: readonly Readonly<Record<string, unknown>>[],
  mayFollow: (id: string) => boolean = NOTHING_WAITS,
): Readonly<Record<string, string>> {
  return Object.fromEntries(sameConversation(listed, log, mayFollow));
}

const LOG = [user("u1", "hi"), agent("a1", "hello"), user("u2", "yes"), agent("a2", "done")];

test("the whole conversation, with a new message that was said before", () => {
  const listed = [...LOG, user("", "yes")].map((message, at) => ({ ...message, id: `x${at}` }));
  expect(same(listed, LOG)).toEqual({ x0: "u1", x1: "a1", x2: "u2", x3: "a2" });
});

test("the end of the conversation, as producers with a window send it", () => {
  expect(same([agent("x", "done"), user("y", "yes")], LOG)).toEqual({ x: "a2" });
});

test("a message that was said before alone is a new one", () => {
  expect(same([user("x", "yes")], LOG)).toEqual({});
  expect(same([user("x", "yes")], LOG.slice(0, 3))).toEqual({});
});

test("another conversation is a new one, also where it has a text of the log", () => {
  const listed = [user("x", "hi"), agent("y", "hello"), user("z", "no")];
  expect(same(listed, LOG)).toEqual({});
});

test("a message that no run has taken may stand behind what the input repeats", () => {
  const log = [...LOG, user("w", "waits")];
  const listed = LOG.map((message) => ({ ...message, id: `x${message.id}` }));
  const expected = { xu1: "u1", xa1: "a1", xu2: "u2", xa2: "a2" };
  expect(same(listed, log, (id) => id === "w")).toEqual(expected);
  expect(same(listed, log)).toEqual({});
});

test("a text and a call are one message or two, and white space of arguments is no difference", () => {
  const log = [user("u", "go"), agent("a", "I look"), agent("c", "", '{"a": 1}'), result("r", "2")];
  const listed = [
    user("x", [{ type: "text", text: "go" }]),
    agent("y", "I look", '{"a":1}'),
    result("z", "2"),
  ];
  expect(same(listed, log)).toEqual({ x: "u", y: "a", z: "r" });
});

test("a system prompt and a thought are the same anywhere", () => {
  const log = [...LOG, { id: "s", role: "system", content: "Rhyme" }];
  expect(same([{ id: "x", role: "system", content: "Rhyme" }], log)).toEqual({ x: "s" });
});

test("the result is that of trying each number of pieces", () => {
  const said = fc.tuple(fc.boolean(), fc.constantFrom("a", "b"));
  const list = fc.array(said, { maxLength: 12 });
  fc.assert(
    fc.property(list, list, fc.nat({ max: 3 }), (listed, log, waiting) => {
      const messages = (all: typeof listed, name: string) =>
        all.map(([isAgents, text], at) =>
          isAgents ? agent(`${name}${at}`, text) : user(`${name}${at}`, text),
        );
      const theirs = messages(listed, "x");
      const ours = messages(log, "l");
      const firstWaiting = ours.length - waiting;
      const isEqual = (count: number, end: number): boolean =>
        theirs.slice(0, count).every(({ role, content }, at) => {
          const other = ours[end - count + at];
          return other?.role === role && other.content === content;
        });
      let best = { count: 0, end: 0 };
      for (let end = Math.max(1, firstWaiting); end <= ours.length; end += 1)
        for (let count = Math.min(end, theirs.length); count > best.count; count -= 1)
          if (isEqual(count, end)) best = { count, end };
      const found = theirs.slice(0, best.count);
      const expected = found.some(({ role }) => role === "assistant")
        ? found.map(({ id }, at) => [id, `l${best.end - best.count + at}`])
        : [];
      const isWaiting = (id: string): boolean => Number(id.slice(1)) >= firstWaiting;
      expect(same(theirs, ours, isWaiting)).toEqual(Object.fromEntries(expected));
    }),
    properties({ runs: 2_000 }),
  );
});
