/** The options of a flood and its result; see flood-worker.ts. */
import { z } from "zod";

export const floodOrderSchema = z.object({
  address: z.string(),
  token: z.string(),
  connections: z.number(),
  /** Calls in flight on each connection. */
  callsAConnection: z.number(),
  payloadBytes: z.number(),
  sessionIds: z.array(z.string()),
  seconds: z.number(),
});
export type FloodOrder = z.infer<typeof floodOrderSchema>;

export const floodReportSchema = z.object({
  /** The numbers of acknowledged rows, by session. */
  acknowledged: z.record(z.string(), z.array(z.number())),
  /** Calls by gRPC status and reason. */
  ends: z.record(z.string(), z.number()),
  /** RESOURCE_EXHAUSTED refusals without a retry time. */
  withoutRetryInfo: z.number(),
  lostConnections: z.number(),
});
export type FloodReport = z.infer<typeof floodReportSchema>;
