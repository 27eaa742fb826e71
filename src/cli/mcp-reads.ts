/** The tools of the command `mcp` that only read. An answer that is cut names how to read the rest. */
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";
import { type Run, RunStatusSchema } from "@session-ledger/proto/ambient/v1/conversation_pb";
import { type FoundText, SearchOrder } from "@session-ledger/proto/ambient/v1/search_pb";
import {
  type Session,
  SessionOrder,
  SessionState,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  isObject,
  type JsonObject,
  objectsIn,
  parseJson,
  parseObject,
} from "@session-ledger/agui/json";
import { usageIn } from "@session-ledger/agui/run-end";
import { transcriptMarkdown, transcriptText } from "@session-ledger/agui/transcript/readable";
import { ledger } from "@session-ledger/runner/internal/client";
import { timeText } from "@session-ledger/runner/internal/rows";
import { timeArgument } from "./arguments.ts";
import { idOf, STATES, stateWord } from "./columns.ts";
import type { Connection } from "./connection.ts";
import type { Asked } from "./session-list.ts";
import { type Answer, cut, id, oneLine, runOf, sessionId, textIn, toolAdder } from "./mcp-tools.ts";

const TRANSCRIPT_CHARS_MAX = 20_000;
const CALLS_MAX = 100;
const PAGES_MAX = 10;
const ROWS_OF_PAGE = 1_000;

const time = z.string().transform((text, context) => {
  try {
    return timeArgument(text);
  } catch {
    context.addIssue("Expected a time like 2026-01-31T12:00:00Z, or an age like 7d.");
    return z.NEVER;
  }
});
const seq = z
  .union([z.int().nonnegative(), z.string().regex(/^\d{1,18}$/)], "Expected a number from 0 up.")
  .transform(BigInt);
const project = z.string().max(1_024).default("").describe("Only sessions of this project");
const agent = z.string().max(1_024).default("").describe("Only sessions of this agent");
const labels = z
  .record(z.string().min(1).max(1_024), z.string().max(1_024))
  .default({})
  .describe("Only sessions with all of these labels");
const PAGE = {
  limit: z.int().min(1).max(100).default(20),
  page_token: z.string().max(4_096).default("").describe("next_page_token of the answer before"),
};

const SEARCH = z.strictObject({
  query: z
    .string()
    .min(1)
    .max(1_024)
    .describe('Words that a text must have; also "a phrase", or, and -word'),
  session_id: id.optional().describe("Only this session"),
  project,
  agent,
  labels,
  after: time.optional().describe("Only texts from this time on: RFC 3339, or an age like 7d"),
  order: z.enum(["newest", "best"]).default("newest"),
  ...PAGE,
});
const LIST = z.strictObject({
  state: z.enum([...STATES.keys()]).optional(),
  project,
  agent,
  labels,
  query: z.string().max(1_024).default("").describe("Only names or ids that contain this text"),
  ...PAGE,
});
const TRANSCRIPT = z.strictObject({
  session_id: sessionId,
  up_to_seq: seq.prefault(0).describe("As it was at this event; 0: now"),
  format: z.enum(["text", "markdown"]).default("text"),
  offset: z
    .int()
    .default(0)
    .describe(`The first character; -${TRANSCRIPT_CHARS_MAX} reads the end`),
});
const RUN = z.strictObject({
  session_id: sessionId,
  run_id: id.optional().describe("Default: the newest run"),
});
const INBOX = z.strictObject({
  project,
  labels,
  ...PAGE,
  limit: PAGE.limit.describe("Sessions; one may have several questions"),
});
export function addReads(server: McpServer, connection: Connection): void {
  const add = toolAdder(server, connection, { readOnlyHint: true, openWorldHint: false });
  add(
    "search_texts",
    "Find texts that people, agents and tools said, in all recorded sessions.",
    SEARCH,
    searchTexts,
  );
  add(
    "list_sessions",
    "List recorded sessions, the last active first, with their state, last text, tokens and tools.",
    LIST,
    listSessions,
  );
  add(
    "get_transcript",
    `Read the conversation of a session, ${TRANSCRIPT_CHARS_MAX} characters a call.`,
    TRANSCRIPT,
    getTranscript,
  );
  add(
    "get_run",
    "Show one run of a session: status, times, tool calls with arguments and results, and used tokens.",
    RUN,
    getRun,
  );
  add(
    "list_inbox",
    "List the questions and approvals that agents wait for, the longest wait first, over all sessions.",
    INBOX,
    listInbox,
  );
}

