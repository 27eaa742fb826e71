/**
 * The stream that AG-UI clients are sent, made of the log of a session: whatever was logged, what is
 * `inRun` of it is a stream that @ag-ui/client accepts, 0.0.59 and 1.0.0, and where they would accept
 * the log itself, they end with the messages and the state that they would have had from it.
 *
 *   log ──► unknown to clients ─► CUSTOM
 *      ├──► THINKING_* ─────────► REASONING_*  ─┐
 *      ├──► CHUNKs ─────────────► START, CONTENT ├─► what is open (constructs.ts) ─► mended events
 *      └──► the rest, as stored ────────────────┘
 *
 *                  RUN_STARTED               RUN_FINISHED, after the END of what is open
 *   before ───────────────────────► open ──┬──────────────────────────────────────► finished
 *      │                             ▲ ▲   │ RUN_ERROR, which may come at any time       │
 *      │ RUN_ERROR                   │ └─ RUN_STARTED: a RUN_ERROR for the one before    │
 *      └────────────────► failed ◄───│─────┴───────────────────────────────── RUN_ERROR ─┤
 *                           └────────┴───────────────── RUN_STARTED ─────────────────────┘
 *
 * A run that another one begins in was left by a runner that crashed, and a client accepts neither a
 * second RUN_STARTED nor that it go on; so it gets the RUN_ERROR that the runner could not send. What
 * lies outside of runs no client takes, and it is not `inRun`: it is mended like the rest, because it
 * counts in the transcript, and a RUN_FINISHED there finishes nothing and goes.
 *
 * Ids that are made up are made of the session's id and of the number of the event that needs one, so
 * they are the same each time and for everybody, also where fragments came as one merged row.
 */
import { lookup, type CatalogueEntry } from "../../agui/catalogue.ts";
import { isObject, parseObject, type JsonObject } from "../../agui/json.ts";
import { placeOf } from "../../agui/place.ts";
import { EFFECTS } from "../../agui/sequence-effects.ts";
import { chunkedKind } from "./chunk-events.ts";
import { isOpenKind } from "./construct-kinds.ts";
import { Constructs, type Said } from "./constructs.ts";
import { customOf, Outgoing, tagOf, textOf } from "./event.ts";
import type { CanonicalEvent, LoggedEvent } from "./event.ts";
import { Thinking, thinkingType } from "./thinking.ts";
import { weightOf } from "../transcript/weight.ts";
import { isUsable } from "./usable.ts";

export type { CanonicalEvent, LoggedEvent } from "./event.ts";

export interface CanonicalRun {
  readonly runId: string;
  readonly threadId: string;
  /** Its RUN_STARTED, without the messages of its input: those are in the transcript. */
  readonly started: JsonObject;
  readonly startedSeq: bigint;
  readonly status: "running" | "finished" | "error";
  /** Its RUN_FINISHED or RUN_ERROR. */
  readonly end: JsonObject | undefined;
}

/** The code of the RUN_ERROR of a run that never ended, when another one begins. */
const ABANDONED = "ABANDONED";

type Phase = "before" | "open" | "finished" | "failed";

export class Canonical {
  readonly #sessionId: string;
  #constructs = new Constructs();
  #thinking = new Thinking();
  #phase: Phase = "before";
  #run: CanonicalRun | undefined;
  #runBytes = 0;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  clone(): Canonical {
    const copy = new Canonical(this.#sessionId);
    copy.#constructs = this.#constructs.clone();
    copy.#thinking = this.#thinking.clone();
    copy.#phase = this.#phase;
    copy.#run = this.#run;
    copy.#runBytes = this.#runBytes;
    return copy;
  }

  /** What it keeps of memory, as weight.ts estimates it. */
  get bytes(): number {
    return this.#runBytes + this.#constructs.bytes;
  }

  /** The newest run. */
  get run(): CanonicalRun | undefined {
    return this.#run;
  }

  /** Whether the log had a message with this id at any time, one of the ids that are noted. */
  hasHadMessage(id: string): boolean {
    return this.#constructs.hasHadMessage(id);
  }

  /** Whether the log may have had an activity, which it need not have any more. */
  get hadActivities(): boolean {
    return this.#constructs.hadActivities;
  }

