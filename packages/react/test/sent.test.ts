/** Who said and called what in the conversation of the inspector, and when. */
import { expect, test } from "vitest";
import type { Item } from "../src/model/items.ts";
import { History } from "../src/model/history.ts";
import { Moment } from "../src/model/scrub.ts";

const SAID = { seq: 1, id: "m", type: "user", payload: "Hi", sender: undefined };

function take(history: History, seq: number, event: { readonly type: string }): void {
  const times = { atMs: seq, endMs: seq, storedMs: seq, recordedMs: seq };
  const row = { seq, lastSeq: seq, type: event.type, payload: JSON.stringify(event), runId: "r" };
  const form = { count: 1, bytes: 0, fragments: undefined, isConformant: true };
  history.take({ ...row, ...times, ...form });
}

function momentAt(history: History, seq: number): Moment {
  return new Moment(history, { seq, cutSeq: -1, missing: 0 }, { isExact: true });
}

// Bug: a message that was sent at 15:47 and stored at 16:11 stood at 16:11, above an answer of 15:47.
test.each([
  ["its sender sent it", 1_000, 1_000],
  ["the service took it, if no time of its sender is known", undefined, 5_000],
  ["the service took it, if the sender's clock is ahead", 9_000, 5_000],
])("regression: a message is shown at the time when %s", (_, sentMs, shownMs) => {
  const history = new History("s");
  history.onMessage({ ...SAID, sentMs, atMs: 5_000, storedMs: 5_000, recordedMs: 5_000 });
  const { items } = momentAt(history, 1);
  expect(items.map(({ kind, atMs }) => [kind, atMs])).toEqual([["message", shownMs]]);
});

// Bug: an agent that repeated a question in a MESSAGES_SNAPSHOT took the name of who had asked.
test("regression: a question that a snapshot repeats without a name keeps its sender", () => {
  const history = new History("s");
  const sender = { id: "u1", displayName: "Ann" };
  history.onMessage({ ...SAID, sender, sentMs: 1, atMs: 1, storedMs: 1, recordedMs: 1 });
  const messages = [{ id: "m", role: "user", content: "Hi" }];
  const snapshot = { type: "MESSAGES_SNAPSHOT", messages };
  take(history, 2, snapshot);
  const moment = momentAt(history, 2);
  expect(moment.items).toMatchObject([{ kind: "message", name: "Ann", by: "person" }]);
  // The transcript has what the snapshot says, as every client of AG-UI does.
  expect(moment.messages).toEqual(messages);
});

test("messages and calls of a subagent have their own time, and the name of the subagent", () => {
  const history = new History("s");
  const ofSubagent = { subagentRunId: "sub-1" };
  const call = { toolCallId: "c", toolCallName: "look", parentMessageId: "m2" };
  const events = [
    { type: "RUN_STARTED", threadId: "s", runId: "r" },
    { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "I ask another one." },
    { type: "TEXT_MESSAGE_END", messageId: "m1" },
    { type: "SUBAGENT_STARTED", subagentRunId: "sub-1", name: "researcher" },
    { type: "TEXT_MESSAGE_START", messageId: "m2", role: "assistant", ...ofSubagent },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: "I look.", ...ofSubagent },
    { type: "TOOL_CALL_START", ...call, ...ofSubagent },
  ];
  for (const [index, event] of events.entries()) take(history, index + 1, event);
  const { items } = momentAt(history, events.length);

  // A call begins at its own time, and not with the message that it belongs to.
  expect(items.filter(({ kind }) => kind === "tool").map(({ seq, atMs }) => [seq, atMs])).toEqual([
    [8, 8],
  ]);
  const doneBy = (item: Item) => ("subagent" in item ? [[item.kind, item.id, item.subagent]] : []);
  expect(items.flatMap(doneBy)).toEqual([
    ["message", "m1", undefined],
    ["message", "m2", "researcher"],
    ["tool", "c", "researcher"],
  ]);
});

// Bug: an approval that somebody typed past waited for ever, and its call for a result.
test("regression: an approval waits until a run answers it, or ends without an answer", () => {
  const ids = { threadId: "s", runId: "r" };
  const interrupts = [{ id: "i", reason: "tool_call", toolCallId: "c" }];
  const asking = [
    { type: "RUN_STARTED", ...ids },
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "delete" },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "RUN_FINISHED", ...ids, outcome: { type: "interrupt", interrupts } },
  ];
  const input = { ...ids, state: {}, messages: [], tools: [], context: [], forwardedProps: {} };
  const resume = [{ interruptId: "i", status: "resolved" }];
  const past = { type: "RUN_STARTED", ...ids };
  const answering = { ...past, input: { ...input, resume } };
  const shownAfter = (...events: readonly { readonly type: string }[]) => {
    const history = new History("s");
    const all = [...asking, ...events];
    for (const [index, event] of all.entries()) take(history, index + 1, event);
    const shown = (seq: number) => {
      const { items } = momentAt(history, seq);
      const tool = items.find(({ kind }) => kind === "tool");
      const end = items.find((item) => item.kind === "run" && item.outcome === "interrupt");
      return [tool?.kind === "tool" && tool.status, end?.kind === "run" && end.answer];
    };
    // A reader who goes back sees what it was.
    return [shown(all.length), shown(asking.length)];
  };
  const waits = ["pending", undefined];
  expect(shownAfter()).toEqual([waits, waits]);
  expect(shownAfter(past)).toEqual([waits, waits]);
  const end = { ...past, type: "RUN_FINISHED" };
  expect(shownAfter(past, end)).toEqual([["unanswered", "unanswered"], waits]);
  expect(shownAfter(answering)).toEqual([["pending", "answered"], waits]);
  const result = { type: "TOOL_CALL_RESULT", toolCallId: "c", messageId: "m", content: "done" };
  expect(shownAfter(answering, result, end)).toEqual([["done", "answered"], waits]);
});
