/** The state of this instance as JSON, from the registry of /metrics. */
import { z } from "zod";
import type { FigureHandlers } from "../api/authorised.ts";
import type { Figures } from "../observability/figures.ts";
import { answer, PROBLEMS, sendJson, timeText } from "./answers.ts";
import { NO_QUERY } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";

export interface ServiceRouteParts {
  readonly figures: FigureHandlers;
}

export function serviceRoutes(app: App, { figures }: ServiceRouteParts): void {
  app.get("/service", { schema: SERVICE }, async (request, reply) => {
    const read = await figures.readFigures(undefined, callContextOf(request));
    return sendJson(reply, JSON.stringify(jsonOf(read)));
  });
}

function jsonOf(figures: Figures): z.input<typeof serviceSchema> {
  const { rowsStored, connections, commit } = figures;
  return {
    kind: "Service",
    instance: figures.instance,
    version: figures.version,
    started_at: timeOf(figures.startedAtMs),
    at: timeOf(figures.atMs),
    ready: figures.isReady,
    instances_heard: figures.instancesHeard,
    rows_stored: { messages: rowsStored["messages"] ?? 0, events: rowsStored["events"] ?? 0 },
    push_stream_events: figures.pushStreamEvents,
    calls: figures.calls,
    requests: figures.requests,
    commits: {
      count: commit.count,
      seconds: commit.seconds,
      buckets: commit.buckets.map(({ upToSeconds, count }) => ({
        ...(upToSeconds === undefined ? {} : { up_to_seconds: upToSeconds }),
        count,
      })),
    },
    queue: { rows: figures.queueRows, bytes: figures.queueBytes },
    watchers: figures.watchers,
    push_streams: figures.pushStreams,
    connections: { grpc: connections["grpc"] ?? 0, http: connections["http"] ?? 0 },
    memory_bytes: figures.memoryBytes,
    refusals: figures.refusals.map(({ reason, count, lastAtMs }) => {
      return { reason, count, last_at: timeOf(lastAtMs) };
    }),
  };
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}

const count = (description: string) => z.int().min(0).meta({ description });

const serviceSchema = z.strictObject({
  kind: z.literal("Service"),
  instance: z.string().meta({
    description: "Of the instance that answers; another after each start, when counts begin at 0.",
  }),
  version: z.string(),
  started_at: timeText,
  at: timeText,
  ready: z.boolean(),
  instances_heard: count("Other instances that announced a commit in the last minute."),
  rows_stored: z.strictObject({ messages: z.int().min(0), events: z.int().min(0) }),
  push_stream_events: count("Raw events of push streams."),
  calls: count("gRPC calls that ended."),
  requests: count("HTTP requests that ended."),
  commits: z.strictObject({
    count: z.int().min(0),
    seconds: z.number(),
    buckets: z
      .array(z.strictObject({ up_to_seconds: z.number().optional(), count: z.int().min(0) }))
      .meta({ description: "Commits of at most this time; the last one has all." }),
  }),
  queue: z.strictObject({ rows: z.int().min(0), bytes: z.int().min(0) }).meta({
    description: "Rows that wait for a commit, or are in one.",
  }),
  watchers: count("Open watches."),
  push_streams: count("Open push streams."),
  connections: z.strictObject({ grpc: z.int().min(0), http: z.int().min(0) }),
  memory_bytes: count("Resident memory of the process."),
  refusals: z
    .array(z.strictObject({ reason: z.string(), count: z.int().min(0), last_at: timeText }))
    .meta({ description: "Refused calls and requests since the start, the latest first." }),
});

const SERVICE = {
  operationId: "getService",
  summary: "The state of the instance that answers",
  description:
    "Counts since its start, and gauges, as in `/metrics`. For the roles admin and service, with a token for all projects.",
  tags: ["service"],
  querystring: NO_QUERY,
  response: { 200: answer("The figures.", serviceSchema), ...PROBLEMS },
};
