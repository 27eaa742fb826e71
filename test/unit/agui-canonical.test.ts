import { describe, expect, test } from "vitest";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import type { LoggedEvent } from "@session-ledger/agui/canonical/event";
import { OWNED_IDS_MAX } from "@session-ledger/agui/canonical/owners";
import { placeOpenings } from "../../src/conversation/reopened-constructs.ts";
import type { JsonObject } from "@session-ledger/agui/json";
import { OPEN_CHARS_MAX, OPEN_IDS_MAX } from "@session-ledger/agui/constructs";

const BEGIN = { type: "RUN_STARTED", threadId: "t", runId: "r1" };
const FINISH = { type: "RUN_FINISHED", threadId: "t", runId: "r1" };

function log(events: readonly JsonObject[], from = 1): readonly LoggedEvent[] {
  return events.map((event, index) => ({
    seq: BigInt(from + index),
    eventType: String(event["type"]),
    payload: JSON.stringify(event),
    conformant: true,
  }));
}

function folded(events: readonly JsonObject[]) {
  const canonical = new Canonical("S");
  const out = log(events).flatMap((event) => canonical.next(event));
  return { canonical, out };
}

/** The canonical events of a run, without its RUN_STARTED. */
function inRun(...events: readonly JsonObject[]): readonly JsonObject[] {
  return folded([BEGIN, ...events])
    .out.slice(1)
    .map(({ value }) => value);
}

const text = (type: string, fields: JsonObject = {}): JsonObject => ({
  type: `TEXT_MESSAGE_${type}`,
  messageId: "m",
  ...fields,
});
const call = (type: string, fields: JsonObject = {}): JsonObject => ({
  type: `TOOL_CALL_${type}`,
  toolCallId: "c",
  ...fields,
});
const subagent = (type: string, id: string, fields: JsonObject = {}): JsonObject => ({
  type: `SUBAGENT_${type}`,
  subagentRunId: id,
  ...(type === "STARTED" && { name: "n" }),
  ...fields,
});

describe("translation", () => {
  test("turns THINKING_* into REASONING_*, with ids made of the session and the number", () => {
    expect(
      inRun(
        { type: "THINKING_START", title: "Planning", timestamp: 7 },
        { type: "THINKING_TEXT_MESSAGE_START" },
        { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "hm", foo: 1 },
        { type: "THINKING_TEXT_MESSAGE_END" },
        { type: "THINKING_END" },
      ),
    ).toEqual([
      // Reasoning has no title: clients warn of one, each time.
      { type: "REASONING_START", messageId: "thinking-2-S", timestamp: 7 },
      { type: "REASONING_MESSAGE_START", messageId: "thinking-3-S", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "thinking-3-S", delta: "hm", foo: 1 },
      { type: "REASONING_MESSAGE_END", messageId: "thinking-3-S" },
      { type: "REASONING_END", messageId: "thinking-2-S" },
    ]);
  });

  test("repairs THINKING events that are out of order", () => {
    expect(
      inRun(
        { type: "THINKING_END" },
        { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "a" },
        { type: "THINKING_TEXT_MESSAGE_START" },
        { type: "THINKING_TEXT_MESSAGE_END" },
        { type: "THINKING_TEXT_MESSAGE_END" },
        { type: "THINKING_START" },
        { type: "THINKING_START" },
      ),
    ).toEqual([
      { type: "REASONING_MESSAGE_START", messageId: "thinking-3-S", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "thinking-3-S", delta: "a" },
      { type: "REASONING_MESSAGE_END", messageId: "thinking-3-S" },
      { type: "REASONING_MESSAGE_START", messageId: "thinking-4-S", role: "reasoning" },
      { type: "REASONING_MESSAGE_END", messageId: "thinking-4-S" },
      { type: "REASONING_START", messageId: "thinking-7-S" },
      { type: "REASONING_END", messageId: "thinking-7-S" },
      { type: "REASONING_START", messageId: "thinking-8-S" },
    ]);
  });

  test("turns chunks into START, CONTENT and END", () => {
    expect(
      inRun(
        text("CHUNK", { role: "user", name: "N", delta: "a", timestamp: 1, extra: true }),
        { type: "TEXT_MESSAGE_CHUNK", delta: "b", metadata: { k: 1 } },
        { type: "TEXT_MESSAGE_CHUNK", timestamp: 3 },
        { type: "TEXT_MESSAGE_CHUNK", metadata: { k: 2 } },
        { type: "RAW", event: 1 },
        call("CHUNK", { toolCallName: "f", parentMessageId: "m", metadata: { k: 1 } }),
        { type: "CUSTOM", name: "x", value: 1 },
      ),
    ).toEqual([
      text("START", { role: "user", name: "N", timestamp: 1 }),
      text("CONTENT", { delta: "a", timestamp: 1, extra: true }),
      text("CONTENT", { delta: "b", metadata: { k: 1 } }),
      text("CONTENT", { delta: "", metadata: { k: 2 } }),
      { type: "RAW", event: 1 },
      text("END"),
      call("START", { toolCallName: "f", parentMessageId: "m", metadata: { k: 1 } }),
      call("END"),
      { type: "CUSTOM", name: "x", value: 1 },
    ]);
  });

  test("loses nothing of chunks that carry on without an id or start without a name", () => {
    expect(
      inRun(
        { type: "TEXT_MESSAGE_CHUNK", delta: "a" },
        { type: "TEXT_MESSAGE_CHUNK", delta: "b" },
        { type: "TOOL_CALL_CHUNK", toolCallId: "c", delta: "{}" },
      ),
    ).toEqual([
      { type: "TEXT_MESSAGE_START", messageId: "text-2-S", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "text-2-S", delta: "a" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "text-2-S", delta: "b" },
      { type: "TEXT_MESSAGE_END", messageId: "text-2-S" },
      call("START", { toolCallName: "unknown" }),
      call("ARGS", { delta: "{}" }),
    ]);
  });

  test("sends META, nonconformant events and events without an id as CUSTOM", () => {
    const canonical = new Canonical("S");
    const foreign = { type: "USAGE", tokens: 1, timestamp: 5 };
    const next = (value: JsonObject, conformant: boolean) => {
      const [event] = log([value]).flatMap((one) => canonical.next({ ...one, conformant }));
      return event?.value;
    };
    const meta = { type: "META", metaType: "thumbs_up" };
    expect(next(foreign, false)).toEqual({
      type: "CUSTOM",
      name: "USAGE",
      value: foreign,
      timestamp: 5,
    });
    expect(next(meta, false)).toEqual({ type: "CUSTOM", name: "META", value: meta });
    expect(next(meta, true)).toEqual({ type: "CUSTOM", name: "META", value: meta });
    const bare = { type: "TEXT_MESSAGE_CONTENT", delta: "a" };
    expect(next(bare, true)).toEqual({ type: "CUSTOM", name: bare.type, value: bare });
    const inside = { op: "move", from: "/a", path: "/a/b" };
    const round = { type: "STATE_DELTA", delta: [inside] };
    expect(next(round, true)).toEqual({ type: "CUSTOM", name: "STATE_DELTA", value: round });
    const moves = { type: "STATE_DELTA", delta: [{ ...inside, path: "/ab" }] };
    expect(next(moves, true)).toEqual(moves);
    const noPatch = { type: "STATE_DELTA", delta: [{ op: "add", path: "a", value: 1 }] };
    expect(next(noPatch, true)).toEqual({ type: "CUSTOM", name: "STATE_DELTA", value: noPatch });
  });
});

