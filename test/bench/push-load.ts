/** The options and the result of a load generator, between two processes. */
import { z } from "zod";

export const pushLoadSchema = z.object({
  address: z.string(),
  /** The events of a frame on push streams; or each event by a unary call. */
  eventsPerFrame: z.union([z.number(), z.literal("unary")]),
  connections: z.number(),
  /** Streams of a connection, or unary calls in flight; each has a session of its own. */
  lanesEach: z.number(),
  /** The events after which a lane continues with a new session. */
  sessionEvents: z.number(),
  /** Keeps the sessions of one run from those of another. */
  run: z.string(),
  /** When to stop sending: after a number of events in all, or after a time. */
  events: z.number().optional(),
  seconds: z.number().optional(),
});
export type PushLoad = z.infer<typeof pushLoadSchema>;

export const pushOutcomeSchema = z.object({
  /** Acknowledged events. */
  events: z.number(),
  /** Refused ones among them. */
  refused: z.number(),
  frames: z.number(),
  /** From the first event sent to the last acknowledged. */
  seconds: z.number(),
  /** Those that have an event. */
  sessionIds: z.array(z.string()),
  /** Of the generator itself, while it sent. */
  cpuMs: z.number(),
});
export type PushOutcome = z.infer<typeof pushOutcomeSchema>;