  /** STARTs that open again what is open, in the order in which it was opened. */
  openings(): readonly JsonObject[] {
    return this.#phase === "open" ? this.#constructs.openings() : [];
  }

  next({ seq, eventType, payload, conformant }: LoggedEvent): readonly CanonicalEvent[] {
    const value = parseObject(payload);
    const said: Said = { value, text: payload };
    const entry = conformant ? lookup(eventType) : undefined;
    const out = new Outgoing(value, { inRun: this.#phase === "open" });
    if (entry === undefined || !isUsable(entry, value)) out.add(customOf(eventType, value));
    else if (entry.type === "RUN_STARTED") return this.#startRun(said, seq);
    else if (entry.type === "RUN_FINISHED") this.#finishRun(out, said);
    else if (entry.type === "RUN_ERROR") return this.#failRun(said);
    else this.#inOrOutside(out, entry, said, seq);
    return out.events;
  }

  #inOrOutside(out: Outgoing, entry: CatalogueEntry, said: Said, seq: bigint): void {
    const { type, category, kind, role } = entry;
    const { value } = said;
    this.#constructs.endChunks(out, EFFECTS.get(type)?.endsChunks ?? "of_nobody", tagOf(value));
    const chunked = chunkedKind(type);
    const thinking = category === "thinking" ? thinkingType(type) : undefined;
    if (chunked !== undefined) {
      this.#constructs.chunk(out, chunked, value, this.#idOf(chunked, seq));
    } else if (thinking !== undefined) {
      const id = this.#idOf("thinking", seq);
      this.#thinking.next(out, this.#constructs, { type: thinking, value, id });
    } else if (role === "whole" || !isOpenKind(kind)) {
      this.#constructs.whole(out, said);
    } else {
      const key = placeOf(entry, value).key ?? "";
      if (role === "fragment") this.#constructs.fragment(out, kind, key, said);
      else if (role === "end") this.#constructs.end(out, kind, key, said);
      else if (kind === "subagent") this.#constructs.startSubagent(out, key, said);
      else this.#constructs.start(out, kind, key, said);
    }
  }

  #startRun({ value, text }: Said, seq: bigint): readonly CanonicalEvent[] {
    const out = new Outgoing(value, { inRun: true });
    if (this.#phase === "open") {
      const message = "The run did not end: another one began.";
      out.add(out.timed({ type: "RUN_ERROR", message, code: ABANDONED }));
    }
    const { input } = value;
    this.#constructs.beginRun(isObject(input) ? input["messages"] : undefined);
    this.#thinking.clear();
    this.#phase = "open";
    this.#run = {
      runId: textOf(value["runId"]) ?? "",
      threadId: textOf(value["threadId"]) ?? "",
      started: isObject(input) ? { ...value, input: { ...input, messages: [] } } : value,
      startedSeq: seq,
      status: "running",
      end: undefined,
    };
    this.#runBytes = weightOf(this.#run.started).bytes;
    out.add(value, text);
    return out.events;
  }

  #finishRun(out: Outgoing, { value, text }: Said): void {
    if (this.#phase !== "open") return;
    const { outcome } = value;
    const suspends = isObject(outcome) && outcome["type"] === "interrupt";
    this.#constructs.closeAll(out, { suspends });
    this.#thinking.clear();
    this.#phase = "finished";
    this.#endRun("finished", value);
    out.add(value, text);
  }

  #failRun({ value, text }: Said): readonly CanonicalEvent[] {
    const out = new Outgoing(value, { inRun: this.#phase !== "failed" });
    if (this.#phase !== "failed") {
      this.#constructs.clear();
      this.#thinking.clear();
      this.#phase = "failed";
      this.#endRun("error", value);
    }
    out.add(value, text);
    return out.events;
  }

  /** There is none when an event says so that came before any. */
  #endRun(status: CanonicalRun["status"], end: JsonObject): void {
    if (this.#run === undefined) return;
    this.#runBytes += weightOf(end).bytes - weightOf(this.#run.end).bytes;
    this.#run = { ...this.#run, status, end };
  }

  #idOf(what: string, seq: bigint): string {
    return `${what}-${seq}-${this.#sessionId}`;
  }
}
