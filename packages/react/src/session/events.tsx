/**
 * The log as it is stored: a row a line, or, taken apart, an event a line. A row that is open shows
 * its JSON and the events that it was merged from.
 */
import { memo, useEffect, useMemo, useRef, useState } from "react";
import {
  type Entries,
  type Entry,
  type Filter,
  FilteredRows,
  NO_FILTER,
} from "../model/row-filter.ts";
import type { Row } from "../model/source.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { bytes, clockText, count } from "../ui/format.ts";
import { useKeys } from "../ui/keyboard.ts";
import { cut, visible } from "../ui/text.ts";
import { type Column, VirtualTable } from "../ui/virtual-table.tsx";
import { EventDetails } from "./event-details.tsx";
import { EventsFilter } from "./events-filter.tsx";
import { categoryOf, eventPayload, previewOf } from "./event-text.ts";
import { useInSession } from "./in-session.ts";
import type { Cursor } from "../model/scrub.ts";
import { useLogVersion } from "./use-session-log.ts";
import "./events.css";

const PREVIEW_CHARS_MAX = 160;
const RUN_CHARS_MAX = 128;

export interface EventsProps {
  readonly cursor: Cursor;
}

export const Events = memo(function Events({ cursor }: EventsProps) {
  const { log, moveTo } = useInSession();
  const version = useLogVersion(log);
  const [isRaw, setRaw] = useState(false);
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [isAtEnd, setAtEnd] = useState(true);
  const search = useRef<HTMLInputElement>(null);
  const filtered = useMemo(() => new FilteredRows(log, filter), [log, filter]);
  const entries = filtered.entries({ isRaw, version });
  const follows = cursor === "live" && isAtEnd;
  const isLoading = !log.isJoined;
  const nothing = log.rows.length === 0 ? "No events yet" : "No event fits the filter";
  useKeys("Events", [
    { keys: ["/"], does: "Search in the events", run: () => search.current?.select() },
  ]);
  return (
    <section className="events" aria-label="Events">
      <EventsFilter log={log} filter={filter} setFilter={setFilter} search={search}>
        <span role="group" aria-label="What a line is" className="timeline-choice">
          <Button pressed={!isRaw} onClick={() => setRaw(false)} title="As they are stored">
            Rows
          </Button>
          <Button
            pressed={isRaw}
            onClick={() => setRaw(true)}
            title="As they were before compression"
          >
            Events
          </Button>
        </span>
        <Button
          pressed={follows}
          onClick={() => {
            setAtEnd(!follows);
            if (!follows) moveTo("live");
          }}
          title="Stay at the newest event"
        >
          Follow
        </Button>
      </EventsFilter>
      {entries.length === 0 ? (
        <Empty title={isLoading ? "Loading …" : nothing} />
      ) : (
        <EventsTable
          entries={entries}
          isRaw={isRaw}
          cursor={cursor}
          follows={follows}
          setAtEnd={setAtEnd}
        />
      )}
      <p className="events-sum">
        {log.hasNewest && sumOf(entries.length, isRaw)}
        {filter !== NO_FILTER && ` of ${count(isRaw ? log.head : log.rows.length)}`}
        {filtered.unread > 0 &&
          filter.text !== "" &&
          `, ${count(filtered.unread)} rows not searched`}
        {isLoading && log.hasNewest && ", more are being read"}
      </p>
    </section>
  );
});

interface TableProps {
  readonly entries: Entries;
  readonly isRaw: boolean;
  readonly cursor: Cursor;
  readonly follows: boolean;
  readonly setAtEnd: (isAtEnd: boolean) => void;
}

