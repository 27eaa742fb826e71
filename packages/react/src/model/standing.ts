/** Where a session stands at its end, as far as what a person can do depends on it. */
import { isObject, type JsonObject, objectsIn, parseJson } from "@session-ledger/agui/json";
import { answersGraph, GRAPH_INTERRUPT_ID } from "@session-ledger/agui/run-end";

interface EventRow {
  readonly type: string;
  readonly runId: string;
  readonly storedMs: number;
}

interface MessageRow {
  readonly type: string;
  readonly storedMs: number;
  readonly payload: string;
}

const BOUNDARIES: readonly string[] = ["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"];

/** The id of the open run. */
export function openRunOf(rows: readonly EventRow[]): string | undefined {
  const last = rows.findLast(({ type }) => BOUNDARIES.includes(type));
  return last?.type === "RUN_STARTED" ? last.runId : undefined;
}

/** A cancel is a message (docs/writing.md); only the newest ones can be about the open run. */
export function wasAskedToEnd(messages: readonly MessageRow[], runId: string): boolean {
  return newest(messages, "lifecycle").some((message) => {
    return message["event"] === "cancel_requested" && message["run_id"] === runId;
  });
}

/** When the last run ended; 0: none has. */
export function lastEndMs(rows: readonly EventRow[]): number {
  return rows.findLast(({ type }) => type === "RUN_FINISHED")?.storedMs ?? 0;
}

/**
 * The ids of the interrupts that the newest messages answer. Those before the end of the last run
 * answer earlier questions, which may have had the same ids.
 */
export function answeredIn(messages: readonly MessageRow[], sinceMs: number): ReadonlySet<string> {
  const since = messages.filter(({ storedMs }) => storedMs >= sinceMs);
  const ids = newest(since, "user").flatMap((message) => [
    ...objectsIn(message["resume"]).map((one) => one["interruptId"]),
    ...(answersGraph(message) ? [GRAPH_INTERRUPT_ID] : []),
  ]);
  return new Set(ids.filter((id) => typeof id === "string"));
}

const NEWEST_MAX = 50;

function newest(messages: readonly MessageRow[], type: string): readonly JsonObject[] {
  return messages
    .slice(-NEWEST_MAX)
    .filter((message) => message.type === type && message.payload.startsWith("{"))
    .map(({ payload }) => parseJson(payload))
    .filter(isObject);
}

/** Where a session stands, as the service names it. */
export const STATES = {
  running: "running",
  waiting_for_person: "waits for a person",
  waiting_for_runner: "waits for a runner",
  failed: "failed",
  cancelled: "cancelled",
  idle: "idle",
} as const;
export type StateName = keyof typeof STATES;

export function isStateName(text: string): text is StateName {
  return Object.hasOwn(STATES, text);
}

export function stateNameOf(state: string): StateName {
  const name = state.replace("SESSION_STATE_", "").toLowerCase();
  return isStateName(name) ? name : "idle";
}
