/**
 * Values with their past: each change under the number of its row, found by a binary search. Texts keep
 * only their lengths, because a text mostly grows at its end.
 */
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { Allowance, Patched } from "@session-ledger/agui/transcript/patched";
import { copyOf, weightOf } from "@session-ledger/agui/transcript/weight";

/** A moment of a session. */
export interface At {
  /** Rows that begin above it come later. */
  readonly seq: number;
  /** Inside a merged row: its number, and the UTF-16 units of its text that come later. */
  readonly cutSeq: number;
  readonly missing: number;
}

export class Track<T> {
  readonly #seqs: number[] = [];
  readonly #values: T[] = [];

  get last(): T | undefined {
    return this.#values.at(-1);
  }

  /** Numbers never fall; the last value of a number counts. */
  set(seq: number, value: T): void {
    if (this.#seqs.at(-1) === seq) this.#values[this.#values.length - 1] = value;
    else {
      this.#seqs.push(seq);
      this.#values.push(value);
    }
  }

  at(seq: number): T | undefined {
    return this.#values[placeOf(this.#seqs, seq)];
  }

  around(seq: number): Neighbours {
    return neighboursOf(this.#seqs, seq);
  }
}

/** The number of the last change that is not above a number, and of the first one that is. */
interface Neighbours {
  readonly last: number | undefined;
  readonly next: number | undefined;
}

function neighboursOf(seqs: readonly number[], seq: number): Neighbours {
  const place = placeOf(seqs, seq);
  return { last: seqs[place], next: seqs[place + 1] };
}

/** The place of the last number that is not above `seq`; -1: none. */
function placeOf(seqs: readonly number[], seq: number): number {
  let high = seqs.length;
  if (high === 0 || (seqs[high - 1] ?? 0) <= seq) return high - 1;
  let low = 0;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((seqs[middle] ?? 0) <= seq) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** A text that only grows. */
export class Text {
  readonly #seqs: number[];
  readonly #lengths: number[];
  #text: string;

  constructor(seq: number, text: string) {
    this.#seqs = [seq];
    this.#lengths = [text.length];
    this.#text = text;
  }

  get newest(): string {
    return this.#text;
  }

  /** `text` begins with the text so far. */
  grow(seq: number, text: string): void {
    if (this.#seqs.at(-1) === seq) this.#lengths[this.#lengths.length - 1] = text.length;
    else {
      this.#seqs.push(seq);
      this.#lengths.push(text.length);
    }
    this.#text = text;
  }

  lengthAt({ seq, cutSeq, missing }: At): number {
    const place = placeOf(this.#seqs, seq);
    const length = this.#lengths[place] ?? 0;
    return this.#seqs[place] === cutSeq ? Math.max(0, length - missing) : length;
  }

  at(at: At): string {
    const length = this.lengthAt(at);
    return length === this.#text.length ? this.#text : this.#text.slice(0, length);
  }
}

/** The limits of a transcript (packages/agui/src/transcript/transcript.ts). */
const PATCHED_BYTES_MAX = 64 * 1024 * 1024;
/** Patches of at least this weight lie between two whole values. */
const BETWEEN_BYTES_MIN = 16_384;
const BETWEEN_PATCHES_MAX = 256;
const MADE_MAX = 2;

/**
 * A JSON value that patches change. The patches are kept, and from time to time the whole value: when
 * the patches since the last one weigh more than it.
 */
export class Patches {
  readonly #wholes = new Track<{ readonly seq: number; readonly value: unknown }>();
  readonly #seqs: number[] = [];
  readonly #patches: unknown[] = [];
  #wholeBytes = 0;
  #betweenBytes = 0;
  #between = 0;
  /** The last values that were made, so that a value and the one before it are made once. */
  #made: readonly { readonly seq: number; readonly value: unknown }[] = [];

  /** The value must not be changed any more. */
  set(seq: number, value: unknown): void {
    this.#wholes.set(seq, { seq, value });
    this.#wholeBytes = weightOf(value).bytes;
    this.#betweenBytes = 0;
    this.#between = 0;
    this.#made = [];
  }

  /** `patched` is the value after the patch, and may be changed later. */
  patch(seq: number, patch: unknown, patched: unknown): void {
    this.#betweenBytes += weightOf(patch).bytes;
    this.#between += 1;
    const isFar = this.#betweenBytes > Math.max(BETWEEN_BYTES_MIN, this.#wholeBytes);
    if (isFar || this.#between > BETWEEN_PATCHES_MAX) return this.set(seq, copyOf(patched).value);
    this.#seqs.push(seq);
    this.#patches.push(patch);
  }

  around(seq: number): Neighbours {
    const [whole, patch] = [this.#wholes.around(seq), neighboursOf(this.#seqs, seq)];
    return {
      last: furthest([whole.last, patch.last], (one, other) => one > other),
      next: furthest([whole.next, patch.next], (one, other) => one < other),
    };
  }

  /** The same object for all numbers between two changes. */
  at(seq: number): unknown {
    const whole = this.#wholes.at(seq);
    if (whole === undefined) return undefined;
    const last = placeOf(this.#seqs, seq);
    const from = placeOf(this.#seqs, whole.seq) + 1;
    if (last < from) return whole.value;
    const lastSeq = this.#seqs[last] ?? 0;
    const made = this.#made.find((one) => one.seq === lastSeq);
    if (made !== undefined) return made.value;
    const allowance = new Allowance(PATCHED_BYTES_MAX);
    const patched = new Patched(whole.value, { bytesMax: PATCHED_BYTES_MAX, allowance });
    for (const patch of this.#patches.slice(from, last + 1)) patched.apply(patch);
    this.#made = [{ seq: lastSeq, value: patched.value }, ...this.#made.slice(0, MADE_MAX - 1)];
    return patched.value;
  }
}

function furthest(
  [one, other]: readonly [number | undefined, number | undefined],
  isFurther: (one: number, other: number) => boolean,
): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return isFurther(one, other) ? one : other;
}

/** The object without these fields. Metadata grows in place, so it is copied. */
export function withoutFields(value: JsonObject, without: readonly string[]): JsonObject {
  const fields: Record<string, unknown> = {};
  for (const key of Object.keys(value)) {
    if (without.includes(key) || key === "__proto__") continue;
    const { [key]: field } = value;
    fields[key] = key === "metadata" && isObject(field) ? { ...field } : field;
  }
  return fields;
}
