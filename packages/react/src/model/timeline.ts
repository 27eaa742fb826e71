/**
 * The rows of a log as nested bars over time: runs, steps, subagents, tool calls, texts and
 * reasoning. Rows come in the order of their numbers, once each, so a live tail costs the same per
 * row as a page of history. Lines on the screen are chosen later, in `lanes.ts`.
 *
 *   START, fragments, END, a tool's result   belong to the bar of their construct
 *   all other rows                           are marks: states, snapshots, activities, custom
 *                                            events, and rows that continue or end nothing
 *
 * Every row is in one bar or is one mark, so both together are the log. A bar lies inside its
 * parent in time and in numbers. When a bar ends before a bar inside it does, the inner bar moves up
 * to the parent: two steps that overlap are neighbours, and neither is inside the other.
 *
 * A tool call has its arguments up to the END, and then the time until its result. A call without a
 * result is open while its run is; after that, its bar ends at its END.
 */
import { type CatalogueEntry, lookup } from "@session-ledger/agui/catalogue";
import {
  type Chunked,
  ChunkLanes,
  EFFECTS,
  type Effect,
  type EventAddress,
  addressOf,
} from "@session-ledger/agui/constructs";
import { isObject, type JsonObject, parseJson } from "@session-ledger/agui/json";
import { sumOf, usageIn } from "@session-ledger/agui/run-end";
import { added, beginning, type Drawn, grown, textOf } from "./bars.ts";
import type { Bar, BarKind, BarState, Mark, Stretch, TimedRow } from "./bars.ts";

/** A silence that is shorter is not told: rows of a compressing runner come 250 ms apart. */
const QUIET_MS = 500;

interface Reading {
  readonly row: TimedRow;
  readonly entry: CatalogueEntry;
  readonly effect: Effect;
  readonly place: EventAddress;
  readonly value: JsonObject;
  readonly known: Drawn | undefined;
}

interface Chunk extends Chunked {
  readonly bar: Drawn;
}

export class Timeline {
  readonly #bars: Drawn[] = [];
  readonly #marks: Mark[] = [];
  readonly #open = new Map<string, Drawn>();
  /** The open steps of the agent and of each subagent, the innermost last. */
  readonly #steps = new Map<string | undefined, Drawn[]>();
  /** The open reasoning of the agent and of each subagent: its messages are parts of it. */
  readonly #reasoning = new Map<string | undefined, Drawn>();
  readonly #chunks = new ChunkLanes<Chunk>();
  /** Bars without a parent that are open; the open run is one of them. */
  readonly #top = new Set<Drawn>();
  #run: Drawn | undefined;
  #toolsRunning = 0;
  /** The end of the last row of the open run. */
  #heardMs = 0;
  #runs = 0;
  #lastSeq = 0;
  #startMs = Number.POSITIVE_INFINITY;
  #latestMs = Number.NEGATIVE_INFINITY;

  get bars(): readonly Bar[] {
    return this.#bars;
  }