describe("repair", () => {
  test("opens a construct at its fragment; a tool call opens again under its earlier name", () => {
    expect(
      inRun(
        text("CONTENT", { delta: "a", timestamp: 9 }),
        call("START", { toolCallName: "search" }),
        call("END"),
        call("ARGS", { delta: "{" }),
      ),
    ).toEqual([
      text("START", { role: "assistant", timestamp: 9 }),
      text("CONTENT", { delta: "a", timestamp: 9 }),
      call("START", { toolCallName: "search" }),
      call("END"),
      call("START", { toolCallName: "search" }),
      call("ARGS", { delta: "{" }),
    ]);
  });

  test("ends all open constructs before RUN_FINISHED, the newest first", () => {
    const step = { type: "STEP_STARTED", stepName: "plan", subagentRunId: "s" };
    const outcome = { type: "interrupt", interrupts: [{ id: "i", reason: "ask" }] };
    const opened = [subagent("STARTED", "s"), step, text("START", { subagentRunId: "s" })];
    const ended = [
      text("END", { subagentRunId: "s" }),
      { type: "STEP_FINISHED", stepName: "plan", subagentRunId: "s" },
    ];
    expect(inRun(...opened, FINISH)).toEqual([
      ...opened,
      ...ended,
      subagent("FINISHED", "s"),
      FINISH,
    ]);
    expect(inRun(...opened, { ...FINISH, outcome })).toEqual([
      ...opened,
      ...ended,
      subagent("FINISHED", "s", { outcome: { type: "suspended" } }),
      { ...FINISH, outcome },
    ]);
  });

  test("sends the second SUBAGENT_STARTED of one subagent in a run as CUSTOM", () => {
    const again = subagent("STARTED", "s");
    expect(inRun(again, again, subagent("FINISHED", "s"), again)).toEqual([
      again,
      { type: "CUSTOM", name: "SUBAGENT_STARTED", value: again },
      subagent("FINISHED", "s"),
      { type: "CUSTOM", name: "SUBAGENT_STARTED", value: again },
    ]);
    expect(inRun(subagent("STARTED", "u", { parentSubagentRunId: "gone" }))).toEqual([
      subagent("STARTED", "u"),
    ]);
  });

  test("drops the subagent id of an event for a construct with another owner", () => {
    const ofS = { subagentRunId: "s" };
    expect(
      inRun(
        text("START", ofS),
        text("CONTENT", { delta: "a", subagentRunId: "t" }),
        text("END", ofS),
        text("START", { subagentRunId: "t" }),
        call("START", { toolCallName: "f", parentMessageId: "m", subagentRunId: "t" }),
      ),
    ).toEqual([
      text("START", ofS),
      text("CONTENT", { delta: "a" }),
      text("END", ofS),
      text("START"),
      call("START", { toolCallName: "f", parentMessageId: "m" }),
    ]);
  });
});

