/**
 * The messages derived from whole streams are those that the real AG-UI client shows at their end:
 * the same texts, tool calls and results. Recorded streams are used where CORPUS names their
 * folder.
 *
 * Method: the client is given the events of runs, texts and tool calls, spelled as the protocol has
 * them (support/recorded.ts, which shares no code with the deriver), and its messages are converted
 * by the table of docs/dual-push.md in a few lines. The client gets no snapshots, as they would
 * bring messages without events in the stream.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { MessageDeriver } from "@session-ledger/runner/internal/derive/derive";
import { runClient } from "../support/agui-reducers.ts";
import { expectedOf } from "../support/recorded.ts";
import { ownStreams, recordedStreams, type Stream } from "../support/streams.ts";

const messagesSchema = z.array(
  z.discriminatedUnion("role", [
    z.object({
      role: z.literal("assistant"),
      content: z.string().optional(),
      toolCalls: z
        .array(
          z.object({
            id: z.string(),
            function: z.object({ name: z.string(), arguments: z.string() }),
          }),
        )
        .optional(),
    }),
    z.object({
      role: z.literal("tool"),
      toolCallId: z.string(),
      content: z.union([z.string(), z.array(z.object({ text: z.string() }))]),
    }),
  ]),
);

const eventSchema = z.looseObject({ type: z.string() });

/**
 * The events for the client, with the wrong spellings of some recorded agents corrected, and
 * without the RUN_FINISHED that some send after their RUN_ERROR.
 */
function clientEvents({ events }: Stream): readonly z.infer<typeof eventSchema>[] {
  const failed = events.some(({ eventType }) => eventType === "RUN_ERROR");
  return events
    .map((event) => eventSchema.parse(expectedOf(event).value))
    .filter(({ type }) => /^(RUN|TEXT_MESSAGE|TOOL_CALL|REASONING|SUBAGENT)_/.test(type))
    .filter(({ type }) => !failed || type !== "RUN_FINISHED")
    .map(({ input: _input, ...event }) => {
      const { type, error, result } = event;
      if (type === "RUN_ERROR") return { message: error, ...event };
      if (type === "TOOL_CALL_RESULT") return { messageId: "result", content: result, ...event };
      return event;
    });
}

async function shownBy(stream: Stream): Promise<readonly string[]> {
  const { shown, error } = await runClient("1.0.0", clientEvents(stream));
  expect(error).toBeUndefined();
  const all = z.array(z.looseObject({ role: z.string() })).parse(JSON.parse(shown.messages));
  const told = messagesSchema.parse(all.filter(({ role }) => role !== "reasoning"));
  return told
    .flatMap((message): readonly unknown[] => {
      if (message.role === "tool") {
        const { content, toolCallId: tool_call_id } = message;
        const result =
          typeof content === "string" ? content : content.map(({ text }) => text).join("\n");
        return [["tool_result", { tool_call_id, result }]];
      }
      const { content = "", toolCalls = [] } = message;
      return [
        ...(content.trim() === "" ? [] : [["assistant", content.replaceAll("\0", "\uFFFD")]]),
        ...toolCalls.map((call) => [
          "tool_use",
          { tool: call.function.name, tool_call_id: call.id, ...inputOf(call.function.arguments) },
        ]),
      ];
    })
    .map((message) => JSON.stringify(message))
    .toSorted();
}

function inputOf(text: string): { readonly input?: unknown } {
  if (text === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return { input: isObject ? value : { value } };
  } catch {
    return { input: { raw: text } };
  }
}

const SHOWN = ["assistant", "tool_use", "tool_result"];

function derived({ events }: Stream): readonly string[] {
  const deriver = new MessageDeriver();
  return events
    .flatMap(({ payload }) => deriver.next(payload))
    .filter(({ eventType }) => SHOWN.includes(eventType))
    .map(({ eventType, payload }) =>
      JSON.stringify([eventType, eventType === "assistant" ? payload : JSON.parse(payload)]),
    )
    .toSorted();
}

// The client ends a stream at a second START; runner-derive.test.ts has that case.
const readable = ownStreams().filter(({ scenario }) => scenario !== "error-and-retry");

test.each(readable)(
  "the messages derived from $scenario are those that the client shows",
  async (stream) => {
    expect(derived(stream)).toEqual(await shownBy(stream));
  },
);

const recorded = recordedStreams()?.filter(({ events }) => events.length > 0);

describe.skipIf(recorded === undefined)("recorded streams with CORPUS", () => {
  test("derive the messages that the client shows", async () => {
    for (const stream of recorded ?? []) expect(derived(stream)).toEqual(await shownBy(stream));
  });
});
