/** Bars and marks of a timeline: `timeline.ts` makes them of the rows of a log. */
import type { CatalogueEntry } from "@session-ledger/agui/catalogue";

/** The fields of a row of the log that a timeline needs. */
export interface TimedRow {
  /** The number of its first event. */
  readonly seq: number;
  readonly lastSeq: number;
  readonly type: string;
  readonly atMs: number;
  readonly endMs: number;
  /** When the service stored it. */
  readonly storedMs: number;
  /** Events that the row stands for. */
  readonly count: number;
  readonly bytes: number;
  /** Undefined: dropped; the row is then a mark, unless its type names no construct. */
  readonly payload: string | undefined;
}

export type BarKind = "run" | "step" | "subagent" | "tool" | "text" | "reasoning";

/** `cut`: the run ended, or another began, before the bar's own end came. */
export type BarState = "open" | "done" | "failed" | "interrupted" | "cancelled" | "cut";

export interface Stretch {
  readonly startMs: number;
  readonly endMs: number;
}

/** A time in a run in which no row came. */
export interface Quiet extends Stretch {
  /** The number of the row that ended it. */
  readonly seq: number;
  /** A tool was running; otherwise the agent, or its model, was silent. */
  readonly isToolRunning: boolean;
}

/** Of an open bar, `endMs` and `toSeq` are those of its last row so far. */
export interface Bar extends Stretch {
  readonly kind: BarKind;
  readonly name: string;
  /** The id of its construct. */
  readonly id: string;
  /** The subagent that it is from. */
  readonly owner: string | undefined;
  readonly parent: Bar | undefined;
  readonly fromSeq: number;
  readonly toSeq: number;
  readonly state: BarState;
  /** False: its first row was a fragment. */
  readonly hasStart: boolean;
  /** Of this bar alone, without the bars inside. */
  readonly rows: number;
  readonly events: number;
  readonly bytes: number;
  /** Of a tool call: the time when its arguments were whole, and the time of its result. */
  readonly calledMs: number | undefined;
  readonly resultMs: number | undefined;
  readonly run: RunFacts | undefined;
}

/** What only a run has. */
interface RunFacts {
  /** From 1, in the order of their beginnings. */
  readonly number: number;
  /** When its first row was stored. */
  readonly storedMs: number;
  readonly quiet: readonly Quiet[];
  /** The first text, reasoning or tool call in it. */
  readonly firstOutputMs: number | undefined;
  /** The number of the last message that it took by a claim. */
  readonly takenSeq: number | undefined;
  /** The reasons of the interrupts with which it ended. */
  readonly interrupts: readonly string[];
  /** What its models used, as its end reports it; undefined: it reports nothing. */
  readonly tokens: { readonly input: number; readonly output: number } | undefined;
}

export interface Mark {
  readonly seq: number;
  readonly lastSeq: number;
  readonly type: string;
  readonly category: CatalogueEntry["category"] | "unknown";
  readonly atMs: number;
  readonly count: number;
  /** The innermost bar that was open around it. */
  readonly parent: Bar | undefined;
}

type Changing<T> = { -readonly [K in keyof T]: T[K] };

/** A bar while its rows come. */
export interface Drawn extends Changing<Omit<Bar, "parent" | "run">> {
  parent: Drawn | undefined;
  run: (Changing<Omit<RunFacts, "quiet">> & { readonly quiet: Quiet[] }) | undefined;
  /** Bars inside it that have not ended. */
  readonly inside: Set<Drawn>;
  /** The latest end, in time and in numbers, of the bars inside that have ended. */
  insideMs: number;
  insideSeq: number;
  /** Its names in the map of open constructs. */
  readonly keys: string[];
}

interface Beginning {
  readonly kind: BarKind;
  readonly name: string;
  readonly id: string;
  readonly parent: Drawn | undefined;
  readonly owner?: string | undefined;
}

/** A bar with its first row. */
export function beginning(row: TimedRow, { kind, name, id, parent, owner }: Beginning): Drawn {
  const startMs = Math.max(row.atMs, parent?.startMs ?? Number.NEGATIVE_INFINITY);
  const bar: Drawn = {
    kind,
    name,
    id,
    owner,
    parent,
    fromSeq: row.seq,
    toSeq: row.lastSeq,
    startMs,
    endMs: startMs,
    state: "open",
    hasStart: true,
    rows: 0,
    events: 0,
    bytes: 0,
    calledMs: undefined,
    resultMs: undefined,
    run: undefined,
    inside: new Set(),
    insideMs: startMs,
    insideSeq: row.lastSeq,
    keys: [],
  };
  return added(bar, row);
}

export function added(bar: Drawn, { lastSeq, atMs, endMs, count, bytes }: TimedRow): Drawn {
  bar.toSeq = lastSeq;
  bar.endMs = Math.max(bar.endMs, atMs, endMs);
  bar.rows += 1;
  bar.events += count;
  bar.bytes += bytes;
  return bar;
}

/** Makes room in the parent for a bar inside it that has ended. */
export function grown(parent: Drawn, { endMs, toSeq }: Bar): void {
  parent.insideMs = Math.max(parent.insideMs, endMs);
  parent.insideSeq = Math.max(parent.insideSeq, toSeq);
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