  get marks(): readonly Mark[] {
    return this.#marks;
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  /** The earliest and the latest time of any row; open bars reach up to the latest. */
  get span(): Stretch {
    if (this.#latestMs === Number.NEGATIVE_INFINITY) return { startMs: 0, endMs: 0 };
    return { startMs: this.#startMs, endMs: this.#latestMs };
  }

  add(row: TimedRow): void {
    this.#lastSeq = Math.max(this.#lastSeq, row.lastSeq);
    this.#startMs = Math.min(this.#startMs, row.atMs);
    this.#latestMs = Math.max(this.#latestMs, row.atMs, row.endMs);
    this.#listen(row);
    const entry = lookup(row.type);
    const value = entry && valueOf(row, entry);
    const effect = entry && EFFECTS.get(entry.type);
    if (entry === undefined || value === undefined || effect === undefined) {
      this.#mark(row, entry, undefined);
      return;
    }
    const place = addressOf(entry, value);
    const { construct: known, ended } = this.#chunks.follow(effect, place);
    for (const { bar } of ended) this.#end(bar, "done");
    const bar = this.#barOf({ row, entry, effect, place, value, known: known?.bar });
    if (bar === undefined) this.#mark(row, entry, place.owner);
  }

  #listen({ seq, atMs, endMs }: TimedRow): void {
    const run = this.#run?.run;
    if (run !== undefined && atMs - this.#heardMs >= QUIET_MS) {
      const isToolRunning = this.#toolsRunning > 0;
      run.quiet.push({ startMs: this.#heardMs, endMs: atMs, seq, isToolRunning });
    }
    this.#heardMs = Math.max(this.#heardMs, atMs, endMs);
  }

  /** The bar that has taken the row; undefined: the row belongs to none. */
  #barOf(read: Reading): Drawn | undefined {
    const { row, entry, effect, place } = read;
    switch (effect.does) {
      case "open_run":
        return this.#openRun(read);
      case "finish_run":
      case "fail_run":
        return this.#endRun(read);
      case "chunk":
        return read.known === undefined ? this.#beginChunked(read) : added(read.known, row);
      case "start":
      case "fragment": {
        const known = this.#find(effect, place);
        return known === undefined ? this.#begin(read) : added(known, row);
      }
      case "end":
        return this.#take(read);
      case "nothing":
        return entry.type === "TOOL_CALL_RESULT" ? this.#answer(read) : undefined;
    }
  }

  #openRun({ row, value }: Reading): Drawn {
    for (const bar of this.#top) this.#end(bar, "cut");
    const id = textOf(value["runId"]);
    const bar = this.#add(beginning(row, { kind: "run", name: id, id, parent: undefined }));
    this.#runs += 1;
    const taken = { storedMs: row.storedMs, takenSeq: takenSeq(value), number: this.#runs };
    bar.run = { ...taken, quiet: [], firstOutputMs: undefined, interrupts: [], tokens: undefined };
    this.#run = bar;
    this.#heardMs = Math.max(row.atMs, row.endMs);
    return bar;
  }

  #endRun({ row, effect, value }: Reading): Drawn | undefined {
    const bar = this.#run;
    if (bar === undefined) return undefined;
    added(bar, row);
    const outcome = isObject(value["outcome"]) ? value["outcome"] : {};
    if (bar.run !== undefined) {
      bar.run.interrupts = reasonsOf(outcome["interrupts"]);
      bar.run.tokens = tokensIn(value);
    }
    // Bars that no run had begun around end with the run too: nothing stays open between runs.
    for (const other of this.#top) if (other !== bar) this.#end(other, "cut");
    this.#end(bar, effect.does === "fail_run" ? "failed" : stateOf(outcome));
    return bar;
  }

  #find({ kind }: Effect, { key = "" }: EventAddress): Drawn | undefined {
    return this.#open.get(`${kind}:${key}`);
  }

  #begin(read: Reading): Drawn | undefined {
    const { row, effect, place, value } = read;
    const { kind } = effect;
    const key = `${kind}:${place.key ?? ""}`;
    const around = isPart(kind) ? this.#reasoning.get(place.owner) : undefined;
    if (around !== undefined) {
      around.keys.push(key);
      this.#open.set(key, around);
      return added(around, row);
    }
    const drawnKind = BAR_KINDS[kind ?? "run"];
    if (drawnKind === undefined) return undefined;
    const parent = this.#parentOf(place.owner, value);
    const { id, name } = namesOf(drawnKind, value);
    const bar = this.#add(
      beginning(row, { kind: drawnKind, name, id, parent, owner: place.owner }),
    );
    bar.hasStart = effect.does !== "fragment";
    bar.keys.push(key);
    this.#open.set(key, bar);
    if (drawnKind === "step") {
      const steps = this.#steps.get(place.owner);
      if (steps === undefined) this.#steps.set(place.owner, [bar]);
      else steps.push(bar);
    }
    if (kind === "reasoning" || kind === "thinking") this.#reasoning.set(place.owner, bar);
    if (this.#run?.run !== undefined && OUTPUTS.has(drawnKind))
      this.#run.run.firstOutputMs ??= bar.startMs;
    return bar;
  }

  #beginChunked(read: Reading): Drawn | undefined {
    const { effect, place } = read;
    if (effect.kind === undefined || place.key === undefined) return undefined;
    const known = this.#find(effect, place);
    if (known === undefined && !place.canStart) return undefined;
    const bar = known === undefined ? this.#begin(read) : added(known, read.row);
    if (bar === undefined) return undefined;
    const chunk = { kind: effect.kind, key: place.key, bar };
    for (const other of this.#chunks.begin(place.owner, chunk)) this.#end(other.bar, "done");
    return bar;
  }

  #take({ row, entry, effect, place, value }: Reading): Drawn | undefined {
    const bar = this.#find(effect, place);
    if (bar === undefined) return undefined;
    added(bar, row);
    if (
      bar.kind === "reasoning" &&
      isPart(effect.kind) &&
      bar === this.#reasoning.get(place.owner)
    ) {
      this.#open.delete(`${effect.kind}:${place.key ?? ""}`);
    } else if (entry.type === "SUBAGENT_ERROR") {
      this.#end(bar, "failed");
    } else {
      this.#end(bar, stateOf(isObject(value["outcome"]) ? value["outcome"] : {}));
    }
    return bar;
  }

  #answer({ row, place }: Reading): Drawn | undefined {
    const bar = this.#open.get(`tool_call:${place.key ?? ""}`);
    if (bar === undefined) return undefined;
    added(bar, row);
    bar.resultMs ??= Math.max(bar.startMs, row.atMs);
    if (bar.calledMs !== undefined) this.#end(bar, "done");
    return bar;
  }

