/** What the same streams take in PostgreSQL, a row an event and merged, with indexes and TOAST. */
import { type ValidatedEvent, splitEvent } from "@session-ledger/agui/split-event";
import {
  type CompressedRow,
  Compressor,
  type IncomingEvent,
} from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { newEventRow } from "../../src/handlers/new-row.ts";
import { append } from "../../src/store/append.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import { type NewRow, type Push, storedBytesOf } from "../../src/store/rows.ts";
import type { Stream } from "../support/streams.ts";
import type { Bench, Findings } from "./bench.ts";
import { rounded } from "./figures.ts";
import { type Ledger, startLedger } from "./servers.ts";

/** So many that what a table takes when it is almost empty does not count. */
const EVENTS = 100_000;
const EVENTS_QUICK = 1_000;
const BATCH_ROWS = 1_000;
const STATEMENT_LIMIT_MS = 30_000;
/** 2026-01-01T00:00:00Z; one event a millisecond. */
const BEGAN_MICROS = 1_767_225_600_000_000n;
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
  const database = createDatabase({
    url: () => ledger.databaseUrl,
    connectionsMax: 1,
    statementTimeoutMs: STATEMENT_LIMIT_MS,
    lockTimeoutMs: STATEMENT_LIMIT_MS,
  });
  await ledger.sql`truncate session_events, sessions`;
  await database.start();
  try {
    for (let copy = 0; copy < copies; copy += 1) {
      const pushes = once.flatMap((events, at) => {
        const sessionId = `bench-${copy}-${at}`;
        return rowsOf(events, { merges }).map((row): Push => pushOf(sessionId, row));
      });
      await appendAll(bench, database, pushes);
    }
  } finally {
    await database.stop();
  }
  await ledger.sql`vacuum analyze session_events`;
  const [size] = await ledger.sql<TableSize[]>`
    select (select count(*)::int from session_events) as "rows",
      pg_total_relation_size('session_events')::int as "totalBytes",
      pg_relation_size('session_events')::int as "heapBytes"`;
  if (size === undefined) throw new Error("the table has no size");
  return size;
}

async function appendAll(bench: Bench, database: Database, pushes: readonly Push[]): Promise<void> {
  for (let from = 0; from < pushes.length; from += BATCH_ROWS) {
    bench.signal.throwIfAborted();
    const batch = pushes.slice(from, from + BATCH_ROWS);
    await append(database, batch, { createMissing: true, wait: true });
  }
}

function rowsOf(
  events: readonly Event[],
  { merges }: { readonly merges: boolean },
): readonly NewRow[] {
  if (!merges) return events.map(({ row }) => newEventRow(row, undefined));
  const compressor = new Compressor<Event>();
  const rows = events.flatMap((event) => compressor.push(event, 0));
  const last = compressor.flush();
  return [...rows, ...(last === undefined ? [] : [last])].map(mergedRow);
}

function mergedRow({ first, fragments, ...merged }: CompressedRow<Event>): NewRow {
  const index = fragments === undefined ? undefined : encodeFragments(fragments);
  return newEventRow({ ...first.row, ...merged }, index);
}

function pushOf(sessionId: string, row: NewRow): Push {
  const unkeyed = { key: undefined, digest: undefined, epoch: undefined, range: undefined };
  return {
    sessionId,
    stream: "events",
    ...unkeyed,
    actor: undefined,
    rows: [row],
    bytes: storedBytesOf([row]),
  };
}
