/**
 * Exports and imports of histories commute with the compression, and lose no text.
 *
 * Method: events of LangChain4j are drawn with every spelling, out of order and with wrong values; events
 * of AG-UI are drawn as producers make them. A coalescer of ten lines is the reference.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { JsonObject } from "@session-ledger/agui/json";
import { fromLangChain4j } from "@session-ledger/history/langchain4j";
import { fromSpringAi } from "@session-ledger/history/spring-ai";
import { type HistoryRow, toHistory } from "@session-ledger/history/to-history";
import { legalEvents } from "../../../test/support/agui-drawn.ts";
import { checkLegal } from "../../../test/support/agui-oracle.ts";
import { compressAll } from "../../../test/support/merging.ts";
import { historyRows, joinedTexts } from "../../../test/support/history-rows.ts";
import { properties } from "../../../test/support/random.ts";

const NAMES = { sessionId: "s", runId: "r" };
const FORMATS = ["history", "history/lc4j", "text"] as const;

function merged(rows: readonly HistoryRow[]): readonly HistoryRow[] {
  let seq = 1n;
  return compressAll(rows).map((row) => {
    const numbered = { ...row, seq };
    seq += BigInt(row.eventCount);
    return numbered;
  });
}

const chunk = fc.constantFrom(
  "",
  "a",
  " ",
  "\n",
  "\ud83d",
  "\ude00",
  "long text ".repeat(9),
  null,
  7,
);
const id = fc.constantFrom("c1", "c2", "", null);
const toolName = fc.constantFrom("f", "g");
const args = fc.constantFrom("{}", "", null, '{"a":1}', "{", { a: 1 });
const usage = { tokenUsage: { inputTokenCount: 1, outputTokenCount: 2 } };
const aiMessage = fc.record({
  text: fc.constantFrom(undefined, "whole"),
  thinking: fc.constantFrom(undefined, "why"),
  toolExecutionRequests: fc.array(fc.record({ id, name: toolName, arguments: args }), {
    maxLength: 2,
  }),
});

function ofType(types: readonly string[], model: Readonly<Record<string, fc.Arbitrary<unknown>>>) {
  return fc.record({ eventType: fc.constantFrom(...types), ...model });
}

const CONTENT = [
  ofType(["PartialResponse", "PartialThinking"], { chunk }),
  ofType(["PartialResponse", "PartialThinking"], { chunk }),
  ofType(["PartialResponse", "PartialThinking"], { text: chunk }),
  ofType(["BeforeToolExecution"], { id, toolName, arguments: args }),
  ofType(["ToolExecuted", "AfterToolExecution"], { id, toolName, output: args }),
  ofType(["PartialToolCall"], { id, name: toolName, index: fc.nat(1), partialArguments: chunk }),
  ofType(["CompleteToolCall"], { id, name: toolName, index: fc.nat(1), arguments: args }),
  ofType(["IntermediateResponse"], { aiMessage, metadata: fc.constant(usage) }),
  ofType(["AccumulatedResponse"], { message: fc.constant("all"), metadata: fc.constant(usage) }),
  ofType(["ContentFetched", "RetrievedContents", "Sparkle"], { content: fc.constant([1]) }),
];
const ENDS = ["Completed", "ChatCompleted", "FinalResponse", "failure", "StreamError", "cancel"];

const lc4jEvents: fc.Arbitrary<readonly JsonObject[]> = fc.array(
  fc.oneof(
    ...CONTENT.map((arbitrary) => ({ arbitrary, weight: 4 })),
    {
      arbitrary: ofType([...ENDS, "StreamAborted"], { aiMessage, metadata: fc.constant(usage) }),
      weight: 2,
    },
    { arbitrary: fc.constant({}), weight: 1 },
  ),
  { maxLength: 30 },
);

const springCall = fc.record({ id, name: toolName, arguments: args });
const generation = fc.record({
  output: fc.record({
    messageType: fc.constantFrom("ASSISTANT", "TOOL"),
    text: chunk,
    metadata: fc.constantFrom({}, { thinking: true }, { reasoningContent: "hm" }),
    toolCalls: fc.array(springCall, { maxLength: 2 }),
    responses: fc.array(fc.record({ id, name: toolName, responseData: chunk }), { maxLength: 1 }),
  }),
  metadata: fc.record({ finishReason: fc.constantFrom(null, null, "", "STOP", "TOOL_CALLS") }),
});
const springResponses: fc.Arbitrary<readonly JsonObject[]> = fc.array(
  fc.oneof(
    fc.record({ chatResponse: fc.record({ results: fc.array(generation, { maxLength: 2 }) }) }),
    fc.constantFrom({ eventType: "failure" }, { hello: 1 }),
  ),
  { maxLength: 20 },
);

test("every stream that is mapped is legal for both generations of clients", async () => {
  const mapped = fc.oneof(
    lc4jEvents.map((events) => [...fromLangChain4j(events, NAMES)]),
    springResponses.map((responses) => [...fromSpringAi(responses, NAMES)]),
  );
  const property = fc.asyncProperty(mapped, async (events) => {
    await expect(checkLegal(events)).resolves.toBeUndefined();
  });
  await fc.assert(property, properties({ runs: 600 }));
});

test("the same events give the same ids", () => {
  const property = fc.property(lc4jEvents, (events) => {
    expect([...fromLangChain4j(events, NAMES)]).toEqual([...fromLangChain4j(events, NAMES)]);
  });
  fc.assert(property, properties({ runs: 200 }));
});

/** Each fragment as one to four of its kind. */
const exported = fc
  .tuple(
    fc.oneof(
      legalEvents,
      lc4jEvents.map((events) => [...fromLangChain4j(events, NAMES)]),
      springResponses.map((responses) => [...fromSpringAi(responses, NAMES)]),
    ),
    fc.array(fc.array(fc.constantFrom("", "b", "\ud83d", "\ude00", '"'), { maxLength: 3 })),
  )
  .map(([events, texts]) =>
    events.flatMap((event: JsonObject, at): readonly JsonObject[] => {
      const { type, delta } = event;
      if (type === "STATE_DELTA" || typeof delta !== "string") return [event];
      const more = texts[at % Math.max(1, texts.length)] ?? [];
      return [event, ...more.map((text) => ({ ...event, delta: text }))];
    }),
  );

