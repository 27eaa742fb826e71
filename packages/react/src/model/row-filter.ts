/**
 * The rows that a reader wants to see, and where each of them, or each of their events, stands in a
 * table. Kept while the log grows: only new rows are looked at.
 */
import type { SessionLog } from "./log.ts";
import type { Row } from "./source.ts";

export interface Filter {
  /** Empty: all. */
  readonly type: string;
  readonly runId: string;
  /** In the type or the payload, in upper or lower case. */
  readonly text: string;
}

export const NO_FILTER: Filter = { type: "", runId: "", text: "" };

export class FilteredRows {
  readonly #log: SessionLog;
  readonly #filter: Filter;
  readonly #text: string;
  /** Undefined: all rows of the log. */
  readonly #found: Row[] | undefined;
  #generation: number;
  /** Rows of the log that were looked at, and the last of them. */
  #seen = 0;
  #lastSeen: Row | undefined;
  #unread = 0;
  #made:
    | { readonly isRaw: boolean; readonly version: number; readonly entries: Entries }
    | undefined;

  constructor(log: SessionLog, filter: Filter) {
    this.#log = log;
    this.#filter = filter;
    this.#text = filter.text.toLowerCase();
    const isAll = filter.type === "" && filter.runId === "" && filter.text === "";
    this.#found = isAll ? undefined : [];
    this.#generation = log.generation;
  }

  /** Rows without a payload in memory: a search for a text cannot look into them. */
  get unread(): number {
    return this.#unread;
  }

  /** The lines of the table; the same object until the log has another version. */
  entries({ isRaw, version }: { readonly isRaw: boolean; readonly version: number }): Entries {
    const known = this.#made;
    if (known?.isRaw === isRaw && known.version === version) return known.entries;
    const entries = new Entries(this.rows(), { isRaw });
    this.#made = { isRaw, version, entries };
    return entries;
  }

  rows(): readonly Row[] {
    const { rows, generation } = this.#log;
    if (this.#found === undefined) return rows;
    // Rows came into a gap, or the log began again: what was seen is not its beginning any more.
    if (generation !== this.#generation || rows[this.#seen - 1] !== this.#lastSeen) {
      this.#generation = generation;
      this.#found.length = 0;
      this.#seen = 0;
      this.#unread = 0;
    }
    for (; this.#seen < rows.length; this.#seen += 1) {
      const row = rows[this.#seen];
      if (row !== undefined && this.#isWanted(row)) this.#found.push(row);
    }
    this.#lastSeen = rows[this.#seen - 1];
    return this.#found;
  }

  #isWanted({ type, runId, payload }: Row): boolean {
    const { type: wantedType, runId: wantedRun } = this.#filter;
    if (wantedType !== "" && type !== wantedType) return false;
    if (wantedRun !== "" && runId !== wantedRun) return false;
    if (this.#text === "" || type.toLowerCase().includes(this.#text)) return true;
    if (payload === undefined) this.#unread += 1;
    return payload?.toLowerCase().includes(this.#text) === true;
  }
}

/** An entry of the table: a row, or one of its events. */
export interface Entry {
  readonly row: Row;
  readonly seq: number;
}

/** The table of the rows, or of their events; the sums are made once for each state of the rows. */
export class Entries {
  readonly #rows: readonly Row[];
  /** Events before each row; undefined: an entry is a row. */
  readonly #before: Float64Array | undefined;
  readonly length: number;

  constructor(rows: readonly Row[], { isRaw }: { readonly isRaw: boolean }) {
    this.#rows = rows;
    this.length = rows.length;
    if (!isRaw) return;
    const before = new Float64Array(rows.length + 1);
    rows.forEach(({ count }, at) => (before[at + 1] = (before[at] ?? 0) + count));
    this.#before = before;
    this.length = before[rows.length] ?? 0;
  }

  at(index: number): Entry | undefined {
    if (index >= this.length) return undefined;
    if (this.#before === undefined) {
      const row = this.#rows[index];
      return row && { row, seq: row.seq };
    }
    const at = lastNotAbove(this.#before, index);
    const row = this.#rows[at];
    return row && { row, seq: row.seq + index - (this.#before[at] ?? 0) };
  }

  /** The entry with this event, or the last one before it; -1: none. */
  indexOf(seq: number): number {
    let [low, high] = [0, this.#rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#rows[middle]?.seq ?? 0) <= seq) low = middle + 1;
      else high = middle;
    }
    const row = this.#rows[low - 1];
    if (row === undefined || this.#before === undefined) return low - 1;
    return (this.#before[low - 1] ?? 0) + Math.min(seq, row.lastSeq) - row.seq;
  }
}

function lastNotAbove(sums: Float64Array, value: number): number {
  let [low, high] = [0, sums.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sums[middle] ?? 0) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
