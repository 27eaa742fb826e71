/** The loads: callers, their calls in flight, and the calls. Each keeps 64 calls in flight. */
import assert from "node:assert/strict";

export interface Shape {
  /** One process of h2load each. */
  readonly connections: number;
  readonly inFlightEach: number;
  /** Sessions that the calls of a connection are spread over; `shared`: one for all connections. */
  readonly sessionsEach: number | "shared";
  readonly event: "TEXT_MESSAGE_CONTENT" | "RUN_STARTED";
  /** With an idempotency key that changes all the time; some calls repeat the one before. */
  readonly keyed: boolean;
}

const EIGHT_BY_EIGHT = {
  connections: 8,
  inFlightEach: 8,
  sessionsEach: 8,
  event: "TEXT_MESSAGE_CONTENT",
  keyed: false,
} as const satisfies Shape;

export const SHAPES = {
  /** The load that the others are compared with: 64 sessions, 8 connections. */
  sessions64: EIGHT_BY_EIGHT,
  sessions8: { ...EIGHT_BY_EIGHT, sessionsEach: 1 },
  hotSession: { ...EIGHT_BY_EIGHT, sessionsEach: "shared" },
  connections64: { ...EIGHT_BY_EIGHT, connections: 64, inFlightEach: 1, sessionsEach: 1 },
  /** Every event opens a run, so every push changes what the session's row says of it. */
  runs: { ...EIGHT_BY_EIGHT, event: "RUN_STARTED" },
  keyed: { ...EIGHT_BY_EIGHT, sessionsEach: 1, keyed: true },
} as const satisfies Readonly<Record<string, Shape>>;

export type ShapeName = keyof typeof SHAPES;

for (const { connections, inFlightEach, sessionsEach } of Object.values<Shape>(SHAPES)) {
  assert(connections * inFlightEach === 64);
  // One digit of the session id turns, see bodies.ts.
  assert(sessionsEach === "shared" || sessionsEach <= 10);
}
