/**
 * The texts of a session as its transcript puts them together: the text of a message or of a tool call
 * is all that comes under its id, whoever says it, and whatever ends, begins again or runs out between
 * two pieces. So a text is never over, and where a secret has begun in it, that is kept by its id.
 *
 *   CONTENT, ARGS ──► its kind and id
 *   CHUNK ──────────► what agui/chunk-lanes.ts says that it goes on with, or else something new; where
 *                     it has no id, it is read as going on with the last CHUNK of its kind as well
 *   TEXT_MESSAGE_ and REASONING_MESSAGE_ of one id ──► each by itself, and both as one
 *   THINKING_TEXT_MESSAGE_, which has no id ──► a new one from each START, and behind each END
 *
 * TEXTS_MAX are kept at once; of those that ended and in which nothing has begun, none. What a CHUNK goes
 * on with depends on the run; where its beginning was not seen, its end is taken to end no CHUNKs. To
 * go on too long with a text costs a mask at most at the beginning of a word, to end it costs a secret.
 */
import { createHash } from "node:crypto";
import { type ConstructKind, lookup } from "../agui/catalogue.ts";
import { ChunkLanes } from "../agui/chunk-lanes.ts";
import type { EventPlace } from "../agui/place.ts";
import { KEY_CHARS_MAX, OPEN_IDS_MAX } from "../agui/sequence.ts";
import { EFFECTS } from "../agui/sequence-effects.ts";
import type { Automaton } from "./automaton.ts";
import { type Found, TextScan } from "./text-scan.ts";

/** Texts that are followed at once; the one that was met the longest ago is forgotten. */
const TEXTS_MAX = 256;

export class Texts {
  readonly #automaton: Automaton;
  readonly #found: Found;
  /** The one met last is the last one. */
  readonly #scans = new Map<string, TextScan>();
  readonly #lanes = new ChunkLanes();
  #run: "unknown" | "open" | "finished" | "failed" = "unknown";
  /** CHUNKs that began something without saying its id. */
  #nameless = 0;
  /** Of each kind, what its last CHUNK was of. */
  readonly #chunked = new Map<ConstructKind | undefined, string>();
  /** By its place, which all fragments of one frame share: so that most need no name. */
  #last: { readonly place: EventPlace; readonly scans: readonly TextScan[] } | undefined;

  constructor(automaton: Automaton, found: Found) {
    this.#automaton = automaton;
    this.#found = found;
  }

