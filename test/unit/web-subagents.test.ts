import { expect, test } from "vitest";
import type { Item } from "../../web/src/model/conversation.ts";
import { History } from "../../web/src/model/history.ts";
import { Moment } from "../../web/src/model/scrub.ts";

const ofSubagent = { subagentRunId: "sub-1" };
const EVENTS = [
  { type: "RUN_STARTED", threadId: "s", runId: "r" },
  { type: "TEXT_MESSAGE_START", messageId: "m1", role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "I ask another one." },
  { type: "TEXT_MESSAGE_END", messageId: "m1" },
  { type: "SUBAGENT_STARTED", subagentRunId: "sub-1", name: "researcher" },
  { type: "TEXT_MESSAGE_START", messageId: "m2", role: "assistant", ...ofSubagent },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "m2", delta: "I look.", ...ofSubagent },
  {
    type: "TOOL_CALL_START",
    toolCallId: "c",
    toolCallName: "look",
    parentMessageId: "m2",
    ...ofSubagent,
  },
];

test("what a subagent says and calls has its own time, and the name of the subagent", () => {
  const history = new History("s");
  for (const [at, event] of EVENTS.entries()) {
    const seq = at + 1;
    history.take({
      seq,
      lastSeq: seq,
      type: event.type,
      runId: "r",
      atMs: seq,
      endMs: seq,
      storedMs: seq,
      recordedMs: seq,
      count: 1,
      bytes: 0,
      payload: JSON.stringify(event),
      fragments: undefined,
      isConformant: true,
    });
  }
  const at = { seq: EVENTS.length, cutSeq: -1, missing: 0 };
  const { items } = new Moment(history, at, { isExact: true });

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
