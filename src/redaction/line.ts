/**
 * Masks texts that arrive in pieces: fragments of messages, tool calls and thoughts. Each text is
 * read as one (`Texts` below), for any cut of its pieces and any events between them.
 *
 *   events ──► read ──► mask decided? ── yes, and nothing waits ──► released
 *                            └─ no ──► waits, with all later events ──► released in order
 *
 * An event waits while the end of its text may be the beginning of a secret: after a whole prefix,
 * for fewer units than the least length of its pattern. Later events wait too, because events are
 * committed in the order of their arrival. The wait ends with the next units of the text. It also
 * ends with an event that begins or ends the text or a run, by age, by number, or by the caller
 * (`letGo`). Then undecided units are masked.
 */
import { createHash } from "node:crypto";
import type { ConstructKind } from "../agui/catalogue.ts";
import {
  ChunkLanes,
  type Effect,
  EFFECTS,
  type EventPlace,
  KEY_CHARS_MAX,
  type Phase,
  phaseAfter,
} from "../agui/constructs.ts";
import type { Automaton } from "./automaton.ts";
import { type Found, maskSpelled, TextScan } from "./text-scan.ts";

/** `delta` is the masked text, in its JSON spelling; undefined when nothing was masked. */
export type Release<T> = (event: T, delta: string | undefined) => void;

export interface LineOptions {
  /** The longest wait of an event; on the clock of `take`. */
  readonly maxAgeMs: number;
  /** The texts of the stream that this one continues; this line takes them over. */
  readonly texts?: Texts | undefined;
}

/** Waiting events. A pattern needs fewer, one character each; events between them wait as well. */
const WAITING_MAX = 1_024;
/** The piece of an event in one text: units from and to, one contiguous range. */
interface Reading {
  readonly scan: TextScan;
  readonly from: number;
  readonly to: number;
}

interface Waiting<T> {
  readonly event: T;
  readonly atMs: number;
  readonly spelled: string;
  /** One per text that the piece belongs to; empty: the event has no text. */
  readonly readings: readonly Reading[];
}

export class RedactionLine<T> {
  readonly #release: Release<T>;
  readonly #maxAgeMs: number;
  readonly #texts: Texts;
  #waiting: Waiting<T>[] = [];
  #first = 0;

  constructor(
    automaton: Automaton,
    found: Found,
    { release, maxAgeMs, texts }: LineOptions & { readonly release: Release<T> },
  ) {
    this.#release = release;
    this.#maxAgeMs = maxAgeMs;
    this.#texts = texts ?? new Texts(automaton, found);
  }

  /** The time when the first waiting event has waited long enough. */
  get dueAtMs(): number | undefined {
    const first = this.#waiting[this.#first];
    return first && first.atMs + this.#maxAgeMs;
  }

  /** For the next stream; undefined: no secret has begun that may continue in it. */
  get openTexts(): Texts | undefined {
    return this.#texts.left();
  }