/**
 * A client that was connected from the start and one that joined later may know different owners.
 */
describe("the owner is left out where two clients could know different owners", () => {
  const ofS = { subagentRunId: "s" };
  const last = (events: readonly JsonObject[]): unknown => folded(events).out.at(-1)?.value;

  test("for a subagent's message that starts again in a later run without its owner", () => {
    const earlier = [BEGIN, text("START", ofS), text("END", ofS), FINISH];
    const content = text("CONTENT", { delta: "a", ...ofS });
    const untagged = text("CONTENT", { delta: "a" });
    expect(last([...earlier, BEGIN, text("START"), content])).toEqual(untagged);
    expect(last([...earlier, BEGIN, text("START", ofS), content])).toEqual(content);
  });

  test("for a tool call that shares its id with an existing message", () => {
    const start = call("START", { toolCallName: "f", ...ofS });
    const message = { type: "TEXT_MESSAGE_START", messageId: "c" };
    const { canonical } = folded([BEGIN, message, start]);
    expect(canonical.openings()).toEqual([message, call("START", { toolCallName: "f" })]);
    expect(folded([BEGIN, start]).canonical.openings()).toEqual([start]);
  });

  test("for a second START of the agent's tool call inside a subagent's message", () => {
    const start = call("START", { toolCallName: "f" });
    const again = call("START", { toolCallName: "f", parentMessageId: "m" });
    expect(last([BEGIN, text("START", ofS), start, call("END"), again])).toEqual(start);
    expect(last([BEGIN, text("START"), start, call("END"), again])).toEqual(again);
  });

  test("for a subagent's reasoning when the message inside it names no owner", () => {
    const span = { type: "REASONING_START", messageId: "g" };
    const start = { type: "REASONING_MESSAGE_START", messageId: "g", role: "reasoning" };
    const { canonical } = folded([BEGIN, { ...span, ...ofS }, start]);
    expect(canonical.openings()).toEqual([span, start]);
  });

  // Bug: a joining client got the owner from before the snapshot, and refused the event.
  test("for a message that a snapshot removed and that starts again in the same run", () => {
    const earlier = [BEGIN, text("START", ofS), text("END", ofS)];
    const away = [...earlier, { type: "MESSAGES_SNAPSHOT", messages: [] }];
    const content = text("CONTENT", { delta: "a", ...ofS });
    expect(last([...away, text("START"), content])).toEqual(text("CONTENT", { delta: "a" }));
    expect(last([...away, text("START", ofS), content])).toEqual(content);
    const within = call("START", { toolCallName: "f", parentMessageId: "m" });
    expect(last([...away, within, text("START", ofS)])).toEqual(text("START"));
    expect(last([...earlier, within, text("START", ofS)])).toEqual(text("START", ofS));
  });

  // Bug: a joining client took the reasoning for the agent's, and refused its END.
  test("for a subagent's reasoning that starts a second time without its owner", () => {
    const span = { type: "REASONING_START", messageId: "g" };
    const { canonical } = folded([BEGIN, { ...span, ...ofS }, span]);
    expect(canonical.openings()).toEqual([{ ...span, ...ofS }]);
  });
});