test("merged rows and raw events give the same history, wherever entries are cut", () => {
  const options = properties({ runs: 2_000 });
  let saved = 0;
  const property = fc.property(
    exported,
    fc.constantFrom(...FORMATS),
    fc.constantFrom(5, 100, 1_048_576),
    (events, format, entryCharsMax) => {
      const raw = historyRows(events, 1_000);
      const rows = merged(raw);
      saved += raw.length - rows.length;
      const given = { ...NAMES, entryCharsMax };
      expect([...toHistory(rows, format, given)]).toEqual([...toHistory(raw, format, given)]);
    },
  );
  fc.assert(property, options);
  expect(saved).toBeGreaterThan(options.numRuns / 2); // Streams without merged rows would show nothing.
});

/** Adjacent chunks of one type join; any other event is a border. */
function coalesced(events: readonly JsonObject[]): readonly JsonObject[] {
  const joined: JsonObject[] = [];
  for (const event of events) {
    const last = joined.at(-1);
    const isText =
      event["eventType"] === "PartialResponse" || event["eventType"] === "PartialThinking";
    if (isText && last !== undefined && last["eventType"] === event["eventType"])
      joined[joined.length - 1] = { ...last, chunk: joinedTexts([last, event], "chunk") };
    else joined.push(event);
  }
  return joined;
}

const plainEvents = fc.array(
  fc.oneof(
    fc.record({
      eventType: fc.constantFrom("PartialResponse", "PartialThinking"),
      chunk: fc.constantFrom("a", " ", "\n", "\ud83d", "\ude00"),
    }),
    fc.nat(9).map((n) => ({ eventType: "Sparkle", n })),
  ),
);

test("an export gives the events of the import, coalesced", () => {
  const property = fc.property(plainEvents, (events) => {
    const made = [...fromLangChain4j([...events, { eventType: "ChatCompleted" }], NAMES)];
    const rows = merged(historyRows(made, 0));
    const [entry] = [...toHistory(rows, "history/lc4j", NAMES)];
    const end = events.length === 0 ? [] : [{ eventType: "ChatCompleted" }];
    const expected = [...coalesced(events), ...end];
    if (expected.length === 0) return entry === undefined;
    expect(entry).toMatchObject({ content: [{ role: "AI", events: expected }] });
    return true;
  });
  fc.assert(property, properties({ runs: 1_000 }));
});
