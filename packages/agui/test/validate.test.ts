/**
 * Accepted events, and the violations of refused ones. Each accepted case names the version that
 * accepts it; the cases of 0.x were tried on the published schemas of those versions.
 */
import { describe, expect, test } from "vitest";
import { CATALOGUE, type CatalogueEntry, type EventType } from "@session-ledger/agui/catalogue";
import { CURRENT, EARLIER } from "@session-ledger/agui/schemas";
import { violationsIn } from "@session-ledger/agui/validate";
import { fieldsAtFault, violationsOf } from "@session-ledger/agui/violations";
import { VIOLATIONS_MAX } from "@session-ledger/base/errors";

function descriptions(type: EventType, fields: object): readonly string[] {
  return violationsIn(type, { type, ...fields }).map(({ field, description }) => {
    expect(description.startsWith(`${field} must be `)).toBe(true);
    return description;
  });
}

function typesOf(entries: readonly CatalogueEntry[]): readonly string[] {
  return entries.map(({ type }) => type).toSorted();
}

function snapshot(message: object): object {
  return { messages: [{ id: "m", ...message }] };
}

const RUN = { threadId: "t", runId: "r" };

test("version 1.0.0 has the schemas of its types, the earlier versions and the draft those of all types", () => {
  const current = CATALOGUE.filter(({ lastVersion }) => lastVersion === "1.0.0");
  expect([...CURRENT.keys()].toSorted()).toEqual(typesOf(current));
  expect([...EARLIER.keys()].toSorted()).toEqual(typesOf(CATALOGUE));
});

