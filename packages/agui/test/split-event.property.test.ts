/**
 * Method: an event is drawn as the protocol spells it, and then disguised as producers spell it:
 * fields in snake_case or in both spellings, nulls in optional fields and for an empty id, no type,
 * white space, escaped keys. What was drawn is the model: it is what must be stored.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { CATALOGUE, type EventType } from "@session-ledger/agui/catalogue";
import { fieldsOfType, snakeName } from "@session-ledger/agui/normalise";
import { splitEvent, type ValidatedEvent } from "@session-ledger/agui/split-event";
import { parseObject } from "@session-ledger/agui/json";
import { properties } from "../../../test/support/random.ts";

type EventRows = ReturnType<typeof splitEvent>;

const NOW_MICROS = 1_770_389_237_000_000n;

function stored(
  eventType: string,
  payload: string,
  mode: "strict" | "lenient" = "strict",
): EventRows {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, ...times, hasFragments: false };
  return splitEvent(push, { mode, nowMicros: NOW_MICROS });
}

const text = fc.string({ unit: "binary", maxLength: 6 });
const anything = fc.jsonValue({ maxDepth: 2 });
const record = fc.dictionary(fc.constantFrom("message_id", "raw_event", "a", ""), anything, {
  maxKeys: 2,
});

/** What a field holds when it is right; all others are strings. */
const VALUES: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  timestamp: fc.integer(),
  rawEvent: anything.filter((value) => value !== null),
  metadata: record,
  role: fc.constantFrom("assistant", "user"),
  subtype: fc.constantFrom("tool-call", "message"),
  replace: fc.boolean(),
  value: anything,
  event: anything,
  snapshot: anything,
  result: anything.filter((value) => value !== null),
  payload: record,
  patch: fc.constant([{ op: "add", path: "/a", value: null }]),
  outcome: fc.constant({ type: "success" }),
  usage: fc.constant([{ model: "m", inputTokens: 1 }]),
  messages: fc.constant([{ id: "m", role: "tool", toolCallId: "c", content: "" }]),
  unknown_key: anything,
  input: fc.constant({ threadId: "t", runId: "r", messages: [], state: null }),
};

const OF_TYPE: Readonly<Record<string, Readonly<Record<string, fc.Arbitrary<unknown>>>>> = {
  STATE_DELTA: { delta: fc.constant([{ op: "remove", path: "" }]) },
  ACTIVITY_SNAPSHOT: { content: record },
  TOOL_CALL_RESULT: { role: fc.constant("tool") },
  REASONING_MESSAGE_START: { role: fc.constant("reasoning") },
};

/** Fields with one word have no snake_case; their names come from the catalogue's own schemas. */
const ONE_WORD: Readonly<Record<string, readonly string[]>> = {
  RUN_ERROR: ["message"],
  TEXT_MESSAGE_CONTENT: ["delta"],
  TOOL_CALL_ARGS: ["delta"],
  TOOL_CALL_RESULT: ["content"],
  THINKING_TEXT_MESSAGE_CONTENT: ["delta"],
  REASONING_MESSAGE_START: ["role"],
  REASONING_MESSAGE_CONTENT: ["delta"],
  REASONING_ENCRYPTED_VALUE: ["subtype"],
  STATE_DELTA: ["delta"],
  MESSAGES_SNAPSHOT: ["messages"],
  ACTIVITY_SNAPSHOT: ["content"],
  ACTIVITY_DELTA: ["patch"],
  SUBAGENT_STARTED: ["name"],
  SUBAGENT_ERROR: ["message"],
  CUSTOM: ["name"],
};

interface Drawn {
  readonly type: EventType;
  /** As the protocol spells it. */
  readonly event: Readonly<Record<string, unknown>>;
}

const drawn: fc.Arbitrary<Drawn> = fc
  .constantFrom(...CATALOGUE.map(({ type }) => type))
  .chain((type) => {
    const fields = fieldsOfType(type);
    const optional = [...(fields?.droppable ?? [])];
    const named = [...(fields?.bySnakeName.values() ?? []), ...(ONE_WORD[type] ?? [])];
    const required = named.filter((name) => !optional.includes(name));
    const valueOf = (name: string): fc.Arbitrary<unknown> =>
      OF_TYPE[type]?.[name] ?? VALUES[name] ?? text;
    const recordOf = (names: readonly string[]): Record<string, fc.Arbitrary<unknown>> =>
      Object.fromEntries(names.map((name) => [name, valueOf(name)]));
    return fc
      .record(
        { ...recordOf(optional), ...recordOf(required), ...recordOf(["unknown_key"]) },
        { requiredKeys: required },
      )
      .map((event) => ({ type, event }));
  });

type Spelling = "camel" | "snake" | "both" | "escaped";

/** How one member is written. */
const disguise = fc.record({
  spelling: fc.constantFrom<Spelling>("camel", "snake", "both", "escaped"),
  hasNullId: fc.boolean(),
  before: fc.constantFrom("", " ", "\n\t"),
  after: fc.constantFrom("", " ", "\r\n"),
});

interface Disguised extends Drawn {
  readonly payload: string;
}

