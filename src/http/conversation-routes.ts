/** The conversation of a session: its runs, and its transcript. */
import { z } from "zod";
import { RUN_STATUSES } from "../handlers/conversation.ts";
import type { RunSummary, RunsPage } from "../handlers/runs.ts";
import { serverBusy } from "../base/budget.ts";
import {
  answer,
  JSON_TYPE,
  jsonArray,
  jsonObject,
  PROBLEMS,
  type RouteParts,
  sendJson,
  seqNumber,
  timeText,
  microsJson,
} from "./answers.ts";
import { countParameter, seqParameter, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

/** Each run takes a read of two payloads, of up to 3 MiB. */
const LIMIT = { fallback: 100, max: 100 };

export function runRoutes(app: App, { runs }: RouteParts): void {
  app.get("/sessions/:id/runs", { schema: RUNS }, async (request, reply) => {
    const { after_seq: afterSeq = 0n, limit: runsMax } = request.query;
    const asked = { sessionId: request.params.id, afterSeq, runsMax };
    return sendJson(reply, pageJson(await runs.listRuns(asked, callContextOf(request))));
  });
}

function pageJson({ runs, nextAfter, hasMore }: RunsPage): string {
  return jsonObject({
    kind: '"SessionRunList"',
    items: jsonArray(runs.map(runJson)),
    next_after_seq: nextAfter.toString(),
    has_more: String(hasMore),
  });
}

function runJson(run: RunSummary): string {
  const { parentRunId } = run;
  return jsonObject({
    run_id: JSON.stringify(run.runId),
    parent_run_id: parentRunId === undefined ? undefined : JSON.stringify(parentRunId),
    status: JSON.stringify(run.status),
    first_seq: run.firstSeq.toString(),
    last_seq: run.lastSeq.toString(),
    started_at: microsJson(run.startedAtMicros),
    ended_at: microsJson(run.endedAtMicros),
    raw_events: run.rawEvents.toString(),
    rows: run.rows.toString(),
    bytes: run.bytes.toString(),
  });
}

const runSchema = z
  .strictObject({
    run_id: z.string(),
    parent_run_id: z.string().optional(),
    status: z.enum(Object.keys(RUN_STATUSES)).meta({
      description:
        "running: no end yet; stalled: no end, and another run began behind it or nothing came for RUN_STALE_AFTER; interrupted: it ended to wait for an answer; unanswered: the same, and a later run has ended without one.",
    }),
    first_seq: seqNumber,
    last_seq: seqNumber,
    started_at: timeText,
    ended_at: timeText.optional(),
    raw_events: seqNumber.meta({ description: "Events as they were before compression." }),
    rows: seqNumber,
    bytes: seqNumber.meta({ description: "Of the payloads, as stored." }),
  })
  .meta({ id: "Run" });

const RUNS = {
  operationId: "listRuns",
  summary: "Runs, in order",
  tags: ["events"],
  params: sessionParams,
  querystring: z.strictObject({
    after_seq: seqParameter(
      "Only runs that begin above this number; `next_after_seq` of the page before.",
    ),
    limit: countParameter("The most runs of a page.", LIMIT),
  }),
  response: {
    200: answer(
      "A page of runs.",
      z.strictObject({
        kind: z.literal("SessionRunList"),
        items: z.array(runSchema),
        next_after_seq: seqNumber,
        has_more: z.boolean(),
      }),
    ),
    ...PROBLEMS,
  },
};

/** The texts are joined, and then encoded. */
const COPIES = 2;

const READABLE = {
  text: "text/plain; charset=utf-8",
  markdown: "text/markdown; charset=utf-8",
} as const;

/** The conversation as an AG-UI client would show it, as data or as readable text. */
export function transcriptRoutes(app: App, { transcripts }: RouteParts): void {
  app.get("/sessions/:id/transcript", { schema: TRANSCRIPT }, async (request, reply) => {
    const { id } = request.params;
    const { up_to_seq: upToSeq, format } = request.query;
    const asked = { sessionId: id, upToSeq };
    const context = callContextOf(request);
    const transcript = await transcripts.readTranscript(asked, context);
    // Counted before a copy is made that the caller may never read.
    const { messagesText, stateText = "", interruptsText } = transcript;
    const texts = [messagesText, stateText, interruptsText];
    const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (context.memory?.resize("answer", bytes * COPIES) === false) throw serverBusy();
    if (format === "json") {
      const text = jsonObject({
        session_id: JSON.stringify(id),
        up_to_seq: transcript.seq.toString(),
        up_to_message_seq: transcript.cut.messages.toString(),
        messages: transcript.messagesText,
        state: transcript.stateText,
        state_too_large: transcript.isStateTooLarge ? "true" : undefined,
        interrupts: transcript.interruptsText,
        branches: `[${transcript.branches.join()}]`,
      });
      return sendJson(reply, text);
    }
    return reply.type(READABLE[format]).send(transcript.readable(format));
  });
}

const transcriptSchema = z.strictObject({
  session_id: z.string(),
  up_to_seq: seqNumber,
  up_to_message_seq: seqNumber,
  messages: z.array(z.looseObject({ id: z.string(), role: z.string() })),
  state: z.unknown().optional().meta({ description: "Absent: none was ever set." }),
  state_too_large: z.literal(true).optional().meta({
    description: "The state exists, but patches took it past 64 MiB.",
  }),
  interrupts: z.array(z.looseObject({ id: z.string() })),
  branches: z.array(z.int()).meta({
    description: "Of each earlier branch its last event: `up_to_seq` shows the branch.",
  }),
});

const TRANSCRIPT = {
  operationId: "getTranscript",
  summary: "The reduced conversation",
  description:
    "The result for an AG-UI client that saw every event: all messages, those of users included, the state, and the interrupts that wait for an answer. The formats to read have the messages only.",
  tags: ["transcript"],
  params: sessionParams,
  querystring: z.strictObject({
    up_to_seq: seqParameter("As it was before the next event after this one."),
    format: z
      .enum(["json", "text", "markdown"], { error: "must be json, text or markdown" })
      .default("json")
      .meta({
        description:
          "The last two are for a person to read: messages with their authors, tools and their results.",
      }),
  }),
  response: {
    200: {
      description: "The conversation.",
      content: {
        [JSON_TYPE]: { schema: transcriptSchema },
        "text/plain": { schema: z.string() },
        "text/markdown": { schema: z.string() },
      },
    },
    ...PROBLEMS,
  },
};
