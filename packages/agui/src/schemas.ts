/**
 * The schemas of the protocol's versions, one per type and generation: CURRENT is 1.0.0 as
 * @ag-ui/core publishes it, EARLIER the union of 0.0.57 to 0.0.59, written as differences to 1.0.0.
 * An event is refused only when both refuse it.
 *
 * The differences were found by comparison of the published schemas, and by random events. They are
 * of three kinds: a field that 1.0.0 made required or narrower (`value`, `snapshot`, `event`, JSON
 * Patch, any number as timestamp), a feature it dropped (THINKING_*, binary parts), and a field
 * that an earlier version took as an unknown key (`metadata`, `subagentRunId`, `usage`,
 * `protocolVersion`).
 */
import {
  ActivityMessageSchema,
  AssistantMessageSchema,
  AudioPartSchema,
  BaseEventSchema,
  ContextSchema,
  DataSourceSchema,
  DeveloperMessageSchema,
  DocumentPartSchema,
  EventSchema,
  ImagePartSchema,
  InterruptSchema,
  ReasoningMessageSchema,
  ResumeEntrySchema,
  RunAgentInputSchema,
  SystemMessageSchema,
  TextPartSchema,
  ToolCallSchema,
  ToolMessageSchema,
  ToolSchema,
  UrlSourceSchema,
  UserMessageSchema,
  VideoPartSchema,
} from "@ag-ui/core/schemas";
import { z } from "zod";
import type { EventType } from "./catalogue.ts";
import { isObject, type JsonObject } from "./json.ts";

type Schemas = ReadonlyMap<string, z.ZodObject>;

export const CURRENT: Schemas = new Map(
  EventSchema.options.map((schema) => [schema.shape.type.value as string, schema as z.ZodObject]),
);

/** Any number: zod refuses the infinity that JSON.parse makes of 1e999, and 0.0.59 did not. */
const ANY_NUMBER = z.custom<number>((value) => typeof value === "number", "a number").optional();
/** Optional with any value: zod's own z.any() requires the key. */
const ANYTHING = z.any().optional();
const AN_OBJECT = z.custom<JsonObject>(isObject, "an object");
const ANY_LIST = z.array(z.any());
/** Optional, with any value; normalisation drops a null, as in any optional field. */
const NOT_NULL = BaseEventSchema.shape.rawEvent;

const UNKNOWN_TO_IT = { metadata: ANYTHING, subagentRunId: ANYTHING };
const EARLIER_BASE = { timestamp: ANY_NUMBER, rawEvent: ANYTHING };

const BINARY_PART = z
  .looseObject({
    type: z.literal("binary"),
    mimeType: z.string(),
    id: z.string().optional(),
    url: z.string().optional(),
    data: z.string().optional(),
    filename: z.string().optional(),
  })
  .refine((part) => Boolean(part.id) || Boolean(part.url) || Boolean(part.data), {
    message: "set, where url and data are not",
    path: ["id"],
  });

const OPEN_PART = { id: ANYTHING, metadata: ANYTHING };
const MEDIA_PART = {
  ...OPEN_PART,
  source: z.discriminatedUnion("type", [DataSourceSchema, UrlSourceSchema]),
};

const EARLIER_PART = z.discriminatedUnion("type", [
  TextPartSchema.extend(OPEN_PART),
  ImagePartSchema.extend(MEDIA_PART),
  AudioPartSchema.extend(MEDIA_PART),
  VideoPartSchema.extend(MEDIA_PART),
  DocumentPartSchema.extend(MEDIA_PART),
  BINARY_PART,
]);

const EARLIER_MESSAGE = z.discriminatedUnion("role", [
  DeveloperMessageSchema.extend(UNKNOWN_TO_IT),
  SystemMessageSchema.extend(UNKNOWN_TO_IT),
  AssistantMessageSchema.extend({
    ...UNKNOWN_TO_IT,
    toolCalls: z.array(ToolCallSchema.extend({ metadata: ANYTHING })).optional(),
  }),
  UserMessageSchema.extend({
    ...UNKNOWN_TO_IT,
    content: z.union([z.string(), z.array(EARLIER_PART)]),
  }),
  ToolMessageSchema.extend({ ...UNKNOWN_TO_IT, content: z.string() }),
  ActivityMessageSchema.extend(UNKNOWN_TO_IT),
  ReasoningMessageSchema.extend(UNKNOWN_TO_IT),
]);

