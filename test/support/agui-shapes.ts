/**
 * Random events in the shape of their type. Each field is mostly right, sometimes absent, and sometimes
 * any value, at every level.
 */
import * as fc from "fast-check";
import { SpelledNumber } from "@session-ledger/agui/exact-json";

type Draw = fc.Arbitrary<unknown>;

/** No doubles: a reader that prints them keeps their spelling. */
const SPELLED = ["1.10", "1000000000000000001", "-0", "1e400"].map(
  (text) => new SpelledNumber(text),
);

const anything: Draw = fc.jsonValue({ maxDepth: 2 });
const junk: Draw = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(null, 0, -1, 1.5, 2 ** 60, "", "x", true, [], {}, [{}]) },
  { weight: 1, arbitrary: fc.constantFrom(...SPELLED) },
  { weight: 1, arbitrary: anything },
);
const text: Draw = fc.constantFrom("", "a", "m1");
const record: Draw = fc.dictionary(fc.constantFrom("a", "message_id", "b"), anything, {
  maxKeys: 2,
});

function list(element: Draw): Draw {
  return fc.array(element, { maxLength: 2 });
}

class Optional {
  readonly value: Draw;
  constructor(value: Draw) {
    this.value = value;
  }
}

function optional(value: Draw): Optional {
  return new Optional(value);
}

type Shape = Readonly<Record<string, Draw | Optional>>;

const MISSING = Symbol("missing");
const EXTRA = ["extra", "interrupts", "metadata", "usage", "id", "name", "protocolVersion"];
const extra = fc.oneof(
  { weight: 12, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: fc.dictionary(fc.constantFrom(...EXTRA), junk, { maxKeys: 2 }) },
);

/** An object of roughly this shape. */
function object(shape: Shape): Draw {
  const fields = Object.entries(shape).map(([name, field]) => {
    const isOptional = field instanceof Optional;
    const value = fc.oneof(
      { weight: isOptional ? 6 : 24, arbitrary: isOptional ? field.value : field },
      { weight: isOptional ? 8 : 1, arbitrary: fc.constant(MISSING) },
      { weight: 1, arbitrary: junk },
    );
    return value.map((drawn) => (drawn === MISSING ? {} : { [name]: drawn }));
  });
  return fc.tuple(...fields, extra).map((parts): unknown => Object.assign({}, ...parts));
}

const source = fc.oneof(
  object({ type: fc.constant("data"), value: text, mimeType: text }),
  object({ type: fc.constant("url"), value: text, mimeType: optional(text) }),
  object({ type: fc.constant("file"), value: text, provider: optional(text) }),
);
const part = fc.oneof(
  object({ type: fc.constant("text"), text, metadata: optional(anything), id: optional(text) }),
  object({
    type: fc.constantFrom("image", "audio", "video", "document"),
    source,
    metadata: optional(anything),
  }),
  object({
    type: fc.constant("binary"),
    mimeType: text,
    id: optional(text),
    url: optional(text),
    data: optional(text),
    filename: optional(text),
  }),
);
const toolCall = object({
  id: text,
  type: fc.constant("function"),
  function: object({ name: text, arguments: text }),
  encryptedValue: optional(text),
  metadata: optional(record),
});

const OF_A_MESSAGE = {
  id: text,
  name: optional(text),
  encryptedValue: optional(text),
  subagentRunId: optional(text),
  metadata: optional(record),
};
const content = fc.oneof(text, list(part));
const message = fc.oneof(
  object({
    ...OF_A_MESSAGE,
    role: fc.constantFrom("developer", "system", "reasoning"),
    content: text,
  }),
  object({
    ...OF_A_MESSAGE,
    role: fc.constant("assistant"),
    content: optional(text),
    toolCalls: optional(list(toolCall)),
  }),
  object({ ...OF_A_MESSAGE, role: fc.constant("user"), content }),
  object({
    ...OF_A_MESSAGE,
    role: fc.constant("tool"),
    content,
    toolCallId: text,
    error: optional(text),
  }),
  object({
    ...OF_A_MESSAGE,
    role: fc.constant("activity"),
    activityType: text,
    content: record,
  }),
);

const tool = object({
  name: text,
  description: text,
  parameters: optional(anything),
  metadata: optional(record),
});
const input = object({
  threadId: text,
  runId: text,
  parentRunId: optional(text),
  protocolVersion: optional(text),
  state: optional(anything),
  messages: list(message),
  tools: list(tool),
  context: list(object({ description: text, value: text })),
  forwardedProps: optional(anything),
  resume: optional(
    list(
      object({
        interruptId: text,
        status: fc.constantFrom("resolved", "cancelled"),
        payload: optional(anything),
        metadata: optional(record),
      }),
    ),
  ),
});

const interrupt = object({
  id: text,
  reason: text,
  message: optional(text),
  toolCallId: optional(text),
  responseSchema: optional(record),
  expiresAt: optional(text),
  metadata: optional(record),
  subagentRunId: optional(text),
});
const runOutcome = fc.oneof(
  object({ type: fc.constant("success"), pendingToolCallIds: optional(list(text)) }),
  object({ type: fc.constant("interrupt"), interrupts: list(interrupt) }),
  object({ type: fc.constant("cancelled") }),
);
const subagentOutcome = fc.oneof(
  object({ type: fc.constant("success") }),
  object({ type: fc.constant("suspended"), interruptIds: optional(list(text)) }),
);
const count = fc.constantFrom(0, 1, 5, -1, 1.5);
const usage = list(
  object({
    provider: optional(text),
    inputTokens: optional(count),
    cacheWriteInputTokens: optional(count),
  }),
);
const patch = list(
  fc.oneof(
    object({
      op: fc.constantFrom("add", "replace", "test"),
      path: fc.constantFrom("", "/a", "a"),
      value: anything,
    }),
    object({ op: fc.constant("remove"), path: fc.constant("/a") }),
    object({
      op: fc.constantFrom("move", "copy"),
      path: fc.constant("/a"),
      from: fc.constant("/b"),
    }),
  ),
);
const role = fc.constantFrom("developer", "system", "assistant", "user", "tool");

