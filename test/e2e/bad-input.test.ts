/**
 * Method × field × wrong value. The fields of each request come from the descriptors; a field without a
 * rule here fails the first test. Each wrong value is refused by the name of its field, the refused call
 * stores nothing, and the next call is answered. The largest right values are accepted, each by a session of
 * its own. What several fields say together follows below the table.
 */
import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { create, toBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionOrder, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import { callBytes, callMethod, REQUESTS } from "../support/every-call.ts";
import { RpcFailure } from "../support/grpc-client.ts";
import {
  failureOf,
  GOOD,
  newSession,
  push,
  type PushFields,
  rowsOf,
  STREAMS,
} from "../support/pushing.ts";
import {
  encodedField,
  fieldsOf,
  type Init,
  minusOne,
  type RequestField,
  withValue,
} from "../support/request-fields.ts";
import { useService } from "../support/use-service.ts";

const { client } = useService();

type Method = (typeof SessionService.methods)[number];

/** A value, and what the violation adds to the path of the field. */
type Wrong = readonly [value: unknown, suffix?: string];

interface Rule {
  readonly good?: readonly unknown[];
  readonly bad?: readonly Wrong[];
  /** Its wrong values need other fields: COMBINATIONS has them, or the named test. */
  readonly combined?: boolean;
}

const KIB = 1_024;
const MEBIBYTE = 1_048_576;
const PAYLOAD_BYTES_MAX = 4_170_000;
const NUL = "a\0b";
const NOT_UTF8 = Uint8Array.of(0x61, 0xc3, 0x28);

/** A text of at most `bytesMax` bytes in UTF-8, counted in bytes and not in characters. */
function text(bytesMax: number, { required = false } = {}): Rule {
  const long: readonly Wrong[] = [["x".repeat(bytesMax + 1)], ["é".repeat(bytesMax / 2 + 1)]];
  return {
    good: ["x".repeat(bytesMax), "é".repeat(bytesMax / 2)],
    bad: required ? [...long, [""]] : long,
  };
}

function upTo(max: number): Rule {
  return { good: [0, 1, max], bad: [[max + 1]] };
}

function oneOf(words: readonly string[], ...wrong: readonly string[]): Rule {
  return { good: words, bad: wrong.map((word) => [word]) };
}

const NOT_IDS = ["x".repeat(129), "a b", "a/b", "a\n", "é", ".", ".."];
const LONGEST_ID = (): string => `${randomUUID()}._:-Z9`.padEnd(128, "x");
const ID: Rule = { good: [LONGEST_ID], bad: [...NOT_IDS, ""].map((id) => [id]) };
const OPTIONAL_ID: Rule = { good: ["", LONGEST_ID], bad: NOT_IDS.map((id) => [id]) };
const EPOCH: Rule = { good: [2n ** 63n - 1n], bad: [[2n ** 63n], [2n ** 64n - 1n]] };
const PHASES = ["Pending", "Creating", "Running", "Stopping", "Stopped", "Completed", "Failed"];
const labels = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, "v"]));
const LABELS: Rule = {
  good: [labels(16), { k: "v".repeat(1_023) }],
  bad: [[labels(17)], [{ k: "v".repeat(1_024) }], [{ k: "\0" }], [{ "\0": "v" }]],
};
const types = (count: number) => Array.from({ length: count }, () => "RAW");
const EVENT_TYPES: Rule = {
  good: [types(64)],
  bad: [[types(65)], [["RAW", ""], "[1]"], [["a b"], "[0]"], [["A\0"], "[0]"]],
};
/** Regression: they were compared with the types of events, which no message has. */
const MESSAGE_FILTER: Rule = {
  good: [MESSAGE_TYPES],
  bad: [
    [["user", "RAW"], "[1]"],
    [[""], "[0]"],
  ],
};