const EARLIER_INPUT = RunAgentInputSchema.extend({
  protocolVersion: ANYTHING,
  state: ANYTHING,
  messages: z.array(EARLIER_MESSAGE),
  tools: z.array(ToolSchema.extend({ parameters: ANYTHING })),
  context: z.array(ContextSchema),
  forwardedProps: ANYTHING,
  resume: z.array(ResumeEntrySchema.extend({ payload: ANYTHING, metadata: ANYTHING })).optional(),
});

const SUCCESS = z.strictObject({ type: z.literal("success") });

const RUN_OUTCOME = z.discriminatedUnion("type", [
  SUCCESS,
  z.strictObject({
    type: z.literal("interrupt"),
    interrupts: z.array(InterruptSchema.extend({ subagentRunId: ANYTHING })).min(1),
  }),
]);

const SUBAGENT_OUTCOME = z.discriminatedUnion("type", [
  SUCCESS,
  z.strictObject({
    type: z.literal("suspended"),
    interruptIds: z.array(z.string()).optional(),
  }),
]);

/** Types whose differences go beyond the fields of every event. */
const DIFFERENCES: Readonly<Record<string, z.ZodRawShape>> = {
  RUN_STARTED: { protocolVersion: ANYTHING, input: EARLIER_INPUT.optional() },
  RUN_FINISHED: { outcome: RUN_OUTCOME.optional(), result: ANYTHING, usage: ANYTHING },
  RUN_ERROR: { usage: ANYTHING },
  TOOL_CALL_RESULT: { content: z.string() },
  STATE_SNAPSHOT: { snapshot: ANYTHING },
  STATE_DELTA: { delta: ANY_LIST },
  MESSAGES_SNAPSHOT: { messages: z.array(EARLIER_MESSAGE) },
  ACTIVITY_DELTA: { patch: ANY_LIST },
  RAW: { event: ANYTHING },
  CUSTOM: { value: ANYTHING },
  SUBAGENT_FINISHED: { outcome: SUBAGENT_OUTCOME.optional(), result: ANYTHING },
} satisfies Partial<Record<EventType, z.ZodRawShape>>;

/** Subagents came with 0.0.59, which knew `metadata` and `subagentRunId` already. */
const FROM_0_0_59: ReadonlySet<string> = new Set<EventType>([
  "SUBAGENT_STARTED",
  "SUBAGENT_FINISHED",
  "SUBAGENT_ERROR",
]);

/** Types without a schema in 1.0.0: those it dropped, and a draft. THINKING_* have no ids. */
const NOT_CURRENT: Readonly<Partial<Record<EventType, z.ZodRawShape>>> = {
  THINKING_START: { title: z.string().optional() },
  THINKING_END: {},
  THINKING_TEXT_MESSAGE_START: {},
  THINKING_TEXT_MESSAGE_CONTENT: { delta: z.string() },
  THINKING_TEXT_MESSAGE_END: {},
  // https://docs.ag-ui.com/drafts/meta-events: allowed at any time, outside runs too.
  META: { metaType: z.string(), payload: AN_OBJECT.optional() },
};

export const EARLIER: Schemas = new Map([
  ...[...CURRENT].map(([type, schema]): [string, z.ZodObject] => [
    type,
    schema.extend({
      ...EARLIER_BASE,
      ...(FROM_0_0_59.has(type) ? {} : UNKNOWN_TO_IT),
      ...DIFFERENCES[type],
    }),
  ]),
  ...Object.entries(NOT_CURRENT).map(([type, fields]): [string, z.ZodObject] => [
    type,
    z.looseObject({
      type: z.literal(type),
      timestamp: ANY_NUMBER,
      rawEvent: NOT_NULL,
      metadata: NOT_NULL,
      ...fields,
    }),
  ]),
]);