interface Found<R> {
  readonly items: readonly R[];
  /** Empty: everything was found. */
  readonly nextPageToken: string;
}

/** A page of the service may have few items and more pages behind it. */
async function gather<R>(
  { limit, page_token: first }: { readonly limit: number; readonly page_token: string },
  pageAt: (page: { readonly size: number; readonly pageToken: string }) => Promise<Found<R>>,
): Promise<Found<R>> {
  const items: R[] = [];
  let pageToken = first;
  for (let pages = 0; pages < PAGES_MAX && items.length < limit; pages += 1) {
    const found = await pageAt({ size: limit - items.length, pageToken });
    items.push(...found.items);
    pageToken = found.nextPageToken;
    if (pageToken === "") break;
  }
  return { items, nextPageToken: pageToken };
}

function listAnswer<R>(
  name: string,
  { items, nextPageToken }: Found<R>,
  entryOf: (item: R) => { readonly json: JsonObject; readonly line: string },
  rest: JsonObject = {},
): Answer {
  const entries = items.map(entryOf);
  const lines = entries.length === 0 ? ["Nothing was found."] : entries.map(({ line }) => line);
  const end = `More were found: call again with page_token ${nextPageToken}`;
  return {
    json: {
      [name]: entries.map(({ json }) => json),
      ...(nextPageToken === "" ? {} : { next_page_token: nextPageToken }),
      ...rest,
    },
    text: [...lines, ...(nextPageToken === "" ? [] : [end])].join("\n"),
  };
}

async function searchTexts(
  { client, retry }: Connection,
  asked: z.output<typeof SEARCH>,
): Promise<Answer> {
  const { query, session_id: session = "", project: projectId, agent: agentId, after } = asked;
  let indexedUntil = "";
  const found = await gather(asked, async ({ size: pageSize, pageToken }) => {
    const read = await client.call(
      ledger.searchTexts,
      {
        query,
        sessionId: session,
        projectId,
        agentId,
        labels: asked.labels,
        after: after && timestampFromDate(after),
        orderBy: asked.order === "best" ? SearchOrder.BEST : SearchOrder.UNSPECIFIED,
        pageSize,
        pageToken,
      },
      retry,
    );
    indexedUntil = timeText(read.indexedUntil);
    return read;
  });
  return listAnswer("texts", found, textEntry, { indexed_until: indexedUntil });
}

function textEntry(found: FoundText) {
  const text = found.excerpt.map((piece) => piece.text).join("");
  const json = {
    session_id: found.sessionId,
    session_name: found.sessionName,
    run_id: found.runId,
    stream: found.stream,
    seq: String(found.seq),
    role: found.role,
    time: timeText(found.createdAt),
    text,
  };
  const at = `${json.time} session ${json.session_id}, ${json.stream} ${json.seq}`;
  return { json, line: `${at}, ${json.role}: ${oneLine(text)}` };
}

async function listSessions(
  { client, retry }: Connection,
  asked: z.output<typeof LIST>,
): Promise<Answer> {
  const { project: projectId, agent: agentId, query } = asked;
  const state = STATES.get(asked.state ?? "") ?? SessionState.UNSPECIFIED;
  const filters = { projectId, agentId, query, labels: asked.labels, state };
  const extras = { facts: true, failures: true, orderBy: SessionOrder.ACTIVITY };
  const found = await gather(asked, (of) =>
    client.call(ledger.listSessions, { ...filters, ...extras, ...of }, retry),
  );
  return listAnswer("sessions", found, sessionEntry);
}