function EventsTable({ entries, isRaw, cursor, follows, setAtEnd }: TableProps) {
  const { log, moveTo } = useInSession();
  const [openSeq, setOpenSeq] = useState<number>();
  const isLive = cursor === "live";
  const selected = cursor === "live" ? entries.length - 1 : entries.indexOf(cursor);
  const opened = openSeq === undefined ? -1 : entries.indexOf(openSeq);
  const openEntry = opened < 0 ? undefined : entries.at(opened);
  const choose = (index: number): void => {
    const entry = entries.at(index);
    if (entry !== undefined) moveTo(isRaw ? entry.seq : entry.row.lastSeq);
  };
  const toggle = (index: number): void => {
    const entry = entries.at(index);
    if (entry === undefined) return;
    setOpenSeq(index === opened ? undefined : entry.seq);
    if (index !== selected || !isLive) choose(index);
    else setAtEnd(false); // The next rows would push the open one away.
  };
  return (
    <VirtualTable
      label={isRaw ? "Events" : "Rows of events"}
      columns={isRaw ? EVENT_COLUMNS : ROW_COLUMNS}
      count={entries.length}
      rowAt={(index) => entries.at(index)}
      keyOf={(index) => entries.at(index)?.seq ?? index}
      selected={selected}
      reveal={isLive ? undefined : selected}
      select={choose}
      open={toggle}
      follows={follows}
      onFollow={(atEnd) => setAtEnd(atEnd && openSeq === undefined)}
      opened={opened}
      details={
        openEntry && <EventDetails log={log} entry={openEntry} isRaw={isRaw} key={openSeq} />
      }
    />
  );
}

function sumOf(length: number, isRaw: boolean): string {
  const name = isRaw ? "event" : "row";
  return `${count(length)} ${name}${length === 1 ? "" : "s"}`;
}

const ROW_COLUMNS: readonly Column<Entry>[] = [
  { name: "Number", width: "64px", isNumber: true, cell: ({ seq }) => seq },
  {
    name: "Time",
    width: "100px",
    isNumber: true,
    abovePx: 420,
    cell: ({ row }) => clockText(row.atMs),
  },
  { name: "Type", width: "minmax(140px, 2fr)", cell: typeOf },
  {
    name: "Content",
    width: "minmax(80px, 3fr)",
    cell: ({ row }) => <Content row={row} payload={row.payload} />,
  },
  { name: "Run", width: "88px", abovePx: 640, cell: runOf },
  {
    name: "Count",
    width: "56px",
    isNumber: true,
    abovePx: 340,
    cell: ({ row }) => (row.count === 1 ? "" : count(row.count)),
  },
  {
    name: "Size",
    width: "68px",
    isNumber: true,
    abovePx: 520,
    cell: ({ row }) => bytes(row.bytes),
  },
];

const EVENT_COLUMNS: readonly Column<Entry>[] = ROW_COLUMNS.flatMap((column) => {
  switch (column.name) {
    case "Count":
    case "Size":
      return [];
    case "Time":
      return [{ ...column, cell: ({ row, seq }) => clockText(eventPayload(row, seq).atMs) }];
    case "Content":
      return [
        {
          ...column,
          cell: ({ row, seq }) => <Content row={row} payload={eventPayload(row, seq).payload} />,
        },
      ];
    default:
      return [column];
  }
});

function typeOf({ row: { type, isConformant } }: Entry) {
  return (
    <span className={`events-type events-${categoryOf(type)}`}>
      <bdi>{visible(cut(type, 80))}</bdi>
      {!isConformant && <em title="No version of AG-UI has such an event"> not AG-UI</em>}
    </span>
  );
}

function runOf({ row: { runId } }: Entry) {
  const text = visible(cut(runId, RUN_CHARS_MAX));
  return <bdi title={text}>{text}</bdi>;
}

/** A reader who scrolls past needs no payload. */
const READ_AFTER_MS = 100;

/** The payload of a row that was read long ago is read again while the row is in sight. */
function Content({ row, payload }: { readonly row: Row; readonly payload: string | undefined }) {
  const { log } = useInSession();
  const isDropped = payload === undefined;
  useEffect(() => {
    if (!isDropped) return undefined;
    // Without an answer it stays as it is, and the page shows that the connection is lost.
    const timer = setTimeout(() => void log.read(row).catch(() => undefined), READ_AFTER_MS);
    return () => clearTimeout(timer);
  }, [log, row, isDropped]);
  if (isDropped) return <span className="events-muted">…</span>;
  const text = cut(previewOf(row.type, payload), PREVIEW_CHARS_MAX);
  return <bdi className="events-content">{visible(text.replaceAll(/\s+/g, " "))}</bdi>;
}
