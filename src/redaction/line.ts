/**
 * Texts that come in pieces: fragments of messages, tool calls and thoughts, each text read as one,
 * however its pieces are cut and whatever comes between them.
 *
 *   events ──► read ──► known what to mask? ── yes, and nothing waits ──► released
 *                            └─ no ──► waits, and all that comes behind it ──► released in its order
 *
 * An event waits while the end of its text may be the beginning of a secret: behind a whole prefix, for
 * less than the least length of its pattern. What is behind it waits too, since events are committed in
 * the order they came in. It ends with the next units of the text, with the event that ends the text;
 * or else, by age, by number, or because the caller asks (`letGo`), with what is not known being masked.
 */
import { type ConstructKind, lookup } from "../agui/catalogue.ts";
import type { EventPlace } from "../agui/place.ts";
import type { Automaton } from "./automaton.ts";
import { maskSpelled } from "./masking.ts";
import { type Found, TextScan } from "./text-scan.ts";

/** `delta` is the masked text, as it is spelled; undefined where nothing was to be masked. */
export type Release<T> = (event: T, delta: string | undefined) => void;

export interface LineOptions {
  /** How long an event waits; on the clock of `take`. */
  readonly maxAgeMs: number;
  /** Of the stream that this one goes on with; this line takes them over. */
  readonly texts?: Texts | undefined;
}

/** Texts that are not over, by the names of their constructs. */
export type Texts = Map<string, TextScan>;

/** Events that wait. A pattern needs fewer, one character each; others that come between wait as well. */
const WAITING_MAX = 1_024;
/** Texts that are followed at once; the one that was met the longest ago is forgotten. */
const TEXTS_MAX = 256;

interface Waiting<T> {
  readonly event: T;
  readonly atMs: number;
  /** Undefined: it has no text. */
  readonly scan: TextScan | undefined;
  readonly spelled: string;
  readonly from: number;
  readonly to: number;
}

export class RedactionLine<T> {
  readonly #automaton: Automaton;
  readonly #found: Found;
  readonly #release: Release<T>;
  readonly #maxAgeMs: number;
  readonly #texts: Texts;
  /** By its place, which all fragments of one frame share: so that most need no name. */
  #last: { readonly place: EventPlace; readonly scan: TextScan } | undefined;
  /** Of CHUNK events, which may leave out whose text goes on. */
  readonly #lastChunks = new Map<string, string>();
  #waiting: Waiting<T>[] = [];
  #first = 0;

  constructor(
    automaton: Automaton,
    found: Found,
    { release, maxAgeMs, texts = new Map() }: LineOptions & { readonly release: Release<T> },
  ) {
    this.#automaton = automaton;
    this.#found = found;
    this.#release = release;
    this.#maxAgeMs = maxAgeMs;
    this.#texts = texts;
  }

  /** When the first that waits has waited long enough. */
  get dueAtMs(): number | undefined {
    const first = this.#waiting[this.#first];
    return first && first.atMs + this.#maxAgeMs;
  }

  /** Those that a secret has begun in; undefined: there is none, or it is no longer known. */
  get openTexts(): Texts | undefined {
    const open = [...this.#texts].filter(([, scan]) => !scan.isAtRest);
    return open.length > 0 ? new Map(open) : undefined;
  }

  /** The next piece of the text of `place`: the body of a JSON string. */
  takeText(
    event: T,
    piece: { readonly place: EventPlace; readonly spelled: string },
    nowMs: number,
  ) {
    const { place, spelled } = piece;
    const scan = this.#last?.place === place ? this.#last.scan : this.#scanOf(place);
    const from = scan.position;
    scan.readSpelled(spelled, 0);
    if (this.dueAtMs === undefined && scan.settled === scan.position) {
      this.#hand({ event, scan, spelled, from, to: scan.position });
      return;
    }
    this.#wait({ event, atMs: nowMs, scan, spelled, from, to: scan.position });
  }

  /** An event without a text of its own, which may end one. */
  take(event: T, places: readonly (EventPlace | undefined)[], nowMs: number): void {
    for (const place of places) if (place !== undefined) this.#ended(place);
    this.#releaseKnown();
    if (this.dueAtMs === undefined) this.#release(event, undefined);
    else this.#wait({ event, atMs: nowMs, scan: undefined, spelled: "", from: 0, to: 0 });
  }

  /** Releases everything; what is not known to be harmless is masked. */
  letGo(): void {
    for (let at = this.#first; at < this.#waiting.length; at += 1) this.#waiting[at]?.scan?.letGo();
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
      if (next === undefined || (next.scan !== undefined && next.scan.settled < next.to)) break;
      this.#first += 1;
      this.#hand(next);
    }
    if (this.#first === 0) return;
    if (this.#first === this.#waiting.length || this.#first > WAITING_MAX) {
      this.#waiting = this.#waiting.slice(this.#first);
      this.#first = 0;
    }
  }

  #hand({ event, scan, spelled, from, to }: Omit<Waiting<T>, "atMs">): void {
    const isMasked = (scan?.masked[0]?.from ?? to) < to;
    const delta = isMasked && scan ? maskSpelled(spelled, scan.masked, from) : undefined;
    if (isMasked) scan?.forget(to);
    this.#release(event, delta);
  }

  #scanOf(place: EventPlace): TextScan {
    const name = this.#nameOf(place);
    let scan = this.#texts.get(name);
    if (scan === undefined) scan = new TextScan(this.#automaton, this.#found);
    else this.#texts.delete(name);
    this.#texts.set(name, scan); // The one met last is the last one.
    this.#last = { place, scan };
    if (this.#texts.size > TEXTS_MAX) this.#forgetOldest();
    return scan;
  }

  #forgetOldest(): void {
    const [oldest] = this.#texts;
    if (oldest === undefined) return;
    const [name, scan] = oldest;
    scan.letGo();
    scan.end();
    this.#texts.delete(name);
  }

  #nameOf({ type, key, owner = "" }: EventPlace): string {
    const family = `${lookup(type)?.kind} ${owner.length} ${owner}`;
    if (!type.endsWith("_CHUNK")) return `${family} ${key ?? ""}`;
    const id = key ?? this.#lastChunks.get(family) ?? "";
    if (key !== undefined) {
      if (this.#lastChunks.size > TEXTS_MAX) this.#lastChunks.clear();
      this.#lastChunks.set(family, key);
    }
    return `${family} ${id}`;
  }

  /** A text is over with its END, and where another of its name begins; all are with their run. */
  #ended(place: EventPlace): void {
    const { kind, role } = lookup(place.type) ?? {};
    if (kind === "run" && role === "end") {
      for (const scan of this.#texts.values()) scan.end();
      this.#texts.clear();
      this.#last = undefined;
      return;
    }
    if (kind === undefined || !TEXT_KINDS.has(kind) || (role !== "end" && role !== "start")) return;
    const name = this.#nameOf(place);
    const scan = this.#texts.get(name);
    if (scan === undefined) return;
    scan.end();
    this.#texts.delete(name);
    if (this.#last?.scan === scan) this.#last = undefined;
  }
}

const TEXT_KINDS: ReadonlySet<ConstructKind> = new Set<ConstructKind>([
  "text",
  "tool_call",
  "reasoning_message",
  "thinking_message",
]);
