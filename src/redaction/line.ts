/**
 * Texts that come in pieces: fragments of messages, tool calls and thoughts, each text read as one
 * (texts.ts), however its pieces are cut and whatever comes between them.
 *
 *   events ──► read ──► known what to mask? ── yes, and nothing waits ──► released
 *                            └─ no ──► waits, and all that comes behind it ──► released in its order
 *
 * An event waits while the end of its text may be the beginning of a secret: behind a whole prefix, for
 * less than the least length of its pattern. What is behind it waits too, since events are committed in
 * the order they came in. It ends with the next units of the text; or else, with an event that begins or
 * ends the text or a run, by age, by number, or because the caller asks (`letGo`), with what is not
 * known being masked.
 */
import type { EventPlace } from "../agui/place.ts";
import type { Automaton } from "./automaton.ts";
import { maskSpelled } from "./masking.ts";
import type { Found, TextScan } from "./text-scan.ts";
import { Texts } from "./texts.ts";

/** `delta` is the masked text, as it is spelled; undefined where nothing was to be masked. */
export type Release<T> = (event: T, delta: string | undefined) => void;

export interface LineOptions {
  /** How long an event waits; on the clock of `take`. */
  readonly maxAgeMs: number;
  /** Of the stream that this one goes on with; this line takes them over. */
  readonly texts?: Texts | undefined;
}

/** Events that wait. A pattern needs fewer, one character each; others that come between wait as well. */
const WAITING_MAX = 1_024;
/** What an event's piece is in one text: units from and to, which are one stretch of it. */
interface Reading {
  readonly scan: TextScan;
  readonly from: number;
  readonly to: number;
}

interface Waiting<T> {
  readonly event: T;
  readonly atMs: number;
  readonly spelled: string;
  /** Of all texts that it is a piece of; none: it has no text. */
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

  /** When the first that waits has waited long enough. */
  get dueAtMs(): number | undefined {
    const first = this.#waiting[this.#first];
    return first && first.atMs + this.#maxAgeMs;
  }

  /** For the next stream; undefined: no secret has begun that may go on in it. */
  get openTexts(): Texts | undefined {
    return this.#texts.left();
  }

  /** The next piece of the text of `place`: the body of a JSON string. */
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

  /** An event without a text of its own, which may begin or end one. */
  take(event: T, places: readonly (EventPlace | undefined)[], nowMs: number): void {
    for (const place of places) if (place !== undefined) this.#texts.pass(place);
    this.#releaseKnown();
    if (this.dueAtMs === undefined) this.#release(event, undefined);
    else this.#wait({ event, atMs: nowMs, spelled: "", readings: NO_READINGS });
  }

  /** Releases everything; what is not known to be harmless is masked. */
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