/** By the path of the field, in all methods or in one. */
const RULES: Readonly<Record<string, Rule>> = {
  id: ID,
  session_id: ID,
  new_id: OPTIONAL_ID,
  "open.session_id": ID,
  "CreateSession.parent_session_id": ID,
  "ListSessions.parent_session_id": OPTIONAL_ID,
  "SearchTexts.session_id": text(128),
  project_id: text(KIB),
  name: text(KIB, { required: true }),
  prompt: text(MEBIBYTE),
  llm_model: text(KIB),
  "CreateSession.labels": text(64 * KIB),
  "UpdateSession.labels": text(64 * KIB),
  labels: LABELS,
  annotations: text(64 * KIB),
  capabilities: { good: ["", "{}"], bad: [["x".repeat(64 * KIB + 1)]] },
  "CreateSession.agent_id": text(KIB),
  "UpdateSessionStatus.agent_id": text(KIB),
  "ListSessions.agent_id": text(KIB),
  "SearchTexts.agent_id": text(KIB),
  "ListSessions.state": { good: [0, 1, 6], bad: [[7], [-1]] },
  "WatchSessions.state": { good: [0, 1, 6], bad: [[7], [-1]] },
  "ListSessions.phase": oneOf(["", ...PHASES], "running"),
  phase: oneOf(PHASES, "", "running"),
  page: upTo(10_000),
  size: upTo(1_000),
  page_size: upTo(1_000),
  "ListRuns.page_size": upTo(100),
  "SearchTexts.page_size": upTo(100),
  "ListSessions.query": text(KIB),
  "ListSessions.order_by": { good: [SessionOrder.ACTIVITY] },
  "SearchTexts.query": { ...text(KIB), bad: [["x".repeat(KIB + 1)], [""], [" "]] },
  "SearchTexts.order_by": { good: [0, 1] },
  "SearchTexts.role": oneOf(["", "user", "tool"], "User", "robot"),
  "SearchTexts.event_type": text(128),
  page_token: oneOf([""], "x"),
  at_seq: { combined: true },
  at_message_seq: { combined: true },
  /** Of one that is too large, of the JSON and of AG-UI: the tests below, and bad-input-payloads. */
  payload: {},
  "PushSessionMessage.payload": { good: ["", "x".repeat(PAYLOAD_BYTES_MAX)] },
  "PushSessionMessage.event_type": oneOf(
    MESSAGE_TYPES,
    "",
    "User",
    "user ",
    "tool",
    "TEXT_MESSAGE_START",
  ),
  "PushSessionEvent.event_type": oneOf([], "", "Custom", "X".repeat(65), "FOO_BAR"),
  event_count: { good: [0, 1, 1_000_000], bad: [[-2_147_483_648], [1_000_001]] },
  idempotency_key: text(128),
  producer_epoch: EPOCH,
  "open.producer_epoch": EPOCH,
  ...Object.fromEntries(
    ["id", "name", "display_name", "channel", "channel_id", "thread_id"].map((name) => [
      `sender.${name}`,
      text(KIB),
    ]),
  ),
  "fragments.lengths": { combined: true },
  "fragments.timestamp_deltas_ms": { combined: true },
  "fragments.raw_events.lengths": { combined: true },
  "fragments.raw_events.steps": { combined: true },
  "fragments.raw_events.texts": { combined: true },
  "open.compression": { good: [0, 1, 2] },
  "open.max_age_ms": upTo(5_000),
  "open.max_text_bytes": upTo(65_536),
  // Behind the first frame: push-stream.test.ts.
  "batch.first_client_seq": { combined: true },
  "batch.events.event_type": { combined: true },
  "batch.events.payload": { combined: true },
  "batch.events.occurred_at": { combined: true },
  /** Below 0 is the beginning; above the head is OUT_OF_RANGE: pages.test.ts. */
  after_seq: { combined: true, good: [-5n, 0n] },
  before_seq: {},
  up_to_seq: {},
  "ListSessionMessages.event_types": MESSAGE_FILTER,
  "WatchMessages.event_types": MESSAGE_FILTER,
  event_types: EVENT_TYPES,
  run_id: {},
  "CancelRun.run_id": text(128, { required: true }),
  "CancelRun.reason": text(KIB),
  "HoldSession.reason": text(KIB, { required: true }),
  messages_max: upTo(1_000),
  run_started: {
    bad: [
      [""],
      ["{}", ".runId"],
      ['{"runId":"r","metadata":1}', ".metadata"],
      ['{"runId":"r","metadata":{"session":{}}}', ".metadata.session"],
    ],
  },
  wait: {
    good: [{ seconds: 60n }],
    bad: [[{ seconds: -1n }], [{ nanos: -1 }], [{ nanos: 1e9 }], [{ seconds: 60n, nanos: 1 }]],
  },
  envelope_tokens: { good: [2n ** 53n] },
  message_id: text(KIB, { required: true }),
  kind: oneOf(["k".repeat(64), "Aa0_.:-"], "", "a b", "k".repeat(65)),
  comment: text(4 * KIB),
  trace_id: text(128),
  "IssueSessionToken.role": oneOf(["", "runner", "viewer"], "admin", "Runner"),
  ttl: {
    good: [{ seconds: 1n }],
    bad: [[{ seconds: 0n }], [{ seconds: -1n }], [{ seconds: 10n ** 9n }]],
  },
  cursor: oneOf([""], "x", "x".repeat(513)),
};