  /** All that the next piece of the place's text is a piece of. */
  scansOf(place: EventPlace): readonly TextScan[] {
    if (this.#last?.place === place) return this.#last.scans;
    const kind = lookup(place.type)?.kind;
    const before = this.#nameless;
    const id = this.#follow(place);
    const own = kind === "thinking_message" ? THOUGHT : `${kind} ${id}`;
    if (this.#nameless > before) this.#beginBehind(own, this.#chunked.get(kind));
    const scans = [this.#scan(own), ...this.#together(kind, id), ...this.#behind(own)];
    if (EFFECTS.get(place.type)?.does === "chunk") this.#chunked.set(kind, own);
    while (this.#scans.size > TEXTS_MAX) this.#forgetOldest();
    this.#last = { place, scans };
    return scans;
  }

  /** An event without a text of its own, which may begin or end one: what is not known yet is masked. */
  pass(place: EventPlace): void {
    this.#last = undefined;
    const { kind, role } = lookup(place.type) ?? {};
    if (kind === "run" && this.#endsRun(place)) this.#forget(THOUGHT);
    const id = this.#follow(place);
    if (role !== "start" && role !== "end") return;
    if (kind === "run") for (const name of this.#scans.keys()) this.#interrupt(name);
    if (kind === "thinking_message") this.#forget(THOUGHT);
    if (kind === "tool_call" || isMessage(kind)) this.#interrupt(`${kind} ${id}`);
    if (isMessage(kind)) this.#interrupt(bothOf(id));
  }

  /** For the stream that goes on with this one; undefined: it needs to know nothing. */
  left(): Texts | undefined {
    this.#last = undefined;
    for (const name of this.#scans.keys()) this.#interrupt(name);
    if (this.#lanes.size > TEXTS_MAX) this.#lanes.endAll();
    return this.#scans.size > 0 || this.#lanes.size > 0 ? this : undefined;
  }

  /** Ends the CHUNKs that the event ends; the id of what it is of. */
  #follow(place: EventPlace): string {
    const { does = "nothing", endsChunks = "of_nobody", bit = 0 } = EFFECTS.get(place.type) ?? {};
    const owner = place.owner === undefined ? undefined : short(place.owner);
    const isRun = does === "open_run" || does === "finish_run" || does === "fail_run";
    if (endsChunks === "of_all" && (!isRun || this.#endsRun(place))) this.#lanes.endAll();
    else if (endsChunks === "of_its_owner") this.#lanes.end(owner);
    if (isRun && (does !== "finish_run" || this.#run === "open")) this.#run = RUNS[does];
    const key = place.key === undefined ? undefined : `id ${short(place.key)}`;
    if (does !== "chunk") return key ?? "";
    const known = this.#lanes.find({ bit, key, owner });
    if (known !== undefined) return known.key;
    this.#lanes.end(owner);
    if (this.#lanes.size >= OPEN_IDS_MAX) this.#lanes.endAll();
    const begun = key ?? `nameless ${(this.#nameless += 1)}`;
    this.#lanes.start(owner, { bit, key: begun });
    return begun;
  }

  /** As canonical.ts has it: what comes where no run is open ends nothing. */
  #endsRun({ type }: EventPlace): boolean {
    if (type === "RUN_FINISHED") return this.#run === "open";
    if (type === "RUN_ERROR") return this.#run === "open" || this.#run === "finished";
    return true;
  }

  #scan(name: string): TextScan {
    const scan = this.#scans.get(name) ?? new TextScan(this.#automaton, this.#found);
    this.#scans.delete(name);
    this.#scans.set(name, scan);
    return scan;
  }

  /** An answer and a reasoning of one id are one message to those who find messages by their ids. */
  #together(kind: ConstructKind | undefined, id: string): readonly TextScan[] {
    if (!isMessage(kind)) return [];
    const both = bothOf(id);
    const other = this.#scans.get(`${kind === "text" ? "reasoning_message" : "text"} ${id}`);
    if (!this.#scans.has(both)) {
      if (other === undefined) return [];
      other.letGo(); // What waits is of the other one only.
      this.#scans.set(both, other.goOn());
    }
    return [this.#scan(both)];
  }

  /** To clients a nameless CHUNK behind CUSTOM is a new message; whoever reads rows may think otherwise. */
  #beginBehind(name: string, chunked: string | undefined): void {
    const last = this.#scans.get(behind(chunked)) ?? this.#scans.get(chunked ?? "");
    if (last === undefined || last.isAtRest) return;
    last.letGo();
    this.#scans.set(behind(name), last.goOn());
  }

  #behind(name: string): readonly TextScan[] {
    return this.#scans.has(behind(name)) ? [this.#scan(behind(name))] : [];
  }

  #interrupt(name: string): void {
    const scan = this.#scans.get(name);
    scan?.letGo();
    if (scan?.isAtRest === true) this.#scans.delete(name);
  }

  #forget(name: string): void {
    this.#scans.get(name)?.letGo();
    this.#scans.delete(name);
  }

  #forgetOldest(): void {
    const [oldest] = this.#scans.keys();
    if (oldest !== undefined) this.#forget(oldest);
  }
}

/** The text of the thinking that is open, if any is. */
const THOUGHT = "thought";
const RUNS = { open_run: "open", finish_run: "finished", fail_run: "failed" } as const;

function isMessage(kind: ConstructKind | undefined): kind is "text" | "reasoning_message" {
  return kind === "text" || kind === "reasoning_message";
}

/** What goes on with the text before, for some. */
function behind(name = ""): string {
  return `behind ${name}`;
}

function bothOf(id: string): string {
  return `message ${id}`;
}

/** An id may be as long as a payload, and many are kept. */
function short(text: string): string {
  if (text.length <= KEY_CHARS_MAX) return text;
  return `${text.length} ${createHash("sha256").update(text).digest("base64")}`;
}
