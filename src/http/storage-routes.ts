/** What is stored, in sums: of one session, and of all sessions of the caller. */
import { z } from "zod";
import type { SessionStorage, Storage, StorageHandlers } from "../api/storage.ts";
import { answer, jsonArray, jsonObject, PROBLEMS, sendJson, seqNumber } from "./answers.ts";
import { NO_QUERY, seqParameter, sessionParams } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

export interface StorageRouteParts {
  readonly storage: StorageHandlers;
}

export function storageRoutes(app: App, { storage }: StorageRouteParts): void {
  app.get("/storage", { schema: ALL }, async (request, reply) => {
    return sendJson(reply, allJson(await storage.readStorage(undefined, callContextOf(request))));
  });
  app.get("/sessions/:id/storage", { schema: ONE }, async (request, reply) => {
    const { after_seq: afterSeq = 0n, stream } = request.query;
    const asked = { sessionId: request.params.id, stream, afterSeq };
    const sums = await storage.readSessionStorage(asked, callContextOf(request));
    return sendJson(reply, pageJson(stream, sums));
  });
}

function allJson({ types, share, diskBytes, ...totals }: Storage): string {
  return jsonObject({
    kind: '"Storage"',
    sessions: totals.sessions.toString(),
    messages: totals.messages.toString(),
    raw_events: totals.rawEvents.toString(),
    rows: totals.rows.toString(),
    bytes: totals.bytes.toString(),
    disk_bytes: diskBytes?.toString(),
    sampled: String(share),
    types: jsonArray(types.map((type) => sumJson(type, type.stream))),
  });
}

function pageJson(stream: string, { types, upTo, more }: SessionStorage): string {
  return jsonObject({
    kind: '"SessionStorage"',
    items: jsonArray(types.map((type) => sumJson(type, stream))),
    next_after_seq: upTo.toString(),
    has_more: String(more),
  });
}

function sumJson(sum: SessionStorage["types"][number], stream: string): string {
  return jsonObject({
    stream: JSON.stringify(stream),
    event_type: JSON.stringify(sum.eventType),
    rows: sum.rows.toString(),
    raw_events: sum.rawEvents.toString(),
    bytes: sum.bytes.toString(),
    raw_bytes: sum.rawBytes.toString(),
  });
}

const streamName = z.enum(["events", "messages"], { error: "must be events or messages" });

const sumSchema = z
  .strictObject({
    stream: streamName,
    event_type: z.string().optional().meta({
      description: "Absent: the sum of all types beyond the 100 with the most bytes.",
    }),
    rows: seqNumber,
    raw_events: seqNumber.meta({ description: "Events before compression; messages count alike." }),
    bytes: seqNumber.meta({
      description: "Payloads, senders, run ids and fragment indexes, as stored.",
    }),
    raw_bytes: seqNumber.meta({ description: "What they would take without compression." }),
  })
  .meta({ id: "TypeSum" });

const ALL = {
  operationId: "getStorage",
  summary: "What is stored, in sums",
  description:
    "Of the sessions that the caller sees. An answer may be ten seconds old. Large tables are sampled for the sums by type.",
  tags: ["storage"],
  querystring: NO_QUERY,
  response: {
    200: answer(
      "The sums.",
      z.strictObject({
        kind: z.literal("Storage"),
        sessions: seqNumber,
        messages: seqNumber.meta({ description: "All that were ever stored, also erased ones." }),
        raw_events: seqNumber.meta({ description: "Likewise, before compression." }),
        rows: seqNumber.meta({ description: "Of messages and events, without erased ones." }),
        bytes: seqNumber.meta({ description: "Of these rows." }),
        disk_bytes: seqNumber.optional().meta({
          description: "All tables and indexes on disk; only for a caller who sees every session.",
        }),
        sampled: z.number().meta({
          description:
            "The share of the rows from which `types` is computed; below 1 its sums are estimates.",
        }),
        types: z.array(sumSchema),
      }),
    ),
    ...PROBLEMS,
  },
};

const ONE = {
  operationId: "getSessionStorage",
  summary: "What a session takes, by type",
  description: "A page sums up 20,000 rows; add up the pages for the whole session.",
  tags: ["storage"],
  params: sessionParams,
  querystring: z.strictObject({
    stream: streamName.default("events").meta({ description: "Which rows." }),
    after_seq: seqParameter("Only rows above this number; `next_after_seq` of the page before."),
  }),
  response: {
    200: answer(
      "The sums of a page, those with the most bytes first.",
      z.strictObject({
        kind: z.literal("SessionStorage"),
        items: z.array(sumSchema),
        next_after_seq: seqNumber,
        has_more: z.boolean(),
      }),
    ),
    ...PROBLEMS,
  },
};
