/** Which events are out of order, by which rule, and how later events are judged after them. */
import { KEY_CHARS_MAX, OPEN_IDS_MAX } from "../../src/agui/constructs.ts";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { eventRows } from "../../src/agui/rows.ts";
import { SEQUENCE_RULES, Sequence } from "../../src/agui/sequence.ts";
import type { StreamEvent } from "../support/streams.ts";

type SequenceRule = ReturnType<Sequence["observe"]>;

/** What a type requires besides its id. */
const REQUIRED: Readonly<Record<string, object>> = {
  RUN_STARTED: { threadId: "t", runId: "r" },
  RUN_FINISHED: { threadId: "t", runId: "r" },
  RUN_ERROR: { message: "" },
  TEXT_MESSAGE_CONTENT: { delta: "" },
  TOOL_CALL_START: { toolCallName: "f" },
  TOOL_CALL_ARGS: { delta: "" },
  TOOL_CALL_RESULT: { messageId: "r", content: "" },
  THINKING_TEXT_MESSAGE_CONTENT: { delta: "" },
  REASONING_MESSAGE_START: { role: "reasoning" },
  REASONING_MESSAGE_CONTENT: { delta: "" },
  REASONING_ENCRYPTED_VALUE: { subtype: "message", entityId: "a", encryptedValue: "" },
  SUBAGENT_STARTED: { name: "n" },
  SUBAGENT_ERROR: { message: "" },
  STATE_SNAPSHOT: { snapshot: {} },
  MESSAGES_SNAPSHOT: { messages: [] },
  ACTIVITY_SNAPSHOT: { activityType: "", content: {} },
  ACTIVITY_DELTA: { activityType: "", patch: [] },
  RAW: { event: {} },
  CUSTOM: { name: "", value: 0 },
  META: { metaType: "" },
};

/** As in `TEXT_MESSAGE_START a @s named`: a type, an id, the subagent, and a chunk's tool name. */
function eventOf(words: string): StreamEvent {
  const [eventType = "", ...rest] = words.split(" ");
  const fields: Record<string, unknown> = { ...REQUIRED[eventType] };
  for (const word of rest) {
    if (word === "named") fields["toolCallName"] = "f";
    else if (word.startsWith("@")) fields["subagentRunId"] = word.slice(1);
    else fields[idFieldOf(eventType)] = word;
  }
  return { eventType, payload: JSON.stringify({ type: eventType, ...fields }) };
}

function idFieldOf(eventType: string): string {
  if (eventType.startsWith("STEP")) return "stepName";
  if (eventType.startsWith("TOOL_CALL")) return "toolCallId";
  return eventType.startsWith("SUBAGENT") ? "subagentRunId" : "messageId";
}

/** The rules that the events break, each with the number of its event, from 0. */
function broken(sequence: Sequence, events: readonly StreamEvent[]): readonly string[] {
  return events.flatMap((event, index) => {
    const rule = observed(sequence, event);
    return rule === undefined ? [] : [`${index} ${rule}`];
  });
}

function observed(sequence: Sequence, event: StreamEvent): SequenceRule {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { ...event, eventCount: 0, ...times, hasFragments: false };
  const result = eventRows(push, { mode: "lenient", nowMicros: 0n });
  const place = result.ok ? result.rows[0].place : undefined;
  return place && sequence.observe(place);
}

/** The broken rules of events in an open run. */
function inRun(...words: readonly string[]): readonly string[] {
  const sequence = new Sequence("before");
  expect(broken(sequence, [eventOf("RUN_STARTED")])).toEqual([]);
  return broken(sequence, words.map(eventOf));
}

function fromStart(...words: readonly string[]): readonly string[] {
  return broken(new Sequence("before"), words.map(eventOf));
}