  /** Takes the end of a construct; a tool call stays open until its result. */
  #end(bar: Drawn, state: BarState): void {
    if (bar.state !== "open") return;
    if (bar.kind !== "tool") {
      this.#close(bar, state);
      return;
    }
    if (bar.calledMs === undefined && state !== "cut") {
      bar.calledMs = bar.endMs;
      this.#toolsRunning += 1;
    }
    if (bar.calledMs === undefined) this.#close(bar, state);
    else if (bar.resultMs !== undefined || state === "cut") this.#close(bar, "done");
  }

  #close(bar: Drawn, state: BarState): void {
    const { parent } = bar;
    for (const inner of bar.inside) {
      // The end of a run is the end of all; any other bar leaves its open bars to its parent.
      if (bar.kind === "run" || state === "cut") this.#end(inner, "cut");
      else moved(inner, parent, this.#top);
    }
    bar.state = state;
    bar.endMs = Math.max(bar.endMs, bar.insideMs);
    bar.toSeq = Math.max(bar.toSeq, bar.insideSeq);
    bar.inside.clear();
    (parent?.inside ?? this.#top).delete(bar);
    if (parent !== undefined) grown(parent, bar);
    for (const key of bar.keys) if (this.#open.get(key) === bar) this.#open.delete(key);
    if (bar.kind === "tool" && bar.calledMs !== undefined) this.#toolsRunning -= 1;
    if (bar.kind === "step") this.#leave(bar);
    if (this.#reasoning.get(bar.owner) === bar) this.#reasoning.delete(bar.owner);
    if (bar === this.#run) this.#run = undefined;
  }

  #leave(step: Drawn): void {
    const steps = this.#steps.get(step.owner) ?? [];
    const at = steps.lastIndexOf(step);
    if (at !== -1) steps.splice(at, 1);
    if (steps.length === 0) this.#steps.delete(step.owner);
  }

  #add(bar: Drawn): Drawn {
    this.#bars.push(bar);
    (bar.parent?.inside ?? this.#top).add(bar);
    return bar;
  }

  /** The innermost open bar that a new bar, or a mark, of this owner is inside of. */
  #parentOf(owner: string | undefined, value: JsonObject = {}): Drawn | undefined {
    const { parentToolCallId, parentSubagentRunId } = value;
    if (typeof parentToolCallId === "string") {
      const call = this.#open.get(`tool_call:${parentToolCallId}`);
      if (call !== undefined) return call;
    }
    const from = typeof parentSubagentRunId === "string" ? parentSubagentRunId : owner;
    const step = this.#steps.get(from)?.at(-1);
    if (step !== undefined) return step;
    const subagent = from === undefined ? undefined : this.#open.get(`subagent:${from}`);
    return subagent ?? this.#steps.get(undefined)?.at(-1) ?? this.#run;
  }

  #mark(row: TimedRow, entry: CatalogueEntry | undefined, owner: string | undefined): void {
    const { seq, lastSeq, type, atMs, count } = row;
    const category = entry?.category ?? "unknown";
    const parent = this.#parentOf(owner);
    this.#marks.push({ seq, lastSeq, type, category, atMs, count, parent });
  }
}

