/**
 * Random events for reducers of messages: they are drawn from few ids, so that they meet. Messages of
 * one id in several roles, calls whose parent is there or not, results before and after, snapshots in
 * the middle of texts, patches that fail, runs that follow each other.
 */
import * as fc from "fast-check";
import type { JsonObject } from "@session-ledger/agui/json";
import type { ClientVersion } from "./agui-reducers.ts";

const text = fc.constantFrom("", "one ", "two\n", "\u{1f600}", '{"q":');
const json = fc.oneof(fc.constantFrom(null, 0, false, "", "text", 1), fc.dictionary(text, text));
const metadata = fc.dictionary(fc.constantFrom("usage", "trace", "finish"), json, { minKeys: 1 });

/** With any of the optional fields, or none. */
function event(
  type: string,
  fields: Readonly<Record<string, fc.Arbitrary<unknown>>>,
  others: Readonly<Record<string, fc.Arbitrary<unknown>>> = {},
): fc.Arbitrary<JsonObject> {
  const all: Record<string, fc.Arbitrary<unknown>> = { ...fields, ...others, metadata };
  return fc.record(all, { requiredKeys: Object.keys(fields) }).map((drawn) => ({ type, ...drawn }));
}

const operation = fc
  .record({
    op: fc.constantFrom("add", "add", "replace", "remove", "test", "move", "copy"),
    path: fc.constantFrom("", "/a", "/b", "/a/x", "/list", "/list/0", "/list/-", "/__proto__/x"),
    from: fc.constantFrom("/a", "/b", "/list/0", "/list"),
    value: fc.oneof(json, fc.constantFrom([1, 2], { a: { x: 1 }, list: [] })),
  })
  .map(({ op, path, from, value }) => {
    if (op === "remove") return { op, path };
    // In place of the root comes nothing at all when the client finds nothing there to move.
    if (op === "move" || op === "copy") return { op, path: path === "" ? "/c" : path, from };
    // Nor does an operation on an entry of a text or a number fail there: it changes nothing.
    return { op, path, value: path === "" ? { a: value } : value };
  });
const patch = fc.array(operation, { maxLength: 3 });

export interface Ids {
  /** Of texts, and what else comes under their ids. */
  readonly text: readonly string[];
  readonly reasoning: readonly string[];
  readonly activity: readonly string[];
  /** Of activities in snapshots: the ids of one must be different, the transcript does not promise more. */
  readonly snapshotActivity: readonly string[];
  readonly results: readonly string[];
}

export const MIXED: Ids = {
  text: ["a", "b", "c", "t", "x"],
  reasoning: ["a", "r", "x"],
  activity: ["a", "x", "y"],
  snapshotActivity: ["x", "y"],
  results: ["a", "b", "t", "r1"],
};
export const APART: Ids = {
  text: ["a", "b", "c"],
  reasoning: ["r", "s"],
  activity: ["x", "y"],
  snapshotActivity: ["x", "y"],
  results: ["a", "r1", "r2"],
};