function ruleOf({ name }: Method, { path }: RequestField): Rule | undefined {
  return RULES[`${name}.${path}`] ?? RULES[path];
}

/** Years 1 to 9999, and nanos that count forward within a second. */
const WRONG_TIMES: readonly Wrong[] = [
  [{ seconds: -62_135_596_801n, nanos: 999_999_999 }, ".seconds"],
  [{ seconds: 253_402_300_800n }, ".seconds"],
  [{ nanos: -1 }, ".nanos"],
  [{ nanos: 1_000_000_000 }, ".nanos"],
];

/** Wrong in each field of this kind. */
function wrongByKind(field: RequestField): readonly Wrong[] {
  if (field.kind === "text") return [[NUL]];
  if (field.kind === "time") return WRONG_TIMES;
  if (field.kind === "enum") return [[99]];
  const below = field.kind === "number" ? minusOne(field) : undefined;
  return below === undefined ? [] : [[below]];
}

const PROJECT = `p-${randomUUID()}`;

/** A request that is accepted. */
function requestOf({ name }: Method, sessionId: string): Init {
  if (name === "CreateSession") return { name: "n", projectId: PROJECT };
  if (name === "HoldSession") return { id: sessionId, reason: "held" };
  if (name === "PushSessionEvent") {
    return { sessionId, eventType: "TEXT_MESSAGE_CHUNK", payload: '{"delta":"x"}' };
  }
  return (REQUESTS[name] ?? REQUESTS[`${name} user`])?.(sessionId) ?? {};
}

interface Row {
  readonly title: string;
  readonly bytes: Uint8Array;
  readonly names: readonly string[];
  /** A word of the description. */
  readonly says?: string | undefined;
}

function wrongRows(method: Method, sessionId: string): readonly Row[] {
  const base = requestOf(method, sessionId);
  return fieldsOf(method).flatMap((field): readonly Row[] => {
    const { combined = false, bad = [] } = ruleOf(method, field) ?? {};
    const rows = combined ? [] : [...wrongByKind(field), ...bad];
    return rows.map(([value, suffix = ""]) => {
      const request = withValue(base, field.way, value);
      const bytes = bytesOf(method, request);
      const names = [`${field.path}${suffix}`];
      return { title: titleOf(field, value), bytes, names, says: field.way.at(-1)?.name };
    });
  });
}

function bytesOf(method: Method, request: Init): Uint8Array {
  return toBinary(method.input, create(method.input, request));
}

function titleOf({ path }: RequestField, value: unknown): string {
  const shown = JSON.stringify(value, (_, one: unknown) =>
    typeof one === "bigint" ? `${one}` : one,
  );
  return shown.length < 60 ? `${path} = ${shown}` : `${path} of ${shown.length} characters`;
}

/** Everything that a call of these tests could change. */
async function stateOf(sessionId: string) {
  const { getSession, listSessions } = SessionService.method;
  const session = await client.unary(getSession, { id: sessionId });
  const { metadata } = await client.unary(listSessions, { size: 1, projectId: PROJECT });
  return { session, sessions: metadata?.total };
}

