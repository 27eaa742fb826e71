/**
 * Makes the stream for AG-UI clients from the log of a session. For any log, the events with
 * `inRun` are a stream that @ag-ui/client 0.0.59 and 1.0.0 accept. If those clients would accept
 * the log itself, the stream gives them the same messages and the same state.
 *
 *   log ──► unknown to clients ─► CUSTOM
 *      ├──► THINKING_* ─────────► REASONING_*  ─┐
 *      ├──► CHUNKs ─────────────► START, CONTENT ├─► open constructs (constructs.ts) ─► mended events
 *      └──► the rest, as stored ────────────────┘
 *
 *                  RUN_STARTED               RUN_FINISHED, after the END of open constructs
 *   before ───────────────────────► open ──┬──────────────────────────────────────► finished
 *      │                             ▲ ▲   │ RUN_ERROR, which may come at any time       │
 *      │ RUN_ERROR                   │ └─ RUN_STARTED: a RUN_ERROR for the one before    │
 *      └────────────────► failed ◄───│─────┴───────────────────────────────── RUN_ERROR ─┤
 *                           └────────┴───────────────── RUN_STARTED ─────────────────────┘
 *
 * When a run begins inside another run, a crashed runner left the first run open. A client accepts
 * no second RUN_STARTED, and no further events of the first run; so it gets the RUN_ERROR that the
 * runner could not send. Clients accept no event outside of runs, so such an event is not `inRun`.
 * It is still mended, because it counts in the transcript. A RUN_FINISHED outside of runs finishes
 * nothing and is dropped.
 *
 * A missing id is made from the session's id and the number of the event that needs it. So the id
 * is the same each time and for every client, also where fragments came as one merged row.
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
  /** The run's RUN_STARTED, without the messages of its input: those are in the transcript. */
  readonly started: JsonObject;
  readonly startedSeq: bigint;
  readonly status: "running" | "finished" | "error";
  /** The run's RUN_FINISHED or RUN_ERROR. */
  readonly end: JsonObject | undefined;
}

/** The code of the RUN_ERROR for a run that never ended before another one began. */
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

  /** The memory it holds, as weight.ts estimates it. */
  get bytes(): number {
    return this.#runBytes + this.#constructs.bytes;
  }

  /** The newest run. */
  get run(): CanonicalRun | undefined {
    return this.#run;
  }

  /** Whether the log ever had a message with this id, among the ids that are noted. */
  hasHadMessage(id: string): boolean {
    return this.#constructs.hasHadMessage(id);
  }

  /** Whether the log may have had an activity at any time, even if none is left. */
  get hadActivities(): boolean {
    return this.#constructs.hadActivities;
  }

  /** STARTs that open every open construct again, in the order of their first opening. */
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

  /** There is no run when such an event came before any RUN_STARTED. */
  #endRun(status: CanonicalRun["status"], end: JsonObject): void {
    if (this.#run === undefined) return;
    this.#runBytes += weightOf(end).bytes - weightOf(this.#run.end).bytes;
    this.#run = { ...this.#run, status, end };
  }

  #idOf(what: string, seq: bigint): string {
    return `${what}-${seq}-${this.#sessionId}`;
  }
}