function sessionEntry(session: Session) {
  const { facts, failure } = session;
  const json = {
    id: idOf(session),
    name: session.name,
    project: session.projectId ?? "",
    agent: session.agentId ?? "",
    state: stateWord(session.state),
    created: timeText(session.metadata?.createdAt),
    last_activity: timeText(session.lastActivityAt),
    event_seq: String(session.eventSeq),
    message_seq: String(session.messageSeq),
    ...(session.openRunId === undefined ? {} : { open_run_id: session.openRunId }),
    ...(session.labels === undefined ? {} : { labels: cut(session.labels) }),
    ...(failure === undefined ? {} : { failure: { code: failure.code, message: failure.message } }),
    ...(facts === undefined
      ? {}
      : {
          last_text: facts.lastText,
          last_role: facts.lastRole,
          runs: facts.runs,
          input_tokens: String(facts.inputTokens),
          output_tokens: String(facts.outputTokens),
          models: facts.models,
          tool_calls: facts.toolCalls,
          failed_tool_calls: facts.failedToolCalls,
          tools: facts.tools,
        }),
  };
  const last = facts === undefined || facts.lastText === "" ? "" : `: ${oneLine(facts.lastText)}`;
  const line = `${json.id} (${json.state}, last active ${json.last_activity}) ${oneLine(json.name)}${last}`;
  return { json, line };
}

async function getTranscript(
  { client, retry }: Connection,
  { session_id: session, up_to_seq: upToSeq, format, offset }: z.output<typeof TRANSCRIPT>,
): Promise<Answer> {
  const read = await client.call(ledger.getTranscript, { sessionId: session, upToSeq }, retry);
  const messages = objectsIn(parseJson(read.messages));
  const whole = format === "text" ? transcriptText(messages) : transcriptMarkdown(messages);
  const start = Math.min(offset < 0 ? Math.max(0, whole.length + offset) : offset, whole.length);
  const end = Math.min(start + TRANSCRIPT_CHARS_MAX, whole.length);
  const text = whole.slice(start, end).toWellFormed();
  const at = String(read.upToSeq);
  const isWhole = start === 0 && end === whole.length;
  const rest =
    end === whole.length ? "" : `; call again with offset ${end} and up_to_seq ${at} to read on`;
  const note = isWhole
    ? ""
    : `[characters ${start} to ${end} of ${whole.length}${rest}; a negative offset counts from the end]`;
  return {
    json: {
      session_id: session,
      up_to_seq: at,
      text,
      characters: whole.length,
      offset: start,
      ...(end === whole.length ? {} : { next_offset: end }),
      ...(note === "" ? {} : { note }),
    },
    text: [whole === "" ? "The conversation is empty." : text, note].join("\n").trimEnd(),
  };
}

/** All that a run has of its tools and its end. */
const RUN_TYPES = [
  "TOOL_CALL_START",
  "TOOL_CALL_ARGS",
  "TOOL_CALL_CHUNK",
  "TOOL_CALL_RESULT",
  "RUN_FINISHED",
  "RUN_ERROR",
];

interface ToolCall {
  readonly tool: string;
  readonly started: string;
  arguments: string;
  result?: string;
  error?: string;
}

async function getRun(
  connection: Connection,
  { session_id: session, run_id: runId }: z.output<typeof RUN>,
): Promise<Answer> {
  const run = await runOf(connection, session, runId);
  const { calls, end, more } = await eventsOf(connection, session, run);
  const shown = [...calls.values()];
  const json = {
    session_id: session,
    run_id: run.runId,
    ...(run.parentRunId === undefined ? {} : { parent_run_id: run.parentRunId }),
    status: RunStatusSchema.value[run.status]?.localName.toLowerCase() ?? "",
    started: timeText(run.startedAt),
    ended: timeText(run.endedAt),
    first_seq: String(run.firstSeq),
    last_seq: String(run.lastSeq),
    ...(end?.["type"] === "RUN_ERROR" ? { error: cut(textIn(end["message"])) } : {}),
    tools: shown,
    ...(more ? { note: `Only the first tool calls are here: ${shown.length}.` } : {}),
    usage: end === undefined ? [] : usageIn(end),
  };
  const lines = [
    `run ${json.run_id}: ${json.status}, ${json.started} to ${json.ended || "now"}`,
    ...(json.error === undefined ? [] : [`error: ${oneLine(json.error)}`]),
    ...shown.map((call) => {
      const result = call.error === undefined ? call.result : `error: ${call.error}`;
      return `${call.started} ${call.tool}(${oneLine(call.arguments)}) -> ${oneLine(result ?? "no result")}`;
    }),
    ...(json.note === undefined ? [] : [json.note]),
    ...json.usage.map(
      ({ model = "model", input = 0, output = 0 }) => `${model}: ${input} tokens in, ${output} out`,
    ),
  ];
  return { json, text: lines.join("\n") };
}

