/**
 * What the agent waits for. As for the AG-UI clients, every RUN_FINISHED says it anew: an interrupt
 * outcome what is asked, any other that nothing is; a run that fails leaves it. Beyond what they do,
 * an interrupt that a later run answers (`RUN_STARTED.input.resume`) is not pending from there on:
 * they learn of an answer by giving it, and whoever only reads the log would ask again.
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
 * The end of a run as it may be replayed when `pending` is all that is still waited for: without the
 * interrupts that were answered since, and with no outcome, which means success, when none is left
 * (the protocol has no interrupt outcome without interrupts). The very event when nothing changes.
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
