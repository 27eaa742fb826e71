/** The runs of a session. */
import { z } from "zod";
import type { Run, RunsHandlers, RunsPage } from "../api/runs.ts";
import { timestampOf } from "../contract/times.ts";
import { answer, PROBLEMS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { jsonArray, jsonObject, rfc3339Of, seqNumber, timeText } from "./items.ts";
import { countParameter, seqParameter, sessionParams } from "./parameters.ts";

export interface RunRouteParts {
  readonly runs: RunsHandlers;
}

/** Each run takes a read of two payloads, of up to 3 MiB. */
const LIMIT = { fallback: 100, max: 100 };

export function runRoutes({ runs }: RunRouteParts): (app: App) => void {
  return (app) => {
    app.get("/sessions/:id/runs", { schema: RUNS }, async (request, reply) => {
      const { after_seq: afterSeq = 0n, limit: runsMax } = request.query;
      const asked = { sessionId: request.params.id, afterSeq, runsMax };
      return sendJson(reply, pageJson(await runs.listRuns(asked, callContextOf(request))));
    });
  };
}

function pageJson({ runs, nextAfter, hasMore }: RunsPage): string {
  return jsonObject({
    kind: '"SessionRunList"',
    items: jsonArray(runs.map(runJson)),
    next_after_seq: nextAfter.toString(),
    has_more: String(hasMore),
  });
}

function runJson(run: Run): string {
  const { parentRunId, endedAtMicros } = run;
  return jsonObject({
    run_id: JSON.stringify(run.runId),
    parent_run_id: parentRunId === undefined ? undefined : JSON.stringify(parentRunId),
    status: JSON.stringify(run.status),
    first_seq: run.firstSeq.toString(),
    last_seq: run.lastSeq.toString(),
    started_at: timeJson(run.startedAtMicros),
    ended_at: endedAtMicros === undefined ? undefined : timeJson(endedAtMicros),
    raw_events: run.rawEvents.toString(),
    rows: run.rows.toString(),
    bytes: run.bytes.toString(),
  });
}

function timeJson(micros: bigint): string {
  return `"${rfc3339Of(timestampOf(micros))}"`;
}

const runSchema = z
  .strictObject({
    run_id: z.string(),
    parent_run_id: z.string().optional(),
    status: z.enum(["running", "finished", "error", "interrupted", "stalled"]).meta({
      description:
        "running: no end yet; stalled: no end, and another run began behind it or nothing came for RUN_STALE_AFTER; interrupted: it waits for an answer.",
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
    limit: countParameter("At most so many runs.", LIMIT),
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