describe("a wrong event is reported", () => {
  test.each<[EventType, object, readonly string[]]>([
    [
      "TEXT_MESSAGE_CONTENT",
      { messageId: 1, content: "text" },
      [
        "payload.messageId must be a string, but is a number",
        "payload.delta must be a string, but is absent; content is not AG-UI",
      ],
    ],
    [
      "TOOL_CALL_ARGS",
      { toolCallId: "c", args: "{}" },
      ["payload.delta must be a string, but is absent; args is not AG-UI"],
    ],
    [
      "REASONING_MESSAGE_CONTENT",
      { messageId: null, delta: null, content: "x" },
      [
        "payload.messageId must be a string, but is null",
        "payload.delta must be a string, but is null; content is not AG-UI",
      ],
    ],
    [
      "TOOL_CALL_RESULT",
      { toolCallId: "c", result: "x" },
      [
        "payload.messageId must be a string, but is absent",
        "payload.content must be a string or an array, but is absent; result is not AG-UI",
      ],
    ],
    [
      "RUN_ERROR",
      { error: "x", code: 7 },
      [
        "payload.message must be a string, but is absent; error is not AG-UI",
        "payload.code must be a string, but is a number",
      ],
    ],
    [
      "TEXT_MESSAGE_START",
      { messageId: "m", role: "tool" },
      ["payload.role must be one of developer, system, assistant, user, but is another string"],
    ],
    [
      "REASONING_MESSAGE_START",
      { messageId: "m" },
      ["payload.role must be reasoning, but is absent"],
    ],
    [
      "STEP_STARTED",
      { stepName: {}, timestamp: "1770389237" },
      [
        "payload.timestamp must be a number, but is a string",
        "payload.stepName must be a string, but is an object",
      ],
    ],
    ["STATE_DELTA", { delta: {} }, ["payload.delta must be an array, but is an object"]],
    [
      "ACTIVITY_SNAPSHOT",
      { messageId: "", activityType: "", content: [], replace: 1 },
      [
        "payload.content must be an object, but is an empty array",
        "payload.replace must be true or false, but is a number",
      ],
    ],
    [
      "ACTIVITY_SNAPSHOT",
      { messageId: "", activityType: "", content: null },
      ["payload.content must be set, but is null"],
    ],
    [
      "MESSAGES_SNAPSHOT",
      snapshot({ role: "assistant", toolCalls: [{ id: "c", type: "function", function: {} }] }),
      [
        "payload.messages[0].toolCalls[0].function.name must be a string, but is absent",
        "payload.messages[0].toolCalls[0].function.arguments must be a string, but is absent",
      ],
    ],
    [
      "MESSAGES_SNAPSHOT",
      snapshot({ role: "robot" }),
      [
        "payload.messages[0].role must be one of developer, system, assistant, user, tool, activity, reasoning, but is another string",
      ],
    ],
    [
      "MESSAGES_SNAPSHOT",
      snapshot({ role: "user", content: [{ type: "image", source: { type: "url" } }] }),
      ["payload.messages[0].content[0].source.value must be a string, but is absent"],
    ],
    [
      "RUN_FINISHED",
      { ...RUN, outcome: { type: "interrupt", interrupts: [] } },
      ["payload.outcome.interrupts must be an array of at least 1, but is an empty array"],
    ],
    [
      "SUBAGENT_FINISHED",
      { metadata: [], outcome: "success" },
      [
        "payload.metadata must be an object, but is an empty array",
        "payload.subagentRunId must be a string, but is absent",
        "payload.outcome must be an object, but is a string",
      ],
    ],
    [
      "THINKING_TEXT_MESSAGE_CONTENT",
      { timestamp: "x", content: "text" },
      [
        "payload.timestamp must be a number, but is a string",
        "payload.delta must be a string, but is absent; content is not AG-UI",
      ],
    ],
  ])("%s %o", (type, fields, expected) => {
    expect(descriptions(type, fields)).toEqual(expected);
  });

  test("only with the faults of every version, if any exist", () => {
    expect(descriptions("CUSTOM", {})).toEqual(["payload.name must be a string, but is absent"]);
    // Each of these is fine in one version, and no version takes both.
    expect(
      descriptions("RUN_FINISHED", {
        ...RUN,
        outcome: { type: "success", pendingToolCallIds: ["c"] },
        usage: [{ inputTokens: -1 }],
      }),
    ).toEqual(["payload.usage[0].inputTokens must be at least 0, but is -1"]);
  });

  test("with a limited number of violations", () => {
    const messages = Array.from({ length: 1_000 }, () => ({}));
    expect(descriptions("MESSAGES_SNAPSHOT", { messages })).toHaveLength(VIOLATIONS_MAX);
  });

  describe("within a list of thousands", () => {
    const good = (at: number) => ({ id: `m${at}`, role: "user", content: "hi" });
    const list = (wrong: readonly number[]) =>
      Array.from({ length: 3_500 }, (_, at) => (wrong.includes(at) ? { id: 1 } : good(at)));

    test("never, when every entry is valid", () => {
      expect(descriptions("MESSAGES_SNAPSHOT", { messages: list([]) })).toEqual([]);
    });

    test.each([0, 999, 1_000, 1_001, 2_000, 3_499])(
      "with the path of the invalid entry: %i",
      (at) => {
        const [first, ...more] = descriptions("MESSAGES_SNAPSHOT", { messages: list([at]) });
        expect(first).toContain(`payload.messages[${at}]`);
        for (const one of more) expect(one).toContain(`payload.messages[${at}]`);
        const input = { ...RUN, tools: [], context: [], messages: list([at]) };
        expect(descriptions("RUN_STARTED", { ...RUN, input })[0]).toContain(
          `payload.input.messages[${at}]`,
        );
      },
    );

    // A megabyte of `{}` blocked the event loop for a second.
    test("without reading the entries after the first invalid slice", () => {
      let looks = 0;
      const messages = Array.from({ length: 100_000 }, () => ({
        get role() {
          looks += 1;
          return "nobody";
        },
      }));
      expect(descriptions("MESSAGES_SNAPSHOT", { messages })).toHaveLength(VIOLATIONS_MAX);
      expect(looks).toBeLessThan(10_000);
    });
  });

  // A megabyte of wrong messages blocked the event loop for 2.7 s, most of it for unreported
  // issues.
  test("without reading more issues than are reported", () => {
    const issues = Array.from({ length: 2_000 }, (_, at) => ({
      code: "invalid_type" as const,
      expected: "string" as const,
      path: [`k${at}`],
      message: "",
    }));
    let looks = 0;
    const watched = issues.map((issue) => ({
      ...issue,
      get code() {
        looks += 1;
        return issue.code;
      },
    }));
    expect(violationsOf(watched, {})).toHaveLength(VIOLATIONS_MAX);
    expect(looks).toBeLessThan(5 * VIOLATIONS_MAX);
    expect(fieldsAtFault(watched).size).toBeLessThan(watched.length);
  });

  test("without quoting the payload", () => {
    const told = JSON.stringify(
      violationsIn("TEXT_MESSAGE_START", { type: "x", messageId: ["secret"], role: "secret" }),
    );
    expect(told).not.toContain("secret");
  });
});
