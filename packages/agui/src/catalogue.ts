import type { Violation } from "@session-ledger/base/errors";

/**
 * Every event type of the AG-UI protocol, once: the union of three generations (0.0.57 and 0.0.58
 * with 33 types, 0.0.59 with 36, 1.0.0 with 31) and the draft META. A type has the same meaning in
 * all of them. A construct is an object that several events build together: a message, a tool call,
 * a step. All other facts about a type are derived from this table and written nowhere else.
 */
type ProtocolVersion = "0.0.57" | "0.0.59" | "1.0.0";

type EventCategory =
  | "run"
  | "step"
  | "text"
  | "tool_call"
  | "thinking"
  | "reasoning"
  | "state"
  | "subagent"
  | "custom";

/** The kinds that have a START and an END. An id is unique only within its kind. */
export type ConstructKind =
  | "run"
  | "step"
  | "text"
  | "tool_call"
  | "thinking"
  | "thinking_message"
  | "reasoning"
  | "reasoning_message"
  | "subagent";

/** The effect of an event on its construct; `whole` is an event without a construct. */
type EventRole = "start" | "fragment" | "end" | "whole";

/** The payload field that identifies the construct of an event within its kind. */
type IdField = "messageId" | "toolCallId" | "stepName" | "subagentRunId";

interface Construct {
  readonly category: EventCategory;
  /** Absent: all of its events are whole. */
  readonly kind?: ConstructKind;
  readonly id?: IdField;
  /** First and last version that has the types; absent: all versions; `draft`: none. */
  readonly versions?: readonly [ProtocolVersion, ProtocolVersion] | "draft";
  readonly types: Readonly<Record<string, EventRole>>;
}

const CONSTRUCTS = [
  {
    category: "run",
    kind: "run",
    types: { RUN_STARTED: "start", RUN_FINISHED: "end", RUN_ERROR: "end" },
  },
  {
    category: "step",
    kind: "step",
    id: "stepName",
    types: { STEP_STARTED: "start", STEP_FINISHED: "end" },
  },
  {
    category: "text",
    kind: "text",
    id: "messageId",
    types: {
      TEXT_MESSAGE_START: "start",
      TEXT_MESSAGE_CONTENT: "fragment",
      TEXT_MESSAGE_END: "end",
      TEXT_MESSAGE_CHUNK: "fragment",
    },
  },
  {
    category: "tool_call",
    kind: "tool_call",
    id: "toolCallId",
    types: {
      TOOL_CALL_START: "start",
      TOOL_CALL_ARGS: "fragment",
      TOOL_CALL_END: "end",
      TOOL_CALL_CHUNK: "fragment",
      TOOL_CALL_RESULT: "whole",
    },
  },
  {
    category: "thinking",
    kind: "thinking",
    versions: ["0.0.57", "0.0.59"],
    types: { THINKING_START: "start", THINKING_END: "end" },
  },
  {
    category: "thinking",
    kind: "thinking_message",
    versions: ["0.0.57", "0.0.59"],
    types: {
      THINKING_TEXT_MESSAGE_START: "start",
      THINKING_TEXT_MESSAGE_CONTENT: "fragment",
      THINKING_TEXT_MESSAGE_END: "end",
    },
  },
  {
    category: "reasoning",
    kind: "reasoning",
    id: "messageId",
    types: { REASONING_START: "start", REASONING_END: "end" },
  },
  {
    category: "reasoning",
    kind: "reasoning_message",
    id: "messageId",
    types: {
      REASONING_MESSAGE_START: "start",
      REASONING_MESSAGE_CONTENT: "fragment",
      REASONING_MESSAGE_END: "end",
      REASONING_MESSAGE_CHUNK: "fragment",
    },
  },
  { category: "reasoning", types: { REASONING_ENCRYPTED_VALUE: "whole" } },
  {
    category: "state",
    types: { STATE_SNAPSHOT: "whole", STATE_DELTA: "whole", MESSAGES_SNAPSHOT: "whole" },
  },
  {
    category: "state",
    id: "messageId",
    types: { ACTIVITY_SNAPSHOT: "whole", ACTIVITY_DELTA: "whole" },
  },
  {
    category: "subagent",
    kind: "subagent",
    id: "subagentRunId",
    versions: ["0.0.59", "1.0.0"],
    types: { SUBAGENT_STARTED: "start", SUBAGENT_FINISHED: "end", SUBAGENT_ERROR: "end" },
  },
  { category: "custom", types: { RAW: "whole", CUSTOM: "whole" } },
  { category: "custom", versions: "draft", types: { META: "whole" } },
] as const satisfies readonly Construct[];

type KeyOfEach<T> = T extends unknown ? keyof T : never;

export type EventType = KeyOfEach<(typeof CONSTRUCTS)[number]["types"]>;

export interface CatalogueEntry {
  readonly type: EventType;
  readonly category: EventCategory;
  readonly kind: ConstructKind | undefined;
  readonly role: EventRole;
  readonly idField: IdField | undefined;
  /** The field with the text of a fragment; fragments in a row of one construct merge. */
  readonly fragmentField: "delta" | undefined;
  readonly firstVersion: ProtocolVersion | undefined;
  readonly lastVersion: ProtocolVersion | undefined;
}

export const CATALOGUE: readonly CatalogueEntry[] = CONSTRUCTS.flatMap(
  ({ types, ...construct }: (typeof CONSTRUCTS)[number]) => {
    const {
      category,
      kind,
      id,
      versions = ["0.0.57", "1.0.0"],
    }: Omit<Construct, "types"> = construct;
    const [firstVersion, lastVersion] = versions === "draft" ? [] : versions;
    return Object.entries(types).flatMap(([type, role]) => {
      const fragmentField = role === "fragment" ? ("delta" as const) : undefined;
      const of = { category, kind, role, idField: id, fragmentField, firstVersion, lastVersion };
      return isKeyOf(types, type) ? { type, ...of } : [];
    });
  },
);

const BY_TYPE: ReadonlyMap<string, CatalogueEntry> = new Map(
  CATALOGUE.map((entry) => [entry.type, entry]),
);

export function lookup(type: string): CatalogueEntry | undefined {
  return BY_TYPE.get(type);
}

/** Whether consecutive events of the type merge into one row, which then counts several events. */
export function isCompressible(type: string): boolean {
  return BY_TYPE.get(type)?.role === "fragment";
}

/** Object.entries loses the key types; this check restores them. */
function isKeyOf<T extends object>(record: T, key: string): key is KeyOfEach<T> & string {
  return Object.hasOwn(record, key);
}

/** The limit of events that one row stands for. */
export const EVENT_COUNT_MAX = 1_000_000;

export function checkEventCount(eventType: string, eventCount: number): Violation | undefined {
  if (eventCount < 0 || eventCount > EVENT_COUNT_MAX)
    return refused(`event_count must be from 0 to ${EVENT_COUNT_MAX}, but is ${eventCount}`);
  if (eventCount > 1 && !isCompressible(eventType))
    return refused(`event_count must be 1, or left out: only fragments of a text are counted`);
  return undefined;
}

function refused(description: string): Violation {
  return { field: "event_count", description };
}