describe("runs", () => {
  test("a run without an end is ended with an error when another run begins", () => {
    const again = { ...BEGIN, runId: "r2", timestamp: 4 };
    const { out, canonical } = folded([BEGIN, text("START"), again]);
    expect(out.slice(2).map(({ value }) => value)).toEqual([
      {
        type: "RUN_ERROR",
        message: "The run did not end: another one began.",
        code: "ABANDONED",
        timestamp: 4,
      },
      again,
    ]);
    expect(canonical.openings()).toEqual([]);
    expect(canonical.run).toMatchObject({ runId: "r2", startedSeq: 3n, status: "running" });
  });

  test("RUN_ERROR is allowed at any time, but only once in a row", () => {
    const failed = { type: "RUN_ERROR", message: "no" };
    const { out, canonical } = folded([
      failed,
      failed,
      BEGIN,
      text("START"),
      failed,
      text("END"),
      failed,
    ]);
    expect(out.map(({ value, inRun: isIn }) => [value["type"], isIn])).toEqual([
      ["RUN_ERROR", true],
      ["RUN_ERROR", false],
      ["RUN_STARTED", true],
      ["TEXT_MESSAGE_START", true],
      ["RUN_ERROR", true],
      ["RUN_ERROR", false],
    ]);
    expect(canonical.run).toMatchObject({ status: "error", end: failed });
  });

  test("the requests that it answers are known until the next run, and a copy keeps its own", () => {
    const canonical = new Canonical("S");
    const hear = (to: Canonical, seq: bigint): void => {
      const messages = [{ id: `u${seq}`, role: "user", content: "x" }];
      const incoming = { seq, messages, isFromUser: true, key: undefined, resume: [] };
      to.onMessages({ ...incoming, requestId: `c${seq}` });
    };
    const states = ({ turns }: Canonical) => ["c1", "c2", "c3"].map((id) => turns.stateOf(id));
    const begin = (first: number, last: number): void => {
      const metadata = { session: { consumed: { first, last } } };
      for (const event of log([{ ...BEGIN, metadata }], first)) canonical.next(event);
    };
    hear(canonical, 1n);
    const copy = canonical.clone();
    hear(canonical, 2n);
    hear(copy, 3n);
    expect(states(canonical)).toEqual(["waits", "waits", undefined]);
    expect(states(copy)).toEqual(["waits", undefined, "waits"]);
    begin(1, 1);
    expect(states(canonical)).toEqual(["taken", "waits", undefined]);
    begin(1, 2); // The rows of a lost run are taken again.
    expect(states(canonical)).toEqual(["taken", "taken", undefined]);
    begin(3, 3);
    expect(states(canonical)).toEqual([undefined, undefined, undefined]);
    expect(states(copy)).toEqual(["waits", undefined, "waits"]);
  });

  test("the newest run is known, without the messages that the transcript already has", () => {
    const input = { threadId: "t", runId: "r1", messages: [{ id: "u" }], tools: [], context: [] };
    const { canonical } = folded([{ ...BEGIN, input }]);
    expect(canonical.run).toEqual({
      runId: "r1",
      threadId: "t",
      started: { ...BEGIN, input: { ...input, messages: [] } },
      startedSeq: 1n,
      status: "running",
      end: undefined,
      questions: [],
    });
    for (const event of log([FINISH], 2)) canonical.next(event);
    expect(canonical.run).toMatchObject({ status: "finished", end: FINISH });
    expect(new Canonical("S").run).toBeUndefined();
  });
});

describe("openings", () => {
  const SNAPSHOT = [
    {
      id: "m",
      role: "assistant",
      toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: '{"a' } }],
    },
  ];

  test("use the current name of a tool call", () => {
    const { after } = placeOpenings([call("START", { toolCallName: "old" })], SNAPSHOT);
    expect(after).toEqual([call("START", { toolCallName: "f" })]);
  });
});

describe("bounds", () => {
  test("above the limit of open constructs the oldest ends, and opens again at its next event", () => {
    const started = Array.from({ length: OPEN_IDS_MAX + 1 }, (_, n) =>
      text("START", { messageId: `${n}` }),
    );
    const { out, canonical } = folded([BEGIN, ...started]);
    expect(out.slice(-2).map(({ value }) => value)).toEqual([
      text("START", { messageId: `${OPEN_IDS_MAX}` }),
      text("END", { messageId: "0" }),
    ]);
    expect(canonical.openings()).toHaveLength(OPEN_IDS_MAX);
    const [more] = log([text("CONTENT", { messageId: "0", delta: "a" })], 5_000);
    expect(more && canonical.next(more).map(({ value }) => value["type"])).toEqual([
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_END",
      "TEXT_MESSAGE_CONTENT",
    ]);
  });

  test("above the limit of characters the oldest ends, but one construct may exceed it alone", () => {
    const long = "x".repeat(OPEN_CHARS_MAX);
    const { canonical } = folded([BEGIN, text("START"), text("START", { messageId: long })]);
    expect(canonical.openings().map(({ messageId }) => messageId)).toEqual([long]);
  });

  test("above the limit of ids a new construct belongs to the agent", () => {
    const own = (id: string): JsonObject => text("START", { messageId: id, subagentRunId: "s" });
    const events = Array.from({ length: OWNED_IDS_MAX }, (_, n) => [
      own(`${n}`),
      text("END", { messageId: `${n}` }),
    ]).flat();
    const { canonical } = folded([BEGIN, ...events]);
    const next = log([own("new"), own("7")], 50_000).flatMap((event) => canonical.next(event));
    expect(next.map(({ value }) => value)).toEqual([text("START", { messageId: "new" }), own("7")]);
  });
});