/** What the answer to a wrong request lacks; undefined: it is right. */
async function faultOf(method: Method, row: Row): Promise<string | undefined> {
  const failure = await failureOf(callBytes(client, method, row.bytes)).catch(
    (error: Error) => error,
  );
  if (!(failure instanceof RpcFailure)) return `${row.title}: ${failure.message}`;
  const { code, reason, domain, violations, retryAfterMs } = failure;
  const seen = { code, reason, domain, names: violations.map(({ field }) => field), retryAfterMs };
  const wanted = {
    code: "INVALID_ARGUMENT",
    reason: "INVALID_REQUEST",
    domain: "session-ledger",
    names: row.names,
    retryAfterMs: undefined, // The same call can never succeed.
  };
  const says = violations.every(({ description }) => description.includes(row.says ?? " "));
  if (isDeepStrictEqual(seen, wanted) && says) return undefined;
  return `${row.title}: ${JSON.stringify({ ...seen, violations })}`;
}

/** What is wrong with the answers; none of the calls may store anything. */
async function faultsOf(
  method: Method,
  rows: Iterable<Row>,
  sessionId: string,
): Promise<readonly string[]> {
  const faults: string[] = [];
  const before = await stateOf(sessionId);
  for (const row of rows) {
    const fault = await faultOf(method, row);
    if (fault !== undefined) faults.push(fault);
  }
  if (!isDeepStrictEqual(await stateOf(sessionId), before)) faults.push("something is stored");
  return faults;
}

const METHODS = SessionService.methods.map((method) => ({ name: method.name, method }));

test("each field of each request has a rule, and each rule a field", () => {
  const fields = METHODS.flatMap(({ name, method }) =>
    fieldsOf(method).map((field) => ({
      name,
      ...field,
      hasRule: ruleOf(method, field) !== undefined,
    })),
  );
  const without = fields.filter(
    ({ kind, hasRule }) => !hasRule && kind !== "flag" && kind !== "time",
  );
  expect(without.map(({ name, path }) => `${name}.${path}`)).toEqual([]);
  const named = new Set(fields.flatMap(({ name, path }) => [path, `${name}.${path}`]));
  expect(Object.keys(RULES).filter((rule) => !named.has(rule))).toEqual([]);
});

describe("a wrong value is refused by its name and stores nothing:", () => {
  const sessionId = newSession();
  beforeAll(async () => {
    await client.unary(SessionService.method.createSession, { name: "n", projectId: PROJECT });
    await push(client, "messages", { sessionId });
  });

  test.each(METHODS)("$name", async ({ method }) => {
    expect(await faultsOf(method, wrongRows(method, sessionId), sessionId)).toEqual([]);
  });

  test.each(METHODS)("$name, with a text that is not UTF-8", async ({ method }) => {
    const base = bytesOf(method, requestOf(method, sessionId));
    const rows = fieldsOf(method)
      .filter(({ kind }) => kind === "text" || kind === "texts")
      .map(({ path, way }) => {
        const bytes = Buffer.concat([base, encodedField(way, NOT_UTF8)]);
        return { title: path, bytes, names: [""] };
      });
    expect(await faultsOf(method, rows, sessionId)).toEqual([]);
  });
});

/** The default service has no key for tokens. */
const FAILS_LATER = new Set(["IssueSessionToken"]);

