/** Sums by type as the storage routes give them, added up and compared. */

/** Of `GET /storage` and `GET /sessions/{id}/storage`. */
export interface TypeSum {
  readonly stream: "events" | "messages";
  /** Absent: all types beyond the largest ones. */
  readonly event_type?: string;
  readonly rows: number;
  readonly raw_events: number;
  readonly bytes: number;
  readonly raw_bytes: number;
}

/** Of `GET /storage`. */
export interface Storage {
  readonly sessions: number;
  readonly messages: number;
  readonly raw_events: number;
  readonly rows: number;
  readonly bytes: number;
  readonly disk_bytes?: number;
  /** The share of the rows from which the types are computed. */
  readonly sampled: number;
  readonly types: readonly TypeSum[];
}

/** Of `GET /sessions/{id}/storage`. */
export interface StoragePage {
  readonly items: readonly TypeSum[];
  readonly next_after_seq: number;
  readonly has_more: boolean;
}

/** The sums of both, each type once. */
export function added(known: readonly TypeSum[], more: readonly TypeSum[]): readonly TypeSum[] {
  const sums = new Map<string, TypeSum>();
  for (const one of [...known, ...more]) {
    const key = `${one.stream} ${one.event_type ?? ""}`;
    const sum = sums.get(key);
    sums.set(key, sum === undefined ? one : plus(sum, one));
  }
  return [...sums.values()];
}

function plus(one: TypeSum, other: TypeSum): TypeSum {
  return {
    ...one,
    rows: one.rows + other.rows,
    raw_events: one.raw_events + other.raw_events,
    bytes: one.bytes + other.bytes,
    raw_bytes: one.raw_bytes + other.raw_bytes,
  };
}

export type Total = Omit<TypeSum, "stream" | "event_type">;

export function totalOf(sums: readonly TypeSum[]): Total {
  return sums.reduce(
    (total, one) => ({
      rows: total.rows + one.rows,
      raw_events: total.raw_events + one.raw_events,
      bytes: total.bytes + one.bytes,
      raw_bytes: total.raw_bytes + one.raw_bytes,
    }),
    { rows: 0, raw_events: 0, bytes: 0, raw_bytes: 0 },
  );
}

/** The share that compression saves, from 0 to 1; below 0 where its index costs more. */
export function savedOf({
  bytes,
  raw_bytes: rawBytes,
}: Pick<TypeSum, "bytes" | "raw_bytes">): number {
  return rawBytes === 0 ? 0 : 1 - bytes / rawBytes;
}

export type Column = "event_type" | "rows" | "raw_events" | "bytes" | "raw_bytes" | "saved";

/** Names ascend, numbers descend; `isReverse` turns that around. */
export function sortedBy(
  sums: readonly TypeSum[],
  column: Column,
  isReverse: boolean,
): readonly TypeSum[] {
  const order = (one: TypeSum, other: TypeSum): number => {
    if (column === "event_type")
      return (one.event_type ?? "\uffff") < (other.event_type ?? "\uffff") ? -1 : 1;
    const valueOf = column === "saved" ? savedOf : (sum: TypeSum): number => sum[column];
    return valueOf(other) - valueOf(one);
  };
  const list = sums.toSorted(order);
  return isReverse ? list.toReversed() : list;
}