  /** Takes the next piece of the text of `place`: the body of a JSON string. */
  takeText(
    event: T,
    piece: { readonly place: EventPlace; readonly spelled: string },
    nowMs: number,
  ) {
    const { place, spelled } = piece;
    const readings = this.#texts.scansOf(place).map((scan): Reading => {
      const from = scan.position;
      scan.readSpelled(spelled, 0);
      return { scan, from, to: scan.position };
    });
    if (this.dueAtMs === undefined && readings.every(isKnown))
      this.#hand({ event, spelled, readings });
    else this.#wait({ event, atMs: nowMs, spelled, readings });
  }

  /** Takes an event without a text of its own, which may begin or end a text. */
  take(event: T, places: readonly (EventPlace | undefined)[], nowMs: number): void {
    for (const place of places) if (place !== undefined) this.#texts.pass(place);
    this.#releaseKnown();
    if (this.dueAtMs === undefined) this.#release(event, undefined);
    else this.#wait({ event, atMs: nowMs, spelled: "", readings: NO_READINGS });
  }

  /** Releases all events; undecided units are masked. */
  letGo(): void {
    for (let at = this.#first; at < this.#waiting.length; at += 1)
      for (const { scan } of this.#waiting[at]?.readings ?? NO_READINGS) scan.letGo();
    this.#releaseKnown();
  }

  #wait(waiting: Waiting<T>): void {
    this.#waiting.push(waiting);
    this.#releaseKnown();
    if (this.#waiting.length - this.#first >= WAITING_MAX) this.letGo();
  }

  #releaseKnown(): void {
    for (;;) {
      const next = this.#waiting[this.#first];
      if (next === undefined || !next.readings.every(isKnown)) break;
      this.#first += 1;
      this.#hand(next);
    }
    if (this.#first === 0) return;
    if (this.#first === this.#waiting.length || this.#first > WAITING_MAX) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
  }

  #hand({ event, spelled, readings }: Omit<Waiting<T>, "atMs">): void {
    let delta: string | undefined;
    for (const { scan, from, to } of readings) {
      if ((scan.masked[0]?.from ?? to) >= to) continue;
      delta = maskSpelled(delta ?? spelled, scan.masked, from);
      scan.forget(to);
    }
    this.#release(event, delta);
  }
}

const NO_READINGS: readonly never[] = [];

function isKnown({ scan, to }: Reading): boolean {
  return scan.settled >= to;
}

/** Texts that are followed at once; the least recently used one is forgotten. */
const TEXTS_MAX = 256;

/**
 * The texts of a session as its transcript joins them: the text of a message or of a tool call is
 * every piece under its id, from any sender, with any ends and new beginnings between two pieces.
 * So a text is never over, and an incomplete secret in it is kept by its id.
 *
 *   CONTENT, ARGS ──► its kind and id
 *   CHUNK ──────────► the construct that agui/constructs.ts finds, or else a new one; where
 *                     it has no id, it also counts as a piece of the last CHUNK of its kind
 *   TEXT_MESSAGE_ and REASONING_MESSAGE_ of one id ──► each alone, and both as one
 *   THINKING_TEXT_MESSAGE_, which has no id ──► a new one from each START, and after each END
 *
 * At most TEXTS_MAX texts are kept, and no ended text without an incomplete secret. The construct
 * that a CHUNK continues depends on the run. When the beginning of the run was not seen, its end
 * ends no CHUNKs. A text that continues too long costs at most a wrong mask at the beginning of a
 * word; a text that ends too early costs a secret.
 */
export class Texts {
  readonly #automaton: Automaton;
  readonly #found: Found;
  /** The most recently used one is the last one. */
  readonly #scans = new Map<string, TextScan>();
  readonly #lanes = new ChunkLanes();
  /** At first as after a failure: when the beginning of a run was not seen, its end ends nothing. */
  #phase: Phase = "failed";
  /** CHUNKs that began a construct without an id. */
  #nameless = 0;
  /** For each kind, the construct of its last CHUNK. */
  readonly #chunked = new Map<ConstructKind | undefined, string>();
  /** Keyed by the place object, which all fragments of a frame share: most need no name. */
  #last: { readonly place: EventPlace; readonly scans: readonly TextScan[] } | undefined;

  constructor(automaton: Automaton, found: Found) {
    this.#automaton = automaton;
    this.#found = found;
  }

  /** All scans that the next piece of the place's text belongs to. */
  scansOf(place: EventPlace): readonly TextScan[] {
    if (this.#last?.place === place) return this.#last.scans;
    const effect = effectOf(place);
    const { kind } = effect;
    const before = this.#nameless;
    const id = this.#follow(place, effect);
    const own = kind === "thinking_message" ? THOUGHT : `${kind} ${id}`;
    if (this.#nameless > before) this.#beginBehind(own, this.#chunked.get(kind));
    const scans = [this.#scan(own), ...this.#together(kind, id), ...this.#behind(own)];
    if (effect.does === "chunk") this.#chunked.set(kind, own);
    for (const oldest of this.#scans.keys()) {
      if (this.#scans.size <= TEXTS_MAX) break;
      this.#forget(oldest);
    }
    this.#last = { place, scans };
    return scans;
  }

  /** Passes an event without a text, which may begin or end one: undecided units are masked. */
  pass(place: EventPlace): void {
    this.#last = undefined;
    const effect = effectOf(place);
    const { does, kind } = effect;
    if (this.#endsRun(effect)) this.#forget(THOUGHT);
    const id = this.#follow(place, effect);
    if (kind !== "run" && does !== "start" && does !== "end") return;
    if (kind === "run") for (const name of this.#scans.keys()) this.#interrupt(name);
    if (kind === "thinking_message") this.#forget(THOUGHT);
    if (kind === "tool_call" || isMessage(kind)) this.#interrupt(`${kind} ${id}`);
    if (isMessage(kind)) this.#interrupt(bothOf(id));
  }

  /** For the stream that continues this one; undefined: nothing has to be kept. */
  left(): Texts | undefined {
    this.#last = undefined;
    for (const name of this.#scans.keys()) this.#interrupt(name);
    if (this.#lanes.size > TEXTS_MAX) this.#lanes.endAll();
    return this.#scans.size > 0 || this.#lanes.size > 0 ? this : undefined;
  }

  /** Ends the CHUNKs that the event ends; returns the id of the event's construct. */
  #follow(place: EventPlace, effect: Effect): string {
    const { does, kind } = effect;
    const owner = place.owner === undefined ? undefined : short(place.owner);
    const key = place.key === undefined ? undefined : `id ${short(place.key)}`;
    if (kind !== "run" || this.#endsRun(effect)) {
      const { known } = this.#lanes.follow(effect, { key, owner });
      if (known !== undefined) return known.key;
    }
    this.#phase = phaseAfter(this.#phase, effect) ?? this.#phase;
    if (does !== "chunk" || kind === undefined) return key ?? "";
    const begun = key ?? `nameless ${(this.#nameless += 1)}`;
    this.#lanes.begin(owner, { kind, key: begun });
    return begun;
  }

  #endsRun(effect: Effect): boolean {
    return effect.kind === "run" && phaseAfter(this.#phase, effect) !== undefined;
  }

  #scan(name: string): TextScan {
    const scan = this.#scans.get(name) ?? new TextScan(this.#automaton, this.#found);
    this.#scans.delete(name);
    this.#scans.set(name, scan);
    return scan;
  }

  /** An answer and a reasoning with one id are one message to clients that find messages by id. */
  #together(kind: ConstructKind | undefined, id: string): readonly TextScan[] {
    if (!isMessage(kind)) return [];
    const both = bothOf(id);
    const other = this.#scans.get(`${kind === "text" ? "reasoning_message" : "text"} ${id}`);
    if (!this.#scans.has(both)) {
      if (other === undefined) return [];
      other.letGo(); // The waiting units belong only to the other text.
      this.#scans.set(both, other.goOn());
    }
    return [this.#scan(both)];
  }

  /** A nameless CHUNK after CUSTOM is a new message, or for readers of rows a continuation. */
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
}

/** The text of the open thinking, if any is open. */
const THOUGHT = "thought";

function effectOf({ type }: EventPlace): Effect {
  return EFFECTS.get(type) ?? NO_EFFECT;
}

const NO_EFFECT: Effect = { does: "nothing", kind: undefined, endsChunks: "of_nobody" };

function isMessage(kind: ConstructKind | undefined): kind is "text" | "reasoning_message" {
  return kind === "text" || kind === "reasoning_message";
}

/** The name of a text that, for some readers, continues the text before it. */
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