export function streamOf(ids: Ids, version: ClientVersion): fc.Arbitrary<readonly JsonObject[]> {
  const of = (one: readonly string[]): fc.Arbitrary<string> => fc.constantFrom(...one);
  const isNewest = version === "1.0.0";
  const subagentRunId = fc.constantFrom("s1", "s2");
  const textId = of(ids.text);
  const callId = fc.constantFrom("t", "u", "v", ...(isNewest ? ["a"] : []));
  const call = fc
    .record({ id: callId, name: of(["f", "g"]), arguments: text })
    .map(({ id, ...called }) => ({ id, type: "function", function: called }));
  const parts = fc.constantFrom(
    [{ type: "text", text: "look" }],
    [{ type: "image", source: { type: "url", value: "https://example.com/a.png" } }],
  );
  const content = fc.record({ steps: fc.array(text, { maxLength: 2 }), a: json });
  const activityType = fc.constantFrom("PLAN", "MAP");
  const attributed = {
    subagentRunId: isNewest ? fc.constantFrom("s1", null) : subagentRunId,
    metadata,
  };
  const message = fc.oneof(
    optional({ id: textId, role: of(["user"]), content: fc.oneof(text, parts) }, { name: text }),
    optional(
      { id: textId, role: of(["assistant"]) },
      { content: text, toolCalls: fc.array(call, { minLength: 1, maxLength: 2 }), ...attributed },
    ),
    optional({ id: textId, role: of(["system", "developer"]), content: text }, attributed),
    optional(
      { id: of(ids.results), role: of(["tool"]), content: text, toolCallId: callId },
      attributed,
    ),
    optional({ id: of(ids.reasoning), role: of(["reasoning"]), content: text }, attributed),
    optional(
      { id: of(ids.snapshotActivity), role: of(["activity"]), activityType, content },
      attributed,
    ),
  );
  const messages = fc.array(message, { maxLength: 4 }).map(withDistinctActivities);
  const owned = fc.constantFrom(
    {},
    ...(isNewest
      ? [null, [], ["PLAN"], "nonsense"].map((authoritativeActivityTypes) => ({
          metadata: { "@ag-ui/client": { authoritativeActivityTypes } },
        }))
      : []),
  );
  const snapshot = fc
    .tuple(messages, owned)
    .map(([all, authority]) => ({ type: "MESSAGES_SNAPSHOT", messages: all, ...authority }));
  const run = { threadId: fc.constant("thread"), runId: fc.constant("run") };
  const interrupts = fc.array(
    fc.record({ id: fc.constantFrom("i", "j"), reason: fc.constant("approve") }),
    { minLength: 1, maxLength: 2 },
  );
  const outcome = fc.oneof(
    fc.constant({ type: "success" }),
    interrupts.map((asked) => ({ type: "interrupt", interrupts: asked })),
  );
  const input = fc.record({ messages }).map((drawn) => ({
    threadId: "thread",
    runId: "run",
    state: {},
    tools: [],
    context: [],
    forwardedProps: {},
    ...drawn,
  }));
  const result = isNewest ? fc.oneof(text, parts) : text;
  const any = fc.oneof(
    event("RUN_STARTED", run, { input }),
    event("RUN_FINISHED", run, { outcome }),
    event("RUN_ERROR", { message: text }),
    event("STEP_STARTED", { stepName: text }),
    event("CUSTOM", { name: text, value: json }),
    event("SUBAGENT_STARTED", { subagentRunId, name: text }),
    { weight: 3, arbitrary: textEvents("TEXT_MESSAGE", textId, subagentRunId) },
    { weight: 2, arbitrary: textEvents("REASONING_MESSAGE", of(ids.reasoning), subagentRunId) },
    event(
      "REASONING_ENCRYPTED_VALUE",
      { entityId: fc.oneof(textId, callId), encryptedValue: text },
      {},
    ).chain((value) =>
      fc.constantFrom("message", "tool-call").map((subtype) => ({ ...value, subtype })),
    ),
    event(
      "TOOL_CALL_START",
      { toolCallId: callId, toolCallName: of(["f", "g"]) },
      { parentMessageId: fc.oneof(textId, fc.constant("")), subagentRunId },
    ),
    event("TOOL_CALL_ARGS", { toolCallId: callId, delta: text }),
    event("TOOL_CALL_END", { toolCallId: callId }),
    event(
      "TOOL_CALL_RESULT",
      { messageId: of(ids.results), toolCallId: callId, content: result },
      { role: fc.constant("tool"), subagentRunId },
    ),
    event("STATE_SNAPSHOT", { snapshot: fc.constantFrom(null, { a: {}, list: [1] }, ["x"]) }),
    { weight: 2, arbitrary: event("STATE_DELTA", { delta: patch }) },
    { weight: 2, arbitrary: snapshot },
    event(
      "ACTIVITY_SNAPSHOT",
      { messageId: of(ids.activity), activityType, content },
      { replace: fc.boolean(), subagentRunId },
    ),
    event("ACTIVITY_DELTA", { messageId: of(ids.activity), activityType, patch }),
  );
  return fc.array(any, { maxLength: 40 });
}

function optional(
  fields: Readonly<Record<string, fc.Arbitrary<unknown>>>,
  others: Readonly<Record<string, fc.Arbitrary<unknown>>>,
): fc.Arbitrary<JsonObject> {
  return fc.record({ ...fields, ...others }, { requiredKeys: Object.keys(fields) });
}

function textEvents(
  prefix: "TEXT_MESSAGE" | "REASONING_MESSAGE",
  messageId: fc.Arbitrary<string>,
  subagentRunId: fc.Arbitrary<string>,
): fc.Arbitrary<JsonObject> {
  const isText = prefix === "TEXT_MESSAGE";
  const role = isText ? fc.constantFrom("assistant", "user") : fc.constant("reasoning");
  return fc.oneof(
    event(`${prefix}_START`, { messageId, role }, { subagentRunId, ...(isText && { name: text }) }),
    // An empty delta is nothing that 0.0.59 takes.
    event(`${prefix}_CONTENT`, { messageId, delta: text.filter((delta) => delta !== "") }),
    event(`${prefix}_END`, { messageId }),
  );
}

function withDistinctActivities(messages: readonly JsonObject[]): readonly JsonObject[] {
  const seen = new Set<unknown>();
  return messages.filter(({ id, role }) => {
    if (role !== "activity") return true;
    const isNew = !seen.has(id);
    seen.add(id);
    return isNew;
  });
}
