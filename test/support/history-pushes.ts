/**
 * Pushes of every kind that a ledger stores differently: a message, an event, merged fragments, a
 * grouped message that becomes three rows, the two ends of a run. Each has its mark.
 */
import type { History, Sent } from "./history.ts";

export interface Plan {
  readonly sessionId: string;
  readonly kind: PushKind;
  /** With an idempotency key of its own. */
  readonly keyed: boolean;
  readonly epoch?: bigint;
}

export const PUSH_KINDS = [
  "message",
  "event",
  "merged",
  "grouped",
  "run_started",
  "run_finished",
] as const;
export type PushKind = (typeof PUSH_KINDS)[number];

type Content = Pick<Sent, "stream" | "eventType" | "payload" | "eventCount" | "rows" | "numbers">;

const FRAGMENTS = 3;

export function plan(history: History, { sessionId, kind, keyed, epoch }: Plan): Sent {
  const mark = history.mark();
  const key = keyed ? `key of ${mark}` : undefined;
  return { ...CONTENT[kind](mark), sessionId, mark, key, epoch };
}

const CONTENT: Record<PushKind, (mark: string) => Content> = {
  message: (mark) => ({ ...plain("user", mark), stream: "messages" }),
  event: (mark) => event({ type: "CUSTOM", name: "a b", value: mark }),
  merged: (mark) => ({
    ...event({ type: "TEXT_MESSAGE_CONTENT", messageId: mark, delta: "abc" }),
    eventCount: FRAGMENTS,
    numbers: FRAGMENTS,
  }),
  grouped: (mark) => ({
    ...event({
      type: "TEXT_MESSAGE_START",
      messageId: mark,
      role: "assistant",
      accumulated_content: "abc",
      fragment_count: FRAGMENTS,
      end_event: { type: "TEXT_MESSAGE_END", messageId: mark },
    }),
    rows: 3, // START, the fragments as one, END.
    numbers: FRAGMENTS + 2,
  }),
  run_started: (mark) => event({ type: "RUN_STARTED", threadId: "t", runId: mark }),
  run_finished: (mark) => event({ type: "RUN_FINISHED", threadId: "t", runId: mark }),
};

function event(payload: { readonly type: string; readonly [field: string]: unknown }): Content {
  return { ...plain(payload.type, JSON.stringify(payload)), stream: "events" };
}

function plain(eventType: string, payload: string): Omit<Content, "stream"> {
  return { eventType, payload, eventCount: 0, rows: 1, numbers: 1 };
}