describe("runs", () => {
  test.each<[string, readonly string[], readonly string[]]>([
    ["may follow each other", ["RUN_STARTED", "RUN_FINISHED", "RUN_STARTED", "RUN_FINISHED"], []],
    ["may follow an error", ["RUN_STARTED", "RUN_ERROR", "RUN_STARTED", "RUN_FINISHED"], []],
    ["allow an error at any time", ["RUN_ERROR", "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"], []],
    [
      "allow nothing before the first",
      ["CUSTOM", "RUN_FINISHED", "TEXT_MESSAGE_START a", "RUN_STARTED"],
      ["0 outside_run", "1 outside_run", "2 outside_run"],
    ],
    [
      "allow nothing between two runs",
      ["RUN_STARTED", "RUN_FINISHED", "CUSTOM", "STATE_SNAPSHOT", "RUN_FINISHED", "RUN_STARTED"],
      ["2 after_run_end", "3 after_run_end", "4 after_run_end"],
    ],
    [
      "allow nothing after an error, nor another error",
      ["RUN_STARTED", "RUN_ERROR", "CUSTOM", "RUN_ERROR", "RUN_FINISHED", "RUN_STARTED", "CUSTOM"],
      ["2 after_run_end", "3 after_run_end", "4 after_run_end"],
    ],
    [
      "replace an open run",
      ["RUN_STARTED", "STEP_STARTED a", "RUN_STARTED", "STEP_FINISHED a", "RUN_FINISHED"],
      ["2 run_already_open", "3 end_without_start"],
    ],
    [
      "leave nothing open for a later run",
      ["RUN_STARTED", "STEP_STARTED a", "RUN_ERROR", "RUN_STARTED", "STEP_FINISHED a"],
      ["4 end_without_start"],
    ],
    ["allow META and foreign types at any time", ["META", "FOREIGN", "RUN_STARTED", "META"], []],
  ])("%s", (_, words, expected) => {
    expect(fromStart(...words)).toEqual(expected);
  });

  test("a session first seen midway counts nothing until a run begins or ends", () => {
    const midway = (...words: readonly string[]): readonly string[] =>
      broken(new Sequence("unknown"), words.map(eventOf));
    const content = "TEXT_MESSAGE_CONTENT a";
    expect(midway(content, "RUN_STARTED", content)).toEqual(["2 fragment_without_start"]);
    expect(midway(content, "RUN_FINISHED", content)).toEqual(["2 after_run_end"]);
    expect(midway(content, "RUN_ERROR", "RUN_ERROR")).toEqual(["2 after_run_end"]);
  });
});

describe("constructs", () => {
  test.each([
    ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"],
    ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"],
    ["REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"],
    ["REASONING_START", undefined, "REASONING_END"],
    ["STEP_STARTED", undefined, "STEP_FINISHED"],
    ["SUBAGENT_STARTED", undefined, "SUBAGENT_FINISHED"],
    ["SUBAGENT_STARTED", undefined, "SUBAGENT_ERROR"],
  ])("are in order only as %s, %s, %s", (start, fragment, end) => {
    const middle = fragment === undefined ? [] : [`${fragment} a`];
    const whole = [`${start} a`, ...middle, `${end} a`];
    const after = whole.length;
    expect(inRun(...whole, "RUN_FINISHED")).toEqual([]);
    expect(inRun(`${start} a`, `${start} a`, `${end} a`)).toEqual(["1 start_twice"]);
    expect(inRun(`${end} a`, `${start} a`, `${end} b`)).toEqual([
      "0 end_without_start",
      "2 end_without_start",
    ]);
    expect(inRun(...whole, `${end} a`)).toEqual([`${after} end_without_start`]);
    expect(inRun(`${start} a`, "RUN_FINISHED")).toEqual(["1 run_finished_with_open_construct"]);
    expect(inRun(`${start} a`, `${start} b`, `${end} a`, "RUN_FINISHED")).toEqual([
      "3 run_finished_with_open_construct",
    ]);
    expect(inRun(`${start} a`, "RUN_ERROR")).toEqual([]);
    for (const late of middle)
      expect(inRun(late, ...whole, late)).toEqual([
        "0 fragment_without_start",
        `${after + 1} fragment_without_start`,
      ]);
  });

  test("of two kinds may share an id", () => {
    expect(
      inRun(
        "REASONING_START a",
        "REASONING_MESSAGE_START a",
        "TEXT_MESSAGE_START a",
        "TOOL_CALL_START a",
        "SUBAGENT_STARTED a",
        "REASONING_MESSAGE_END a",
        "REASONING_MESSAGE_CONTENT a",
        "REASONING_END a",
        "SUBAGENT_FINISHED a",
        "TOOL_CALL_END a",
        "TEXT_MESSAGE_END a",
        "RUN_FINISHED",
      ),
    ).toEqual(["6 fragment_without_start"]);
  });

  test("may start again after their end, except for subagents", () => {
    const twice = (start: string, end: string): readonly string[] =>
      inRun(`${start} a`, `${end} a`, `${start} a`, `${end} a`, "RUN_FINISHED");
    expect(twice("TEXT_MESSAGE_START", "TEXT_MESSAGE_END")).toEqual([]);
    expect(twice("STEP_STARTED", "STEP_FINISHED")).toEqual([]);
    expect(twice("SUBAGENT_STARTED", "SUBAGENT_ERROR")).toEqual(["2 start_twice"]);
  });

  test("of a step belong to the subagent that started it", () => {
    expect(
      inRun(
        "STEP_STARTED tools",
        "STEP_STARTED tools @s",
        "STEP_STARTED :tools @",
        "STEP_FINISHED tools @",
        "STEP_FINISHED tools",
        "STEP_FINISHED tools",
        "STEP_FINISHED tools @s",
        "STEP_FINISHED :tools @",
        "RUN_FINISHED",
      ),
    ).toEqual(["3 end_without_start", "5 end_without_start"]);
  });

  test("of thinking have no ids, and its messages must be inside", () => {
    const message = ["THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_END"];
    expect(inRun("THINKING_START", ...message, ...message, "THINKING_END")).toEqual([]);
    expect(inRun("THINKING_START", "THINKING_TEXT_MESSAGE_START", "RUN_FINISHED")).toEqual([]);
    expect(inRun(...message)).toEqual(["0 fragment_without_start"]);
    expect(inRun("THINKING_START", "THINKING_START", "THINKING_END", "THINKING_END")).toEqual([
      "1 start_twice",
      "3 end_without_start",
    ]);
    expect(inRun("THINKING_TEXT_MESSAGE_CONTENT")).toEqual(["0 fragment_without_start"]);
  });

  test("are not required around single events", () => {
    const whole = ["TOOL_CALL_RESULT a", "REASONING_ENCRYPTED_VALUE", "MESSAGES_SNAPSHOT", "RAW"];
    expect(inRun(...whole, "ACTIVITY_SNAPSHOT a", "STATE_SNAPSHOT", "CUSTOM")).toEqual([]);
  });
});