const disguised: fc.Arbitrary<Disguised> = fc
  .tuple(drawn, fc.infiniteStream(disguise), fc.boolean(), fc.boolean())
  .map(([{ type, event }, disguises, hasType, hasNulls]) => {
    const fields = fieldsOfType(type);
    const write = (name: string, value: unknown): string => {
      const next = disguises.next();
      if (next.done === true) throw new Error("the stream has no end");
      const { spelling, hasNullId, before, after } = next.value;
      const known = fields?.bySnakeName.has(snakeName(name)) === true && name in event;
      const snake = known ? snakeName(name) : name;
      const key = { camel: [name], snake: [snake], both: [snake, name], escaped: [name] }[spelling];
      const isNull = hasNullId && value === "" && fields?.emptied.has(name) === true;
      return [...new Set(key)]
        .map((spelled) => {
          const printed = JSON.stringify(spelled);
          const escaped = printed.replace("e", "\\u0065");
          const shown = spelling === "escaped" ? escaped : printed;
          return `${before}${shown}${after}:${before}${isNull ? "null" : JSON.stringify(value)}${after}`;
        })
        .join(",");
    };
    const absent = [...(fields?.droppable ?? [])].filter((name) => !(name in event));
    const members = [
      ...(hasType ? [write("type", type)] : []),
      ...Object.entries(event).map(([name, value]) => write(name, value)),
      ...(hasNulls ? absent.map((name) => write(snakeName(name), null)) : []),
    ];
    return { type, event, payload: ` {${members.join(",")}} ` };
  });

test("events of producers are stored in the spelling of the protocol", () => {
  fc.assert(
    fc.property(disguised, ({ type, event, payload }) => {
      const result = stored(type, payload);
      if (!result.ok) throw new Error(JSON.stringify(result.violations));
      const [row] = result.rows;
      expect(JSON.parse(row.payload)).toEqual(JSON.parse(JSON.stringify({ type, ...event })));
      // Normalising twice is normalising once, and what needs no change is the very text.
      expect(stored(type, row.payload)).toEqual(result);
    }),
    properties({ runs: 2_000 }),
  );
});

test("an event in the spelling of the protocol keeps its exact text", () => {
  fc.assert(
    fc.property(drawn, fc.constantFrom(undefined, 1, "\t"), ({ type, event }, indent) => {
      const payload = JSON.stringify({ type, ...event }, undefined, indent);
      const result = stored(type, payload);
      expect(result.ok && result.rows[0].payload).toBe(payload);
    }),
    properties({ runs: 2_000 }),
  );
});

const KEYS = [
  ..."type messageId message_id delta timestamp role messages input outcome usage".split(" "),
  ..."fragment_count accumulated_content end_event toolCallId rawEvent __proto__".split(" "),
];

/** Objects that look like events, with anything in every field. */
const junk = fc.oneof(
  fc.json(),
  fc
    .dictionary(fc.constantFrom(...KEYS), fc.oneof(fc.constant(null), fc.nat(5), anything))
    .map((value) => JSON.stringify(value)),
);

test("no payload throws: it is stored, or refused with the reason", () => {
  const type = fc.constantFrom("FOREIGN", "foreign", ...CATALOGUE.map((entry) => entry.type));
  fc.assert(
    fc.property(type, junk, fc.constantFrom("strict", "lenient"), (eventType, payload, mode) => {
      const result = stored(eventType, payload, mode);
      expect(result.ok ? strangeRows(result.rows, mode) : strangeViolations(result)).toEqual([]);
    }),
    properties({ runs: 5_000 }),
  );
});

/** Rows of strict mode that would not be accepted again, or are marked as if they were not. */
function strangeRows(rows: readonly ValidatedEvent[], mode: string): readonly ValidatedEvent[] {
  const isFine = ({ eventType, payload, conformant }: ValidatedEvent): boolean =>
    stored(eventType, payload).ok && conformant === (eventType !== "META");
  return mode === "lenient" ? [] : rows.filter((row) => !isFine(row));
}

/** Violations that name no field that was sent, or do not begin with it. */
function strangeViolations({ violations }: Extract<EventRows, { ok: false }>): readonly unknown[] {
  if (violations.length === 0) return ["refused, but nothing is wrong"];
  return violations.filter(
    ({ field, description }) =>
      !/^(payload|event_type|event_count)/.test(field) || !description.startsWith(field),
  );
}

test("a group has as many events as its fragment_count, with the whole text", () => {
  const group = fc.record({
    text,
    fragments: fc.nat({ max: 1_000 }),
    isEnded: fc.boolean(),
    messageId: text,
  });
  fc.assert(
    fc.property(group, ({ text: content, fragments, isEnded, messageId }) => {
      const payload = {
        message_id: messageId,
        role: "assistant",
        ...(fragments > 0 && content !== "" ? { accumulated_content: content } : {}),
        fragment_count: fragments,
        ...(isEnded ? { end_event: { type: "TEXT_MESSAGE_END", message_id: messageId } } : {}),
      };
      const result = stored("TEXT_MESSAGE_START", JSON.stringify(payload));
      if (!result.ok) throw new Error(JSON.stringify(result.violations));
      const sum = result.rows.reduce((total, row) => total + row.eventCount, 0);
      expect(sum).toBe(1 + fragments + (isEnded ? 1 : 0));
      const values = result.rows.map((row) => parseObject(row.payload));
      expect(new Set(values.map((value) => value["messageId"]))).toEqual(new Set([messageId]));
      const deltas = values.flatMap(({ delta }) => (delta === undefined ? [] : [delta]));
      expect(deltas).toEqual(fragments > 0 ? [content] : []);
    }),
    properties({ runs: 1_000 }),
  );
});
