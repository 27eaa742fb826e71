/**
 * A JSON value that JSON Patches (RFC 6902) change in place, so that a patch costs what it changes.
 *
 * The results are those of the clients, which use fast-json-patch with its readings of the RFC
 * ("/list/" is the first item; for `copy` and `move`, an index after the end of a list is the end);
 * packages/agui/test/patch.property.test.ts compares the two. A failed patch is undone. Two patches
 * fail only here, because their result is not JSON: a `move` of the whole value into itself, and a
 * `copy` of a member that every JavaScript object inherits (`/toString`). Keys that would reach a
 * prototype fail in both.
 *
 * A patch is applied on every read of its session, so its effects are bounded: the value by a
 * weight and a depth, and the cost of operations beyond their own text (copies, shifts of long
 * lists, comparisons of wide objects) by an allowance that all patches of a session share.
 */
import { plainNumber } from "../exact-json.ts";
import { isObject } from "../json.ts";
import { locate, type PatchTarget, put, reach, segmentsOf, take, valueAt } from "./pointer.ts";
import { copyOf, entryBytes, weightOf } from "./weight.ts";

/** Levels that a patched value may have; far below where JSON.stringify runs out of stack (1,000 to 5,000). */
const DEPTH_MAX = 256;

/** The total cost of all patches of one session beyond their own text. */
export class Allowance {
  #bytes: number;

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  spend(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#bytes < 0) throw new PatchTooLarge();
  }
}

/** Failed: the patch is invalid. Too large: it costs more than it may. */
type PatchOutcome = "applied" | "failed" | "too_large";

class PatchTooLarge extends Error {}
class PatchFailed extends Error {}

export interface PatchedLimits {
  readonly bytesMax: number;
  readonly allowance: Allowance;
}

export class Patched {
  readonly #limits: PatchedLimits;
  #value: unknown;
  /** Undefined while the value still belongs to its giver: no patch was applied yet. */
  #bytes: number | undefined;
  #undo: (() => void)[] = [];

  constructor(value: unknown, limits: PatchedLimits) {
    this.#value = value;
    this.#limits = limits;
  }

  get value(): unknown {
    return this.#value;
  }

  /** The weight of the value; undefined before the first patch. */
  get bytes(): number | undefined {
    return this.#bytes;
  }

  apply(patch: unknown): PatchOutcome {
    if (!Array.isArray(patch)) return "failed";
    const before = this.#own();
    try {
      this.#spendBytes(0);
      for (const operation of patch) this.#operate(operation);
      return "applied";
    } catch (error) {
      for (const undo of this.#undo.toReversed()) undo();
      this.#bytes = before;
      if (error instanceof PatchTooLarge) return "too_large";
      if (error instanceof PatchFailed) return "failed";
      throw error;
    } finally {
      this.#undo = [];
    }
  }

  #own(): number {
    if (this.#bytes !== undefined) return this.#bytes;
    const { value, bytes } = copyOf(this.#value);
    this.#value = value;
    this.#bytes = bytes;
    return bytes;
  }

  #operate(operation: unknown): void {
    if (!isObject(operation)) throw new PatchFailed();
    const segments = segmentsOf(operation["path"]);
    if (segments === undefined) throw new PatchFailed();
    if (segments.length === 0) return this.#operateOnRoot(operation);
    switch (operation["op"]) {
      case "add":
        return this.#add(this.#locate(segments, { mustBeNamedPlainly: true }), operation);
      case "replace":
        return this.#replace(this.#existing(segments), operation);
      case "remove": {
        const target = this.#existing(segments);
        this.#remove(target);
        if (typeof target.value !== "function") this.#spendBytes(-weightOf(target.value).bytes);
        return;
      }
      case "test":
        return this.#test(valueAt(this.#locate(segments)), operation);
      case "copy":
        return this.#copy(segments, operation);
      case "move":
        return this.#move(segments, operation);
      default:
        throw new PatchFailed();
    }
  }

  #operateOnRoot(operation: Readonly<Record<string, unknown>>): void {
    switch (operation["op"]) {
      case "add":
      case "replace": {
        const { value, bytes, depth } = copyOf(operand(operation));
        this.#setRoot(value, { bytes, depth });
        return;
      }
      case "remove":
        this.#setRoot(null, weightOf(null));
        return;
      case "test":
        return this.#test(this.#value, operation);
      case "copy":
      case "move": {
        // The clients read this pointer without checking it first.
        const value = this.#source(operation, { mustBeNamedPlainly: false });
        const weight = weightOf(value);
        this.#limits.allowance.spend(weight.bytes);
        this.#setRoot(value, weight);
        return;
      }
      default:
        throw new PatchFailed();
    }
  }