const BAR_KINDS: Readonly<Partial<Record<NonNullable<Effect["kind"]>, BarKind>>> = {
  step: "step",
  text: "text",
  tool_call: "tool",
  thinking: "reasoning",
  thinking_message: "reasoning",
  reasoning: "reasoning",
  reasoning_message: "reasoning",
  subagent: "subagent",
};

const OUTPUTS: ReadonlySet<BarKind> = new Set(["text", "tool", "reasoning"]);

/** A message of reasoning, which is often inside a START and END of reasoning. */
function isPart(kind: Effect["kind"]): boolean {
  return kind === "reasoning_message" || kind === "thinking_message";
}

/** Payloads without a construct may be large: they are parsed only if a subagent may own them. */
function valueOf({ payload }: TimedRow, { category }: CatalogueEntry): JsonObject | undefined {
  const isWhole = category === "state" || category === "custom";
  if (isWhole && payload?.includes("subagentRunId") !== true) return {};
  const value = payload === undefined ? undefined : parseJson(payload);
  return isObject(value) ? value : undefined;
}

function namesOf(kind: BarKind, value: JsonObject): { readonly id: string; readonly name: string } {
  switch (kind) {
    case "tool":
      return { id: textOf(value["toolCallId"]), name: textOf(value["toolCallName"]) };
    case "step":
      return { id: textOf(value["stepName"]), name: textOf(value["stepName"]) };
    case "subagent":
      return { id: textOf(value["subagentRunId"]), name: textOf(value["name"]) };
    case "text":
      return { id: textOf(value["messageId"]), name: textOf(value["role"]) };
    case "reasoning":
      return { id: textOf(value["messageId"]), name: "" };
    case "run":
      return { id: textOf(value["runId"]), name: textOf(value["runId"]) };
  }
}

function stateOf({ type }: JsonObject): BarState {
  if (type === "interrupt" || type === "suspended") return "interrupted";
  return type === "cancelled" ? "cancelled" : "done";
}

function reasonsOf(interrupts: unknown): readonly string[] {
  if (!Array.isArray(interrupts)) return [];
  return interrupts.filter(isObject).map(({ reason }) => textOf(reason));
}

function takenSeq({ metadata }: JsonObject): number | undefined {
  const session = isObject(metadata) ? metadata["session"] : undefined;
  const consumed = isObject(session) ? session["consumed"] : undefined;
  const last = isObject(consumed) ? consumed["last"] : undefined;
  return typeof last === "number" ? last : undefined;
}

function moved(inner: Drawn, to: Drawn | undefined, top: Set<Drawn>): void {
  inner.parent = to;
  (to?.inside ?? top).add(inner);
}

function tokensIn(end: JsonObject): { input: number; output: number } | undefined {
  const usage = usageIn(end);
  if (usage.length === 0) return undefined;
  return { input: sumOf(usage, "input") ?? 0, output: sumOf(usage, "output") ?? 0 };
}
