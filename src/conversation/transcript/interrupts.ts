/**
 * The interrupts that the agent waits for. As for the AG-UI clients, every RUN_FINISHED sets them
 * again: an interrupt outcome sets its own interrupts, any other outcome sets none, and a failed
 * run leaves them. Unlike for the clients, an interrupt that a later run answers
 * (`RUN_STARTED.input.resume`) is not pending from there on. Clients know of an answer because they
 * gave it; a reader of the log alone would ask again.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";

type Interrupts = readonly JsonObject[];

export function afterRunStarted(pending: Interrupts, { input }: JsonObject): Interrupts {
  if (pending.length === 0 || !isObject(input) || !Array.isArray(input["resume"])) return pending;
  const answered = new Set(input["resume"].filter(isObject).map(({ interruptId }) => interruptId));
  return pending.filter(({ id }) => !answered.has(id));
}

export function afterRunFinished({ outcome }: JsonObject): Interrupts {
  return interruptsOf(outcome).map((interrupt) => {
    const { subagentRunId, ...rest } = interrupt;
    return subagentRunId === null ? rest : interrupt;
  });
}

/**
 * The end of a run for a replay in which only `pending` is still waited for. The interrupts that
 * were answered since are removed. When none is left, the outcome is removed too, which means
 * success (the protocol has no interrupt outcome without interrupts). Returns the same event when
 * nothing changes.
 */
export function withoutAnswered(end: JsonObject, pending: Interrupts): JsonObject {
  const { outcome, ...rest } = end;
  const asked = interruptsOf(outcome);
  if (end["type"] !== "RUN_FINISHED" || !isObject(outcome) || asked.length === 0) return end;
  const open = new Set(pending.map(({ id }) => id));
  const left = asked.filter(({ id }) => open.has(id));
  if (left.length === asked.length) return end;
  return left.length === 0 ? rest : { ...end, outcome: { ...outcome, interrupts: left } };
}

function interruptsOf(outcome: unknown): Interrupts {
  if (!isObject(outcome) || outcome["type"] !== "interrupt") return [];
  const { interrupts } = outcome;
  return Array.isArray(interrupts) ? interrupts.filter(isObject) : [];
}