  #setRoot(
    value: unknown,
    { bytes, depth }: { readonly bytes: number; readonly depth: number },
  ): void {
    const old = this.#value;
    this.#undo.push(() => {
      this.#value = old;
    });
    this.#value = value;
    this.#bytes = 0;
    this.#deepen(depth);
    this.#spendBytes(bytes);
  }

  #add(target: PatchTarget, operation: Readonly<Record<string, unknown>>): void {
    const isAfterEnd =
      Array.isArray(target.container) && Number(target.key) > target.container.length;
    if (isAfterEnd) throw new PatchFailed();
    const { value, bytes, depth } = copyOf(operand(operation));
    this.#deepen(target.level + depth);
    this.#insert(target, value, bytes);
  }

  #replace(target: PatchTarget, operation: Readonly<Record<string, unknown>>): void {
    const { value, bytes, depth } = copyOf(operand(operation));
    this.#deepen(target.level + depth);
    const { container: holder, key } = target;
    if (!Array.isArray(holder)) return this.#insert(target, value, bytes);
    const index = Number(key);
    const old: unknown = holder[index];
    holder[index] = value;
    this.#undo.push(() => {
      holder[index] = old;
    });
    this.#spendBytes(bytes - weightOf(old).bytes);
  }

  #copy(segments: readonly string[], operation: Readonly<Record<string, unknown>>): void {
    const target = this.#locate(segments);
    const { value, bytes, depth } = copyOf(this.#source(operation));
    this.#limits.allowance.spend(bytes);
    this.#deepen(target.level + depth);
    this.#insert(target, value, bytes);
  }

  #move(segments: readonly string[], operation: Readonly<Record<string, unknown>>): void {
    this.#locate(segments);
    const from = segmentsOf(operation["from"]);
    if (from === undefined) throw new PatchFailed();
    // The whole value has no place, so it cannot be moved into itself.
    const source = this.#existing(from);
    const value = source.value;
    if (segments.length > from.length) {
      const { bytes, depth } = weightOf(value);
      this.#limits.allowance.spend(bytes);
      this.#deepen(segments.length + depth);
    }
    if (typeof value === "function") throw new PatchFailed();
    this.#remove(source);
    const target = reach(this.#value, segments);
    if (target === undefined) throw new PatchFailed();
    // The value after the source may now be here, and may be no container: clients lose the value.
    if (target === "nowhere") return this.#spendBytes(-weightOf(value).bytes);
    this.#insert(target, value, 0);
  }

  /** Inserts before the item in a list, and replaces the value in an object. */
  #insert(
    { container: holder, key }: Pick<PatchTarget, "container" | "key">,
    value: unknown,
    bytes: number,
  ): void {
    if (Array.isArray(holder)) this.#limits.allowance.spend(shiftBytes(holder, key));
    const { undo, replaced } = put(holder, key, value);
    this.#undo.push(undo);
    const freed = replaced === undefined ? -entryBytes(key) : weightOf(replaced.value).bytes;
    this.#spendBytes(bytes - freed);
  }

  #remove({ container: holder, key }: PatchTarget): void {
    if (Array.isArray(holder)) this.#limits.allowance.spend(shiftBytes(holder, key));
    // A member of the prototype exists for the clients too, and nothing is removed.
    else if (!Object.hasOwn(holder, key)) return;
    this.#undo.push(take(holder, key));
    this.#spendBytes(-entryBytes(key));
  }

  #test(found: unknown, operation: Readonly<Record<string, unknown>>): void {
    if (!this.#isEqual(found, operand(operation))) throw new PatchFailed();
  }

  #isEqual(found: unknown, expected: unknown): boolean {
    if (plainNumber(found) === plainNumber(expected)) return true;
    if (Array.isArray(found) && Array.isArray(expected))
      return (
        found.length === expected.length &&
        found.every((item, index) => this.#isEqual(item, expected[index]))
      );
    if (!isObject(found) || !isObject(expected)) return false;
    const keys = Object.keys(found);
    // The patch's text does not pay for the comparison with an object wider than the expected one.
    this.#limits.allowance.spend(Math.max(0, keys.length - Object.keys(expected).length) * 64);
    return (
      keys.length === Object.keys(expected).length &&
      keys.every((key) => Object.hasOwn(expected, key) && this.#isEqual(found[key], expected[key]))
    );
  }

  #locate(
    segments: readonly string[],
    options?: { readonly mustBeNamedPlainly: boolean },
  ): PatchTarget {
    const target = locate(this.#value, segments, options);
    if (target === undefined) throw new PatchFailed();
    return target;
  }

  #existing(segments: readonly string[]): PatchTarget {
    const target = this.#locate(segments, { mustBeNamedPlainly: true });
    if (!target.exists) throw new PatchFailed();
    return target;
  }

  /** The value that `from` names. */
  #source(
    { from }: Readonly<Record<string, unknown>>,
    options = { mustBeNamedPlainly: true },
  ): unknown {
    const segments = segmentsOf(from);
    if (segments === undefined) throw new PatchFailed();
    if (segments.length === 0) return this.#value;
    const { value: target, exists } = this.#locate(segments, options);
    const isFound = options.mustBeNamedPlainly ? exists : target !== undefined;
    if (!isFound || typeof target === "function") throw new PatchFailed();
    return target;
  }

  #deepen(levels: number): void {
    if (levels > DEPTH_MAX) throw new PatchTooLarge();
  }

  #spendBytes(bytes: number): void {
    this.#bytes = (this.#bytes ?? 0) + bytes;
    if (this.#bytes > this.#limits.bytesMax) throw new PatchTooLarge();
  }
}

function operand({ value }: Readonly<Record<string, unknown>>): unknown {
  if (value === undefined) throw new PatchFailed();
  return value;
}

/** A guess: with it the worst patches found (half a million shifted items) end within seconds. */
function shiftBytes(list: readonly unknown[], key: string | number): number {
  return Math.max(0, list.length - Math.max(0, Number(key))) / 16;
}