async function eventsOf({ client, retry }: Connection, session: string, run: Run) {
  const calls = new Map<string, ToolCall>();
  let end: JsonObject | undefined;
  let afterSeq = run.firstSeq - 1n;
  let more = true;
  for (let page = 0; more && page < PAGES_MAX && calls.size <= CALLS_MAX; page += 1) {
    const asked = { sessionId: session, eventTypes: RUN_TYPES, runId: run.runId, afterSeq };
    const read = await client.call(
      ledger.listSessionEvents,
      { ...asked, pageSize: ROWS_OF_PAGE },
      retry,
    );
    for (const { payload, createdAt, seq: at } of read.items) {
      if (at > run.lastSeq) continue;
      const event = parseObject(payload);
      if (event["type"] === "RUN_FINISHED" || event["type"] === "RUN_ERROR") end = event;
      else addToCall(calls, event, timeText(createdAt));
    }
    afterSeq = read.nextAfterSeq;
    more = read.hasMore && afterSeq < run.lastSeq;
  }
  const isCut = more || calls.size > CALLS_MAX;
  return { calls: new Map([...calls].slice(0, CALLS_MAX)), end, more: isCut };
}

function addToCall(calls: Map<string, ToolCall>, event: JsonObject, started: string): void {
  const name = textIn(event["toolCallId"]);
  const tool = textIn(event["toolCallName"]);
  if (tool !== "" && !calls.has(name)) calls.set(name, { tool, started, arguments: "" });
  const call = calls.get(name);
  if (call === undefined) return;
  if (event["type"] !== "TOOL_CALL_RESULT") {
    call.arguments = cut(`${call.arguments}${textIn(event["delta"])}`);
    return;
  }
  const { content, error } = event;
  call.result = cut(typeof content === "string" ? content : (JSON.stringify(content) ?? ""));
  if (typeof error === "string") call.error = cut(error);
}

async function listInbox(
  { client, retry }: Connection,
  asked: z.output<typeof INBOX>,
): Promise<Answer> {
  const { project: projectId, labels: having } = asked;
  const filters = { state: SessionState.WAITING_FOR_PERSON, projectId, labels: having };
  const extras = { orderBy: SessionOrder.WAITING };
  const { items, nextPageToken } = await gather(asked, (of) =>
    client.call(ledger.listSessions, { ...filters, ...extras, ...of }, retry),
  );
  const questions = items.flatMap((session) =>
    session.questions.map((question) => ({ session, question })),
  );
  return listAnswer("questions", { items: questions, nextPageToken }, questionEntry);
}

function questionEntry({ session, question }: Asked) {
  const { responseSchema } = parseObject(question.interrupt);
  const json = {
    session_id: idOf(session),
    session_name: session.name,
    since: timeText(session.stateSince),
    interrupt_id: question.id,
    run_id: question.runId,
    reason: question.reason,
    message: cut(question.message),
    tool: question.toolName,
    arguments: cut(question.toolArguments),
    ...(isObject(responseSchema) ? { response_schema: responseSchema } : {}),
  };
  const call = json.tool === "" ? "" : ` ${json.tool}(${oneLine(json.arguments)})`;
  const line = `session ${json.session_id}, interrupt ${json.interrupt_id}, since ${json.since}: ${json.reason}${call} ${oneLine(json.message)}`;
  return { json, line };
}
