/**
 * A table that renders only the rows on the screen. Arrows and j/k choose a row, Enter presses it. A
 * screen reader gets the counts and numbers of the rows, and the chosen one.
 */
import { useVirtualizer, type Virtualizer } from "@tanstack/react-virtual";
import {
  type KeyboardEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import "./virtual-table.css";

export interface Column<T> {
  readonly name: string;
  /** A track of a CSS grid, like "80px" or "1fr". */
  readonly width: string;
  /** Left out where the table is narrower than this. */
  readonly abovePx?: number;
  /** Numbers stand at the end of their column. */
  readonly isNumber?: boolean;
  readonly cell: (row: T) => ReactNode;
}

interface VirtualTableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly count: number;
  readonly rowAt: (index: number) => T | undefined;
  readonly keyOf: (index: number) => string | number;
  /** The chosen row; -1: none. */
  readonly selected: number;
  readonly select: (index: number) => void;
  /** The press of a row, and Enter on the chosen one. */
  readonly open?: (index: number) => void;
  /** The open row, and the content below it. */
  readonly opened?: number;
  readonly details?: ReactNode;
  /** This row is scrolled to when it becomes another one. */
  readonly reveal?: number | undefined;
  /** Stays at the last row while rows come. */
  readonly follows?: boolean;
  /** The reader has scrolled away from the last row, or back to it. */
  readonly onFollow?: (isAtEnd: boolean) => void;
}

function useWidthOf(box: RefObject<HTMLElement | null>): number {
  const [widthPx, setWidthPx] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = (): void => setWidthPx(element.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return widthPx;
}

const ROW_PX = 24;
const PAGE_ROWS = 20;
const OVERSCAN = 6;
/** The browser rounds where it scrolls to. */
const END_PX = 4;

export function VirtualTable<T>(props: VirtualTableProps<T>) {
  const { label, columns: all, count, rowAt, selected, select, open, opened, details } = props;
  const { onFollow } = props;
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const widthPx = useWidthOf(box);
  const columns = useMemo(
    () => all.filter(({ abovePx = 0 }) => widthPx >= abovePx),
    [all, widthPx],
  );
  const rows = useRows(box, props);
  useEffect(() => {
    if (opened !== undefined && opened >= 0)
      box.current?.querySelector(".virtual-table-details")?.scrollIntoView({ block: "nearest" });
  }, [opened]);
  const press = (event: KeyboardEvent): void => {
    const pressed = pressedRow(event, { selected, count });
    if (pressed === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (pressed.opens) (open ?? select)(pressed.index);
    else {
      select(pressed.index);
      rows.scrollToIndex(pressed.index, { align: "auto" });
    }
  };
  const items = rows.getVirtualItems();
  return (
    <div
      ref={box}
      className="virtual-table"
      role="grid"
      tabIndex={0}
      aria-label={label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length}
      aria-activedescendant={
        items.some(({ index }) => index === selected) ? `${id}-${selected}` : undefined
      }
      onKeyDown={press}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) =>
        onFollow?.(scrollTop + clientHeight >= scrollHeight - END_PX)
      }
    >
      <Head columns={columns} />
      <div role="rowgroup" className="virtual-table-body" style={{ height: rows.getTotalSize() }}>
        {items.map(({ index, key, start, size }) => (
          <div
            key={key}
            // Of the others the height is known, and each measure is a layout of the page.
            ref={index === opened || size !== ROW_PX ? rows.measureElement : undefined}
            data-index={index}
            role="presentation"
            className="virtual-table-item"
            style={{ transform: `translateY(${start}px)` }}
          >
            <Row
              id={`${id}-${index}`}
              index={index}
              row={rowAt(index)}
              columns={columns}
              isSelected={index === selected}
              open={open ?? select}
              details={index === opened ? details : undefined}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

/** The rendered rows, and the scrolling to others. */
function useRows<T>(
  box: RefObject<HTMLDivElement | null>,
  { count, keyOf, follows = false, reveal }: VirtualTableProps<T>,
): Virtualizer<HTMLDivElement, Element> {
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    getItemKey: keyOf,
    overscan: OVERSCAN,
    // The head covers the first row, and moves all of them down by its height.
    scrollPaddingStart: ROW_PX,
    scrollPaddingEnd: ROW_PX,
  });
  useEffect(() => {
    if (follows && count > 0) rows.scrollToIndex(count - 1, { align: "end" });
  }, [follows, count, rows]);
  useEffect(() => {
    if (reveal !== undefined && reveal >= 0) rows.scrollToIndex(reveal, { align: "auto" });
  }, [reveal, rows]);
  return rows;
}

function Head<T>({ columns }: { readonly columns: readonly Column<T>[] }) {
  return (
    <div
      role="row"
      aria-rowindex={1}
      className="virtual-table-head"
      style={{ gridTemplateColumns: tracksOf(columns) }}
    >
      {columns.map(({ name, isNumber }) => (
        <div key={name} role="columnheader" className={isNumber === true ? "is-number" : undefined}>
          {name}
        </div>
      ))}
    </div>
  );
}

interface RowProps<T> {
  readonly id: string;
  readonly index: number;
  readonly row: T | undefined;
  readonly columns: readonly Column<T>[];
  readonly isSelected: boolean;
  readonly open: (index: number) => void;
  readonly details: ReactNode;
}

function Row<T>({ id, index, row, columns, isSelected, open, details }: RowProps<T>) {
  if (row === undefined) return null;
  return (
    <>
      {/* The keys of the grid do the same for the chosen row. */}
      {/* oxlint-disable-next-line jsx-a11y/click-events-have-key-events */}
      <div
        role="row"
        id={id}
        aria-rowindex={index + 2}
        aria-selected={isSelected}
        className="virtual-table-row"
        style={{ gridTemplateColumns: tracksOf(columns) }}
        onClick={() => open(index)}
      >
        {columns.map(({ name, isNumber, cell }) => (
          <div key={name} role="gridcell" className={isNumber === true ? "is-number" : undefined}>
            {cell(row)}
          </div>
        ))}
      </div>
      {details !== undefined && details !== null && (
        <div role="row" className="virtual-table-details">
          <div role="gridcell" aria-colspan={columns.length}>
            {details}
          </div>
        </div>
      )}
    </>
  );
}

function tracksOf<T>(columns: readonly Column<T>[]): string {
  return columns.map(({ width }) => width).join(" ");
}

interface Table {
  readonly selected: number;
  readonly count: number;
}

/** The row that a key goes to, or, with Enter, opens. */
function pressedRow(
  { key, target, currentTarget, ctrlKey, metaKey, altKey }: KeyboardEvent,
  { selected, count }: Table,
): { readonly index: number; readonly opens: boolean } | undefined {
  if (target !== currentTarget || ctrlKey || metaKey || altKey || count === 0) return undefined;
  const steps: Readonly<Record<string, number>> = {
    ArrowDown: selected + 1,
    j: selected + 1,
    ArrowUp: selected - 1,
    k: selected - 1,
    PageDown: selected + PAGE_ROWS,
    PageUp: selected - PAGE_ROWS,
    Home: 0,
    End: count - 1,
    Enter: selected,
  };
  const to = steps[key];
  if (to === undefined) return undefined;
  return { index: Math.min(Math.max(to, 0), count - 1), opens: key === "Enter" };
}