describe("the largest right values are accepted:", () => {
  test.each(METHODS)("$name", async ({ name, method }) => {
    const faults: string[] = [];
    const accepts = async (title: string, make: (base: Init) => Init): Promise<void> => {
      const request = make(requestOf(method, newSession()));
      await prepare(name, request);
      await callMethod(client, method, { request }).catch((error: unknown) => {
        const code = error instanceof RpcFailure ? error.code : "";
        const isLater = FAILS_LATER.has(name) && code === "FAILED_PRECONDITION";
        if (!isLater) faults.push(`${title}: ${String(error)}`);
      });
    };
    await accepts("the plain request", (base) => base);
    for (const field of fieldsOf(method)) {
      for (const value of ruleOf(method, field)?.good ?? []) {
        const put: unknown = typeof value === "function" ? value() : value;
        await accepts(titleOf(field, put), (base) => withValue(base, field.way, put));
      }
    }
    expect(faults).toEqual([]);
  });

  /** The session that the request needs, with its run, or its message. */
  async function prepare(name: string, request: Init): Promise<void> {
    const { frame } = request;
    const { value } = Object(frame);
    const sessionId = String(
      request["sessionId"] ?? request["id"] ?? Object(value).sessionId ?? "",
    );
    if (sessionId === "" || name === "SearchTexts") return;
    await push(client, "messages", { sessionId });
    const send = (event: Init) => {
      const eventType = String(event["type"]);
      return push(client, "events", { sessionId, eventType, payload: JSON.stringify(event) });
    };
    const { runId, messageId } = request;
    if (name === "CancelRun") await send({ type: "RUN_STARTED", threadId: "t", runId });
    if (name !== "GiveFeedback") return;
    await send({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    await send({ type: "TEXT_MESSAGE_END", messageId });
  }
});

// What several fields say together.

const CHUNKS = { eventType: "TEXT_MESSAGE_CONTENT" };
const chunks = (payload: object, more: Init): Init => ({
  ...CHUNKS,
  payload: JSON.stringify({ messageId: "m", ...payload }),
  ...more,
});
const lengths = (count: number): readonly number[] => Array.from({ length: count }, () => 1);
const RAW = { eventType: "RAW", payload: '{"event":1}' };
const START = { seconds: 5n, nanos: 1_000 };
const EARLIER = { seconds: 5n, nanos: 999 };

type Combination = readonly [
  method: string,
  title: string,
  more: Init,
  names: readonly string[],
  message?: RegExp,
];

const COMBINATIONS: readonly Combination[] = [
  [
    "PushSessionMessage",
    "everything wrong at once",
    { sessionId: "", eventType: "", payload: NUL, idempotencyKey: NUL },
    ["session_id", "event_type", "payload", "idempotency_key"],
    /^session_id is required$/,
  ],
  [
    "PushSessionEvent",
    "everything wrong at once",
    { sessionId: "", eventType: "", payload: NUL, idempotencyKey: NUL },
    ["session_id", "event_type", "payload", "idempotency_key"],
    /^session_id is required$/,
  ],
  [
    "PushSessionEvent",
    "completed_at a microsecond before created_at",
    { createdAt: START, completedAt: EARLIER },
    ["completed_at"],
    /^completed_at must not be before created_at$/,
  ],
  [
    "PushSessionEvent",
    "an event_count of 2 on a type without fragments",
    { ...RAW, eventCount: 2 },
    ["event_count"],
    /must be 1, or left out/,
  ],
  [
    "PushSessionEvent",
    "fragments on a type that has none",
    { ...RAW, fragments: { lengths: [1] } },
    ["fragments"],
  ],
  [
    "PushSessionEvent",
    "lengths that do not add up to the delta",
    chunks({ delta: "abc" }, { eventCount: 2, fragments: { lengths: [2, 2] } }),
    ["fragments.lengths"],
    /3 UTF-16 units in all, as the delta is, but is 2/,
  ],
  [
    "PushSessionEvent",
    "more fragments than event_count",
    chunks({ delta: "ab" }, { eventCount: 2, fragments: { lengths: [2, 2, 1] } }),
    ["fragments.lengths"],
  ],
  [
    "PushSessionEvent",
    "a step that takes more texts than exist",
    chunks(
      { delta: "ab", rawEvent: { at: 1 } },
      {
        eventCount: 2,
        fragments: { rawEvents: { lengths: [2, 2], steps: [0, 4 * 9 + 2, 0, 0], texts: "2" } },
      },
    ),
    ["fragments.raw_events"],
    /texts of another length/,
  ],
  [
    "PushSessionEvent",
    "fewer time differences than fragments",
    chunks(
      { delta: "abc", timestamp: 5 },
      { eventCount: 3, fragments: { lengths: [2, 2, 2], timestampDeltasMs: [1n] } },
    ),
    ["fragments.timestamp_deltas_ms"],
  ],
  [
    "PushSessionEvent",
    "a row that would expand to more than 64 MiB",
    chunks(
      { messageId: "m".repeat(70), delta: "" },
      { eventCount: 700_000, fragments: { lengths: lengths(700_000) } },
    ),
    ["payload"],
    /at most 67108864 bytes when expanded/,
  ],
  ["ListSessionMessages", "two cursors", { afterSeq: 1n, beforeSeq: 5n }, ["before_seq"]],
  ["ListSessionEvents", "two cursors", { afterSeq: 1n, beforeSeq: 5n }, ["before_seq"]],
  ["ListSessions", "a page beyond 10,000 sessions", { page: 101, size: 100 }, ["page"]],
  ["ListSessions", "a page and a token", { page: 1, pageToken: "newest.1.1.s" }, ["page"]],
  ["ListSessions", "a token of another order", { pageToken: "activity.1.1.s" }, ["page_token"]],
  ["ListSessions", "an order that needs a filter", { orderBy: SessionOrder.WAITING }, ["order_by"]],
  ["ForkSession", "no number", { atMessageSeq: 0n }, ["at_seq"]],
  ["ForkSession", "two numbers", { atSeq: 1n }, ["at_message_seq"]],
  ["ForkSession", "at_seq = -1", { atSeq: -1n, atMessageSeq: 0n }, ["at_seq"]],
  ["ForkSession", "at_message_seq = -1", { atMessageSeq: -1n }, ["at_message_seq"]],
  [
    "UpdateSessionStatus",
    "an end before the start",
    { startTime: START, completionTime: EARLIER },
    ["completion_time"],
  ],
  ["HoldSession", "a reason of a release", { release: true }, ["reason"]],
  [
    "WatchEvents",
    "a cursor and a time",
    { cursor: "x", startTime: START },
    ["cursor", "start_time"],
  ],
  ["PushSessionEvents", "no frame", { frame: { case: undefined } }, ["open"]],
  ["PushSessionEvents", "a flush first", { frame: { case: "flush", value: {} } }, ["open"]],
];

for (const [name, title, more, names, message = /./] of COMBINATIONS) {
  test(`${name} with ${title} is refused and stores nothing`, async () => {
    const method = SessionService.methods.find((one) => one.name === name);
    if (method === undefined) throw new Error(`there is no RPC ${name}`);
    const sessionId = newSession();
    await push(client, "messages", { sessionId });
    const bytes = bytesOf(method, { ...requestOf(method, sessionId), ...more });
    expect(await faultsOf(method, [{ title, bytes, names }], sessionId)).toEqual([]);
    const failure = await failureOf(callBytes(client, method, bytes));
    expect(failure.message).toMatch(message);
  });
}

describe.each(STREAMS)("%s: a push", (stream) => {
  /** Of a push that stores nothing. */
  async function refusalOf(fields: PushFields): Promise<RpcFailure> {
    const sessionId = newSession();
    await push(client, stream, { sessionId });
    const before = await stateOf(sessionId);
    const failure = await failureOf(push(client, stream, { sessionId, ...fields }));
    expect(await stateOf(sessionId)).toEqual(before);
    return failure;
  }

  test.each([
    [
      "in bytes",
      `{"name":"${"x".repeat(PAYLOAD_BYTES_MAX - 10)}"}`,
      /4170001 bytes, at most 4170000/,
    ],
    [
      "in bytes, though not in characters",
      `{"name":"${"é".repeat(PAYLOAD_BYTES_MAX / 2)}"}`,
      /at most/,
    ],
  ])("over the limit %s is RESOURCE_EXHAUSTED and stores nothing", async (_, payload, message) => {
    const failure = await refusalOf({ payload });
    const over = { code: "RESOURCE_EXHAUSTED", reason: "PAYLOAD_TOO_LARGE" };
    expect(failure).toMatchObject({ ...over, violations: [{ field: "payload" }] });
    expect(failure.message).toMatch(message);
    expect(failure.retryAfterMs).toBeUndefined();
  });

  test("of a request over 4 MiB is RESOURCE_EXHAUSTED and stores nothing", async () => {
    const failure = await refusalOf({ payload: "x".repeat(4 * MEBIBYTE) });
    const over = { code: "RESOURCE_EXHAUSTED", reason: "REQUEST_TOO_LARGE", violations: [] };
    expect(failure).toMatchObject(over);
  });

  test.each<[string, PushFields]>([
    ["a session_id of three dots and more", { sessionId: `...${randomUUID()}` }],
    [
      "a payload of the limit",
      { payload: `{"type":"CUSTOM","name":"${"x".repeat(PAYLOAD_BYTES_MAX - 27)}"}` },
    ],
    [
      "the JSON escapes of U+0000 and of half a surrogate pair",
      { payload: String.raw`{"type":"CUSTOM","name":"\u0000","\u0000":"\ud800"}` },
    ],
    [
      "characters that are rare, and U+FFFD",
      { payload: '{"type":"CUSTOM","name":"\u{1f600}\u2028\ufffd"}' },
    ],
  ])("of %s is stored as it came", async (_, fields) => {
    const sessionId = fields.sessionId ?? newSession();
    const answer = await push(client, stream, { ...fields, sessionId });
    expect(answer).toMatchObject({ seq: 1n, payload: fields.payload ?? GOOD[stream].payload });
    expect(await rowsOf(client, stream, sessionId)).toEqual([answer]);
  });
});

const YEAR_1 = { seconds: -62_135_596_800n, nanos: 0 };
const YEAR_9999 = { seconds: 253_402_300_799n, nanos: 999_999_000 };

describe("a push is accepted with", () => {
  test.each([
    ["the first moment of the year 1", YEAR_1, YEAR_1],
    ["the last moment of the year 9999", { ...YEAR_9999, nanos: 999_999_999 }, YEAR_9999],
    [
      "nanos before 1970, cut to microseconds towards the past",
      { seconds: -1n, nanos: 1_999 },
      { seconds: -1n, nanos: 1_000 },
    ],
  ])("%s", async (_, time, stored) => {
    const sessionId = newSession();
    const event = await push(client, "events", { sessionId, createdAt: time, completedAt: time });
    expect(event).toMatchObject({ createdAt: stored, completedAt: stored });
    expect(await rowsOf(client, "events", sessionId)).toEqual([event]);
    const message = await push(client, "messages", { sessionId, sentAt: time });
    expect(message).toMatchObject({ sentAt: stored });
    expect(await rowsOf(client, "messages", sessionId)).toEqual([message]);
  });

  test("a completed_at less than a microsecond before created_at", async () => {
    const [createdAt, completedAt] = [{ ...START, nanos: 1_999 }, START];
    const row = await push(client, "events", { sessionId: newSession(), createdAt, completedAt });
    expect(row).toMatchObject({ createdAt: START, completedAt: START });
  });

  test.each([
    [undefined, 1],
    [0, 1],
    [1_000_000, 1_000_000],
  ])("an event_count of %s, and takes %d numbers", async (eventCount, numbers) => {
    const sessionId = newSession();
    const chunk = { eventType: "TEXT_MESSAGE_CHUNK", payload: '{"delta":"x"}' };
    const counted = eventCount === undefined ? chunk : { ...chunk, eventCount };
    const row = await push(client, "events", { sessionId, ...counted });
    expect(row).toMatchObject({ seq: 1n, eventCount: numbers });
    expect((await push(client, "events", { sessionId })).seq).toBe(1n + BigInt(numbers));
  });

  test("a row that expands to exactly 64 MiB, and not with one event more", async () => {
    // 128 bytes around each delta, 2^19 times.
    const envelope = (id: string): string =>
      `{"type":"TEXT_MESSAGE_CHUNK","messageId":"${id}","delta":""}`;
    const payload = envelope("m".repeat(128 - envelope("").length));
    const eventCount = 2 ** 19;
    const sessionId = newSession();
    const pushed = (count: number) =>
      push(client, "events", {
        sessionId,
        eventType: "TEXT_MESSAGE_CHUNK",
        payload,
        eventCount: count,
        fragments: { lengths: [...lengths(count)] },
      });
    const failure = await failureOf(pushed(eventCount + 1));
    expect(failure.violations.map(({ field }) => field)).toEqual(["payload"]);
    expect(await pushed(eventCount)).toMatchObject({ seq: 1n, eventCount });
  });
});
