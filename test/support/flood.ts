/** What a flood is told to do, and what it says of it; see flood-worker.ts. */
import { z } from "zod";

export const floodOrderSchema = z.object({
  address: z.string(),
  token: z.string(),
  connections: z.number(),
  /** Calls that each connection has under way. */
  callsAConnection: z.number(),
  payloadBytes: z.number(),
  sessionIds: z.array(z.string()),
  seconds: z.number(),
});
export type FloodOrder = z.infer<typeof floodOrderSchema>;

export const floodReportSchema = z.object({
  /** Acknowledged rows, by session: their numbers. */
  acknowledged: z.record(z.string(), z.array(z.number())),
  /** Calls by gRPC status and reason. */
  ends: z.record(z.string(), z.number()),
  /** Refusals by RESOURCE_EXHAUSTED that did not say when to come again. */
  withoutRetryInfo: z.number(),
  lostConnections: z.number(),
});
export type FloodReport = z.infer<typeof floodReportSchema>;
