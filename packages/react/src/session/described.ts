/** Bars, marks and waits in words: for tooltips, for the table, and for people who cannot see. */
import { count, duration } from "../ui/format.ts";
import type { Bar, BarKind, BarState, Mark } from "../model/bars.ts";
import type { Wait } from "../model/waits.ts";

export const KIND_NAMES: Readonly<Record<BarKind, string>> = {
  run: "Run",
  step: "Step",
  subagent: "Subagent",
  tool: "Tool call",
  text: "Text",
  reasoning: "Thinking",
};

export const STATE_NAMES: Readonly<Record<BarState, string>> = {
  open: "running",
  done: "done",
  failed: "failed",
  interrupted: "interrupted",
  cancelled: "cancelled",
  cut: "without end",
};

/** What GET …/runs knows of a run beyond its events. */
export interface RunStatus {
  readonly status: string;
  readonly bytes: number;
  readonly raw_events: number;
  readonly rows: number;
}

export interface Described {
  readonly title: string;
  /** Each a name and a value. */
  readonly facts: readonly (readonly [string, string])[];
}

/** Of a run its number, as the conversation counts it. */
export function nameOf({ kind, name, id, run }: Bar): string {
  if (run !== undefined) return count(run.number);
  if (kind === "text") return name === "" || name === "assistant" ? "Text" : `Text of ${name}`;
  if (kind === "reasoning") return "Thinking";
  return name === "" ? id : name;
}

export function describedBar(
  bar: Bar,
  { nowMs, status }: { readonly nowMs: number; readonly status?: RunStatus | undefined },
): Described {
  const { kind, state, calledMs, resultMs, run, parent } = bar;
  const endMs = state === "open" ? Math.max(nowMs, bar.endMs) : bar.endMs;
  const facts: [string, string][] = [
    ["Status", status?.status ?? STATE_NAMES[state]],
    ["Took", duration(endMs - bar.startMs)],
  ];
  if (kind === "tool")
    facts.push(...toolFacts({ startMs: bar.startMs, calledMs, resultMs, endMs, state }));
  if (run?.firstOutputMs !== undefined)
    facts.push(["First output after", duration(run.firstOutputMs - bar.startMs)]);
  const quietMs = run?.quiet.reduce((sum, quiet) => sum + quiet.endMs - quiet.startMs, 0) ?? 0;
  if (quietMs > 0) facts.push(["Silent for", duration(quietMs)]);
  if (run !== undefined && run.interrupts.length > 0)
    facts.push(["Waits for", run.interrupts.join(", ")]);
  if (run?.tokens !== undefined)
    facts.push(["Tokens", `${count(run.tokens.input)} in, ${count(run.tokens.output)} out`]);
  facts.push(["Events", eventsText(bar, status)]);
  if (kind === "run") facts.push(["Id", bar.id]);
  if (!bar.hasStart) facts.push(["Missing", "its START"]);
  if (parent !== undefined) facts.push(["Inside", `${KIND_NAMES[parent.kind]} ${nameOf(parent)}`]);
  return { title: `${KIND_NAMES[kind]} ${titleOf(bar)}`.trim(), facts };
}

function titleOf(bar: Bar): string {
  const { kind, id } = bar;
  return kind === "text" || kind === "reasoning" ? id : nameOf(bar);
}

function eventsText({ fromSeq, toSeq, state }: Bar, status: RunStatus | undefined): string {
  const numbers = fromSeq === toSeq ? count(fromSeq) : `${count(fromSeq)} to ${count(toSeq)}`;
  const text = state === "open" ? `from ${count(fromSeq)} on` : numbers;
  return status === undefined ? text : `${text}, ${count(status.rows)} rows`;
}

interface ToolTimes {
  readonly startMs: number;
  readonly calledMs: number | undefined;
  readonly resultMs: number | undefined;
  readonly endMs: number;
  readonly state: BarState;
}

function toolFacts({ startMs, calledMs, resultMs, endMs, state }: ToolTimes): [string, string][] {
  if (calledMs === undefined) return [];
  const facts: [string, string][] = [["Arguments", duration(calledMs - startMs)]];
  if (resultMs !== undefined)
    facts.push(["Result after", duration(Math.max(0, resultMs - calledMs))]);
  else if (state === "open") facts.push(["Waits for its result", duration(endMs - calledMs)]);
  else facts.push(["Result", "none in the log"]);
  return facts;
}

export function describedMark({ type, seq, lastSeq, parent }: Mark): Described {
  const facts: [string, string][] = [
    ["Event", seq === lastSeq ? count(seq) : `${count(seq)} to ${count(lastSeq)}`],
  ];
  if (parent !== undefined) facts.push(["Inside", `${KIND_NAMES[parent.kind]} ${nameOf(parent)}`]);
  return { title: type, facts };
}

export function describedWait({ kind, seq, startMs, endMs, reasons, run }: Wait): Described {
  const title = kind === "message" ? `Message ${count(seq)}` : `Interrupt ${reasons.join(", ")}`;
  const facts: [string, string][] = [
    [run === undefined ? "Has waited" : "Waited", duration(endMs - startMs)],
    ["For", run === undefined ? "a run" : `Run ${nameOf(run)}`],
  ];
  return { title: title.trim(), facts };
}

/** One sentence without marks, for a screen reader. */
export function spoken({ title, facts }: Described): string {
  return `${title}. ${facts.map(([name, value]) => `${name} ${value}`).join(", ")}.`;
}
