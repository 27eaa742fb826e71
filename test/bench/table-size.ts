/** What the same streams take in PostgreSQL, a row an event and merged, with indexes and TOAST. */
import { type ValidatedEvent, splitEvent } from "@session-ledger/agui/split-event";
import {
  type CompressedRow,
  Compressor,
  type IncomingEvent,
} from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { newEventRow } from "../../src/handlers/push.ts";
import type { EventRow } from "../../src/store/rows.ts";
import type { Stream } from "../support/streams.ts";
import type { Bench, Findings } from "./bench.ts";
import { rounded } from "./figures.ts";
import { type Ledger, startLedger } from "./servers.ts";
import { BEGAN_MICROS, storeRows } from "./store-rows.ts";

/** So many that what a table takes when it is almost empty does not count. */
const EVENTS = 100_000;
const EVENTS_QUICK = 1_000;
/** One event a millisecond. */
const MICROS_PER_EVENT = 1_000n;

interface Event extends IncomingEvent {
  readonly row: ValidatedEvent;
}

interface TableSize {
  readonly rows: number;
  readonly totalBytes: number;
  /** Of it, the rows themselves; the rest is indexes, TOAST and maps. */
  readonly heapBytes: number;
}

export async function measureTable(bench: Bench, streams: readonly Stream[]): Promise<Findings> {
  const ledger = await startLedger(bench);
  const once = streams.map((stream) => acceptedOf(stream));
  const events = once.reduce((sum, stream) => sum + stream.length, 0);
  const copies = Math.ceil((bench.options.quick ? EVENTS_QUICK : EVENTS) / events);
  const rowAnEvent = await sizeOf(bench, ledger, { once, copies, merges: false });
  const merged = await sizeOf(bench, ledger, { once, copies, merges: true });
  return {
    rawEvents: events * copies,
    copies,
    rowAnEvent,
    merged,
    ratio: rounded(rowAnEvent.totalBytes / merged.totalBytes),
  };
}

/** The rows that the service would make of a stream, one an event; what it refuses is not there. */
function acceptedOf({ events }: Stream): readonly Event[] {
  let createdAtMicros = BEGAN_MICROS;
  return events.flatMap(({ eventType, payload }) => {
    createdAtMicros += MICROS_PER_EVENT;
    const times = { createdAtMicros, completedAtMicros: undefined };
    const push = { eventType, payload, eventCount: 0, hasFragments: false, ...times };
    const accepted = splitEvent(push, { mode: "strict", nowMicros: createdAtMicros });
    if (!accepted.ok) return [];
    return accepted.rows.map((row) => ({ ...row, merges: row.conformant, row }));
  });
}

async function sizeOf(
  bench: Bench,
  ledger: Ledger,
  load: {
    readonly once: readonly (readonly Event[])[];
    readonly copies: number;
    readonly merges: boolean;
  },
): Promise<TableSize> {
  const { once, copies, merges } = load;
  bench.progress(merges ? "table: merged" : "table: a row an event");
  await ledger.sql`truncate session_events, sessions`;
  const rows = Array.from({ length: copies }, (_, copy) =>
    once.flatMap((events, at) =>
      rowsOf(events, { merges }).map((row) => ({ sessionId: `bench-${copy}-${at}`, row })),
    ),
  );
  await storeRows(bench, ledger, rows.flat());
  const [size] = await ledger.sql<TableSize[]>`
    select (select count(*)::int from session_events) as "rows",
      pg_total_relation_size('session_events')::int as "totalBytes",
      pg_relation_size('session_events')::int as "heapBytes"`;
  if (size === undefined) throw new Error("the table has no size");
  return size;
}

function rowsOf(
  events: readonly Event[],
  { merges }: { readonly merges: boolean },
): readonly EventRow[] {
  if (!merges) return events.map(({ row }) => newEventRow(row, undefined));
  const compressor = new Compressor<Event>();
  const rows = events.flatMap((event) => compressor.push(event, 0));
  const last = compressor.flush();
  return [...rows, ...(last === undefined ? [] : [last])].map(mergedRow);
}

function mergedRow({ first, fragments, ...merged }: CompressedRow<Event>): EventRow {
  const index = fragments === undefined ? undefined : encodeFragments(fragments);
  return newEventRow({ ...first.row, ...merged }, index);
}
