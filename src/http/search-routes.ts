/** Search over the texts of all sessions: what SearchTexts of gRPC is. */
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import {
  type FoundText,
  SearchOrder,
  SearchTextsRequestSchema,
  type SearchTextsResponse,
} from "@session-ledger/proto/ambient/v1/search_pb";
import {
  answer,
  jsonArray,
  jsonObject,
  PROBLEMS,
  rfc3339Of,
  sendJson,
  seqNumber,
  timeText,
  type RouteParts,
} from "./answers.ts";
import {
  countParameter,
  labelsParameter,
  textParameter,
  timestampParameter,
} from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { naming } from "./plumbing/problem.ts";

export function searchRoutes(app: App, { handlers }: RouteParts): void {
  app.get("/search", { schema: SEARCH }, async (request, reply) => {
    const { q: query, project: projectId, session: sessionId, agent: agentId } = request.query;
    const { type: eventType, order, limit: pageSize, cursor: pageToken, ...rest } = request.query;
    const names = { query, projectId, sessionId, agentId, eventType, pageSize, pageToken };
    const orderBy = order === "best" ? SearchOrder.BEST : SearchOrder.UNSPECIFIED;
    const asked = create(SearchTextsRequestSchema, { ...rest, ...names, orderBy });
    const page = await naming(PARAMETERS, handlers.searchTexts(asked, callContextOf(request)));
    return sendJson(reply, pageJson(page));
  });
}

/** The names of the contract's fields here. */
const PARAMETERS = {
  query: "q",
  project_id: "project",
  session_id: "session",
  agent_id: "agent",
  event_type: "type",
  page_size: "limit",
  page_token: "cursor",
  next_page_token: "next_cursor",
};

function pageJson({ items, nextPageToken: next, indexedUntil }: SearchTextsResponse): string {
  return jsonObject({
    kind: '"FoundTextList"',
    items: jsonArray(items.map(itemJson)),
    next_cursor: next === "" ? undefined : JSON.stringify(next),
    indexed_until: indexedUntil && `"${rfc3339Of(indexedUntil)}"`,
  });
}

function itemJson(found: FoundText): string {
  const { createdAt, projectId, runId, excerpt } = found;
  return jsonObject({
    session_id: JSON.stringify(found.sessionId),
    session_name: JSON.stringify(found.sessionName),
    project_id: projectId === "" ? undefined : JSON.stringify(projectId),
    run_id: runId === "" ? undefined : JSON.stringify(runId),
    stream: JSON.stringify(found.stream),
    seq: found.seq.toString(),
    role: JSON.stringify(found.role),
    event_type: JSON.stringify(found.eventType),
    created_at: createdAt && `"${rfc3339Of(createdAt)}"`,
    excerpt: JSON.stringify(excerpt.map(({ text, isMatch }) => ({ text, is_match: isMatch }))),
  });
}

const itemSchema = z
  .strictObject({
    session_id: z.string(),
    session_name: z.string(),
    project_id: z.string().optional(),
    run_id: z.string().optional().meta({ description: "The run that was open." }),
    stream: z.enum(["messages", "events"]),
    seq: seqNumber.meta({ description: "The row in which the text begins." }),
    role: z.string(),
    event_type: z.string().meta({ description: "Of that row." }),
    created_at: timeText,
    excerpt: z
      .array(z.strictObject({ text: z.string(), is_match: z.boolean() }))
      .meta({ description: "Pieces of plain text, to be joined; no piece has markup." }),
  })
  .meta({ id: "FoundText" });

const SEARCH = {
  operationId: "searchTexts",
  summary: "Find texts that people and agents said",
  description:
    "In the sessions that the caller may read. A new text is found some seconds after its end; `indexed_until` is the time that the index has reached. FAILED_PRECONDITION (SEARCH_OFF) with SEARCH_LANGUAGE=off.",
  tags: ["search"],
  querystring: z.strictObject({
    q: textParameter(
      'Words that a text must have; `"a phrase"`, `or`, `-word`. Chinese, Japanese and Korean are found by their characters.',
    ),
    project: textParameter("Only sessions of this project."),
    session: textParameter("Only this session."),
    agent: textParameter("Only sessions of this agent."),
    labels: labelsParameter,
    role: textParameter(
      "Only this role: user, assistant, reasoning, system, developer, tool, error, other.",
    ),
    type: textParameter("Only texts whose first row has this event type."),
    after: timestampParameter("Only texts that began at or after this time."),
    before: timestampParameter("Only texts that began before this time."),
    order: z.enum(["newest", "best"], { error: "must be newest or best" }).default("newest").meta({
      description:
        "best: the best match first, of all matches, or of those among the newest 10,000 texts if more than 2,000 texts match.",
    }),
    limit: countParameter("The most texts of a page.", { fallback: 100, max: 100 }),
    cursor: textParameter("`next_cursor` of the page before, with the same other parameters."),
  }),
  response: {
    200: answer(
      "A page of texts. It may be short, or empty, and still have a next one.",
      z.strictObject({
        kind: z.literal("FoundTextList"),
        items: z.array(itemSchema),
        next_cursor: z.string().optional(),
        indexed_until: timeText.optional().meta({
          description:
            "Every text of rows that were recorded before this time is found, unless its message was still open. Absent: not known, while sessions are indexed for the first time, or again.",
        }),
      }),
    ),
    ...PROBLEMS,
  },
};