describe("chunks", () => {
  test.each<[string, readonly string[], readonly string[]]>([
    ["start and end their construct", ["TEXT_MESSAGE_CHUNK a", "TEXT_MESSAGE_CHUNK"], []],
    ["end where another construct begins", ["TEXT_MESSAGE_CHUNK a", "TEXT_MESSAGE_CHUNK b"], []],
    [
      "continue after unrelated events",
      [
        "REASONING_MESSAGE_CHUNK a",
        "RAW",
        "REASONING_ENCRYPTED_VALUE",
        "ACTIVITY_SNAPSHOT b",
        "ACTIVITY_DELTA b",
        "SUBAGENT_STARTED s",
        "SUBAGENT_FINISHED s",
        "CUSTOM @s",
        "REASONING_MESSAGE_CHUNK",
      ],
      [],
    ],
    [
      "continue when their subagent starts",
      ["TEXT_MESSAGE_CHUNK a @s", "SUBAGENT_STARTED s", "TEXT_MESSAGE_CHUNK @s"],
      [],
    ],
    [
      "end with their subagent",
      [
        "SUBAGENT_STARTED s",
        "TEXT_MESSAGE_CHUNK a @s",
        "SUBAGENT_FINISHED s",
        "TEXT_MESSAGE_CHUNK @s",
      ],
      ["3 fragment_without_start"],
    ],
    [
      "need an open construct or an id",
      ["TEXT_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK a", "CUSTOM", "TEXT_MESSAGE_CHUNK"],
      ["0 fragment_without_start", "3 fragment_without_start"],
    ],
    [
      "continue only a construct of their own kind",
      ["TEXT_MESSAGE_CHUNK a", "REASONING_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK"],
      ["1 fragment_without_start", "2 fragment_without_start"],
    ],
    [
      "need a name to start a tool call",
      ["TOOL_CALL_CHUNK a", "TOOL_CALL_CHUNK a named", "TOOL_CALL_CHUNK a", "TOOL_CALL_CHUNK b"],
      ["0 fragment_without_start", "3 fragment_without_start"],
    ],
    [
      "do not continue a construct that began with a START",
      ["TEXT_MESSAGE_START a", "TEXT_MESSAGE_CHUNK a"],
      ["1 start_twice"],
    ],
    [
      "are not ended by an END",
      ["TEXT_MESSAGE_CHUNK a", "TEXT_MESSAGE_END a", "TEXT_MESSAGE_CHUNK a", "RUN_FINISHED"],
      ["1 end_without_start"],
    ],
    [
      "of two subagents are independent",
      [
        "TEXT_MESSAGE_CHUNK a @s",
        "TEXT_MESSAGE_CHUNK b @t",
        "TEXT_MESSAGE_CHUNK @s",
        "STATE_SNAPSHOT",
        "TEXT_MESSAGE_CHUNK @t",
        "STATE_SNAPSHOT @t",
        "TEXT_MESSAGE_CHUNK a",
        "TEXT_MESSAGE_CHUNK",
        "TEXT_MESSAGE_CHUNK @t",
      ],
      ["8 fragment_without_start"],
    ],
    [
      "need a subagent id while two subagents have open chunks",
      ["TEXT_MESSAGE_CHUNK a @s", "TEXT_MESSAGE_CHUNK b @t", "TEXT_MESSAGE_CHUNK"],
      ["2 fragment_without_start"],
    ],
    [
      "all end at a snapshot",
      ["TEXT_MESSAGE_CHUNK a @s", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_CHUNK @s"],
      ["2 fragment_without_start"],
    ],
    [
      "end twice after an END without the subagent id",
      ["TEXT_MESSAGE_CHUNK a @s", "TEXT_MESSAGE_END a", "TEXT_MESSAGE_CHUNK @s", "CUSTOM @s"],
      ["2 fragment_without_start", "3 end_without_start"],
    ],
    [
      "end twice after such an END when new chunks begin",
      ["TEXT_MESSAGE_CHUNK a @s", "TEXT_MESSAGE_END a", "TEXT_MESSAGE_CHUNK b @s", "CUSTOM @s"],
      ["2 end_without_start"],
    ],
  ])("%s", (_, words, expected) => {
    expect(inRun(...words)).toEqual(expected);
  });

  test("end their constructs with the run", () => {
    expect(inRun("TEXT_MESSAGE_CHUNK a", "TOOL_CALL_CHUNK b @s named", "RUN_FINISHED")).toEqual([]);
  });
});

describe("the noted state has a limit", () => {
  const many = Array.from({ length: OPEN_IDS_MAX }, (_, index) => `TEXT_MESSAGE_START ${index}`);

  test("of ids, and constructs beyond it are neither known nor counted", () => {
    const sequence = new Sequence("before");
    const next = (...words: readonly string[]): readonly string[] =>
      broken(sequence, words.map(eventOf));
    expect(next("RUN_STARTED", ...many)).toEqual([]);
    expect(next("TOOL_CALL_START 7", "TEXT_MESSAGE_END x")).toEqual(["1 end_without_start"]);
    expect(next("TEXT_MESSAGE_START x", "TEXT_MESSAGE_CONTENT x", "TEXT_MESSAGE_END x")).toEqual(
      [],
    );
    expect(next("TEXT_MESSAGE_CHUNK y", "TEXT_MESSAGE_CHUNK")).toEqual([]);
    expect(sequence.ids).toBe(OPEN_IDS_MAX);
    expect(next("TEXT_MESSAGE_END z")).toEqual([]);
    expect(next("TEXT_MESSAGE_START 7", "RUN_FINISHED")).toEqual([
      "0 start_twice",
      "1 run_finished_with_open_construct",
    ]);
    expect(sequence.ids).toBe(0);
    expect(next("RUN_STARTED", "TEXT_MESSAGE_END x")).toEqual(["1 end_without_start"]);
  });

  test.each([
    ["an id", ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]],
    ["an id of chunks", ["TEXT_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK"]],
  ])("for %s that is too long", (_, types) => {
    const long = "x".repeat(KEY_CHARS_MAX + 1);
    expect(inRun(...types.map((type) => `${type} ${long}`), "RUN_FINISHED")).toEqual([]);
    expect(inRun(`${types[0]} ${long}`, "TOOL_CALL_END a")).toEqual([]);
    const fits = long.slice(1);
    expect(inRun(`${types[0]} ${fits}`, "TOOL_CALL_END a")).toEqual(["1 end_without_start"]);
  });

  test("for a subagent's id that is too long, although it identifies chunks", () => {
    const long = `@${"x".repeat(KEY_CHARS_MAX + 1)}`;
    const chunks = [`TEXT_MESSAGE_CHUNK a ${long}`, `TEXT_MESSAGE_CHUNK ${long}`];
    expect(inRun(...chunks, "RUN_FINISHED")).toEqual([]);
    expect(inRun(...chunks, "TOOL_CALL_END a")).toEqual([]);
    expect(inRun("TEXT_MESSAGE_CHUNK a @s", "TOOL_CALL_END a")).toEqual(["1 end_without_start"]);
  });
});

test("docs/ag-ui.md describes every rule", () => {
  const text = readFileSync(new URL("../../docs/ag-ui.md", import.meta.url), "utf8");
  const order = text.slice(text.indexOf("## Order"));
  const documented = [...order.matchAll(/^\| .+ \| `([a-z_]+)` \|$/gm)].map(([, rule]) => rule);
  expect(documented).toEqual(SEQUENCE_RULES);
});
