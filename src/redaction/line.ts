/**
 * Masks texts that arrive in pieces: fragments of messages, tool calls and thoughts. Each text is
 * read as one (texts.ts), for any cut of its pieces and any events between them.
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
import type { EventPlace } from "../agui/place.ts";
import type { Automaton } from "./automaton.ts";
import { maskSpelled } from "./masking.ts";
import type { Found, TextScan } from "./text-scan.ts";
import { Texts } from "./texts.ts";

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
