/**
 * A table of which only the rows on the screen are there, so that a hundred thousand cost no more
 * than forty. Arrows and j/k choose a row, Enter does with it what a press does. A screen reader gets
 * the counts and the numbers of the rows, and the chosen one.
 */
import {
  type KeyboardEvent,
  type ReactNode,
  type RefCallback,
  type RefObject,
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
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
  /** The chosen row; -1: none. */
  readonly selected: number;
  readonly select: (index: number) => void;
  /** The press of a row, and Enter on the chosen one. */
  readonly open?: (index: number) => void;
  /** The row that is open, and what is shown below it. */
  readonly opened?: number;
  readonly details?: ReactNode;
  /** This row is scrolled to when it becomes another one. */
  readonly reveal?: number | undefined;
  /** Stays at the last row while rows come. */
  readonly follows?: boolean;
  /** The reader has scrolled away from the last row, or back to it. */
  readonly onFollow?: (isAtEnd: boolean) => void;
}

function useSizeOf(box: RefObject<HTMLElement | null>) {
  const [size, setSize] = useState({ widthPx: 0, heightPx: 0 });
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const measure = (): void =>
      setSize({ widthPx: element.clientWidth, heightPx: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return size;
}

const ROW_PX = 24;
const PAGE_ROWS = 20;
const OVERSCAN = 12;
/** The browser rounds where it scrolls to. */
const END_PX = 4;

export function VirtualTable<T>(props: VirtualTableProps<T>) {
  const { label, columns: all, count, rowAt, selected, select, open, details } = props;
  const { opened = -1, onFollow } = props;
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const rows = useRows(box, props);
  const columns = all.filter(({ abovePx = 0 }) => rows.widthPx >= abovePx);
  const press = (event: KeyboardEvent): void => {
    const pressed = pressedRow(event, { selected, count });
    if (pressed === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (pressed.opens) (open ?? select)(pressed.index);
    else {
      select(pressed.index);
      rows.reveal(pressed.index);
    }
  };
  return (
    <div
      ref={box}
      className="virtual-table"
      role="grid"
      tabIndex={0}
      aria-label={label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length}
      aria-activedescendant={rows.shown.includes(selected) ? `${id}-${selected}` : undefined}
      onKeyDown={press}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        rows.scrolled(scrollTop);
        onFollow?.(scrollTop + clientHeight >= scrollHeight - END_PX);
      }}
    >
      <Head columns={columns} />
      <div role="rowgroup" className="virtual-table-body" style={{ height: rows.heightPx }}>
        {rows.shown.map((index) => (
          <div
            key={index}
            role="presentation"
            className="virtual-table-item"
            style={{ transform: `translateY(${rows.topOf(index)}px)` }}
          >
            <Row
              id={`${id}-${index}`}
              index={index}
              row={rowAt(index)}
              columns={columns}
              isSelected={index === selected}
              open={open ?? select}
              details={index === opened ? details : undefined}
              detailsRef={rows.detailsRef}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

/**
 * Which rows are on the screen, and where. All rows have one height, and one of them may have details
 * below it, so nothing is measured but the details, and a table of a million rows costs no more.
 */
function useRows<T>(
  box: RefObject<HTMLDivElement | null>,
  { count, opened = -1, follows = false, reveal }: VirtualTableProps<T>,
) {
  const { widthPx, heightPx } = useSizeOf(box);
  const [scrollPx, setScrollPx] = useState(0);
  const [detailsPx, setDetailsPx] = useState(0);
  const openPx = opened < 0 ? 0 : detailsPx;
  const topOf = (index: number): number => index * ROW_PX + (index > opened ? openPx : 0);
  const indexAt = (px: number): number => {
    const below = opened < 0 ? px : Math.max((opened + 1) * ROW_PX - 1, px - openPx);
    return Math.floor((px < (opened + 1) * ROW_PX ? px : below) / ROW_PX);
  };
  const tablePx = count * ROW_PX + openPx;
  // Before the browser has scrolled to the last row, it is shown already.
  const fromPx = follows ? Math.max(0, tablePx - heightPx) : scrollPx;
  const first = Math.max(0, indexAt(fromPx) - OVERSCAN);
  const last = Math.min(count, indexAt(fromPx + heightPx) + OVERSCAN);
  const reach = (index: number): void => {
    const element = box.current;
    if (element === null || index < 0) return;
    const [top, room] = [topOf(index), element.clientHeight - 2 * ROW_PX]; // The head is one row.
    if (top < element.scrollTop) element.scrollTo({ top });
    else if (top > element.scrollTop + room) element.scrollTo({ top: top - room });
  };
  const latest = useRef(reach);
  useEffect(() => {
    latest.current = reach;
  });
  useLayoutEffect(() => {
    if (follows) box.current?.scrollTo({ top: tablePx }); // The browser stops at the end.
  }, [box, follows, tablePx]);
  useEffect(() => {
    if (reveal !== undefined) latest.current(reveal);
  }, [reveal]);
  useEffect(() => {
    if (opened >= 0)
      box.current?.querySelector(".virtual-table-details")?.scrollIntoView({ block: "nearest" });
  }, [box, opened]);
  const detailsRef = useCallback((element: HTMLElement | null) => {
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setDetailsPx(element.offsetHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at);
  return {
    shown,
    topOf,
    widthPx,
    heightPx: tablePx,
    reveal: reach,
    scrolled: setScrollPx,
    detailsRef,
  };
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
  readonly detailsRef: RefCallback<HTMLElement>;
}

function Row<T>(props: RowProps<T>) {
  const { id, index, row, columns, isSelected, open, details, detailsRef } = props;
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
        <div ref={detailsRef} role="row" className="virtual-table-details">
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