const OF_EVERY_EVENT = {
  timestamp: optional(fc.constantFrom(1, 1.5, -2.5, 1e300, 2 ** 60, 0)),
  rawEvent: optional(anything),
  metadata: optional(record),
  subagentRunId: optional(text),
};
const OF_A_RUN = { threadId: text, runId: text };
const OF_A_MESSAGE_EVENT = { messageId: text };

const SHAPES: Readonly<Record<string, Shape>> = {
  RUN_STARTED: {
    ...OF_A_RUN,
    parentRunId: optional(text),
    protocolVersion: optional(text),
    input: optional(input),
  },
  RUN_FINISHED: {
    ...OF_A_RUN,
    result: optional(anything),
    outcome: optional(runOutcome),
    usage: optional(usage),
  },
  RUN_ERROR: { message: text, code: optional(text), usage: optional(usage) },
  STEP_STARTED: { stepName: text },
  STEP_FINISHED: { stepName: text },
  TEXT_MESSAGE_START: { ...OF_A_MESSAGE_EVENT, role: optional(role), name: optional(text) },
  TEXT_MESSAGE_CONTENT: { ...OF_A_MESSAGE_EVENT, delta: text },
  TEXT_MESSAGE_END: OF_A_MESSAGE_EVENT,
  TEXT_MESSAGE_CHUNK: {
    messageId: optional(text),
    role: optional(role),
    delta: optional(text),
    name: optional(text),
  },
  TOOL_CALL_START: { toolCallId: text, toolCallName: text, parentMessageId: optional(text) },
  TOOL_CALL_ARGS: { toolCallId: text, delta: text },
  TOOL_CALL_END: { toolCallId: text },
  TOOL_CALL_CHUNK: {
    toolCallId: optional(text),
    toolCallName: optional(text),
    parentMessageId: optional(text),
    delta: optional(text),
  },
  TOOL_CALL_RESULT: {
    ...OF_A_MESSAGE_EVENT,
    toolCallId: text,
    content,
    role: optional(fc.constant("tool")),
  },
  THINKING_START: { title: optional(text) },
  THINKING_END: {},
  THINKING_TEXT_MESSAGE_START: {},
  THINKING_TEXT_MESSAGE_CONTENT: { delta: text },
  THINKING_TEXT_MESSAGE_END: {},
  REASONING_START: OF_A_MESSAGE_EVENT,
  REASONING_END: OF_A_MESSAGE_EVENT,
  REASONING_MESSAGE_START: {
    ...OF_A_MESSAGE_EVENT,
    role: fc.constantFrom("reasoning", "assistant", "user"),
  },
  REASONING_MESSAGE_CONTENT: { ...OF_A_MESSAGE_EVENT, delta: text },
  REASONING_MESSAGE_END: OF_A_MESSAGE_EVENT,
  REASONING_MESSAGE_CHUNK: { messageId: optional(text), delta: optional(text) },
  REASONING_ENCRYPTED_VALUE: {
    subtype: fc.constantFrom("tool-call", "message"),
    entityId: text,
    encryptedValue: text,
  },
  STATE_SNAPSHOT: { snapshot: anything },
  STATE_DELTA: { delta: patch },
  MESSAGES_SNAPSHOT: { messages: list(message) },
  ACTIVITY_SNAPSHOT: {
    ...OF_A_MESSAGE_EVENT,
    activityType: text,
    content: record,
    replace: optional(fc.boolean()),
  },
  ACTIVITY_DELTA: { ...OF_A_MESSAGE_EVENT, activityType: text, patch },
  SUBAGENT_STARTED: {
    subagentRunId: text,
    name: text,
    description: optional(text),
    parentSubagentRunId: optional(text),
  },
  SUBAGENT_FINISHED: {
    subagentRunId: text,
    result: optional(anything),
    outcome: optional(subagentOutcome),
  },
  SUBAGENT_ERROR: { subagentRunId: text, message: text, code: optional(text) },
  RAW: { event: anything, source: optional(text) },
  CUSTOM: { name: text, value: anything },
};

export interface DrawnEvent {
  readonly type: string;
  readonly payload: string;
}

/** Half of the draws: most differences between versions are in messages. */
const WITH_MESSAGES = ["MESSAGES_SNAPSHOT", "RUN_STARTED"];

export const drawnEvent: fc.Arbitrary<DrawnEvent> = fc.oneof(
  ...Object.entries(SHAPES).map(([type, shape]) => ({
    weight: WITH_MESSAGES.includes(type) ? 17 : 1,
    arbitrary: object({ ...OF_EVERY_EVENT, ...shape }).map((fields) => {
      if (typeof fields !== "object") throw new TypeError("not drawn as an object");
      return { type, payload: JSON.stringify({ ...fields, type }) };
    }),
  })),
);
