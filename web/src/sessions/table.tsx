/** Thousands of sessions, of which only the seen rows are in the document. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { Facts, SessionItem } from "../model/session-list.ts";
import { navigate, sessionPath } from "../router.ts";
import { State } from "@session-ledger/react/components/ui/session-state";
import { SessionMenu } from "./menu.tsx";
import { count, duration } from "@session-ledger/react/internal/ui/format";
import { useKeys } from "@session-ledger/react/internal/ui/keyboard";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "@session-ledger/react/internal/ui/text";
import { Time } from "@session-ledger/react/components/ui/time";
import "./table.css";

const ROW_PX = 48;
/** On a small screen a session has three lines. */
const TALL_ROW_PX = 76;
const small = matchMedia("(max-width: 600px)");
const OVERSCAN = 12;
/** Rows before the end at which the next page is read. */
const AHEAD = 40;
const NAME_CHARS_MAX = 200;
const ERROR_CHARS_MAX = 300;
const LABELS_MAX = 3;

const COLUMNS = [
  ["state", "State"],
  ["name", "Session"],
  ["agent", "Agent"],
  ["runs", "Runs"],
  ["tokens", "Tokens"],
  ["tools", "Tools"],
  ["labels", "Project, labels"],
  ["activity", "Active"],
  ["menu", ""],
] as const;

export interface SessionTableProps {
  readonly items: readonly SessionItem[];
  readonly total: number | undefined;
  /** The reader is near the end of the items; undefined: the list is complete. */
  readonly onEnd: (() => void) | undefined;
}

export function SessionTable({ items, total = items.length, onEnd }: SessionTableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const isSmall = useIsSmall();
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => (isSmall ? TALL_ROW_PX : ROW_PX),
    getItemKey: (index) => items[index]?.id ?? index,
    overscan: OVERSCAN,
  });
  useEffect(() => rows.measure(), [isSmall, rows]);
  const seen = rows.getVirtualItems();
  const lastSeen = seen.at(-1)?.index ?? 0;
  useEffect(() => {
    if (lastSeen >= items.length - AHEAD) onEnd?.();
  }, [items.length, lastSeen, onEnd]);
  const { selected, select } = useSelection(items, (index) => rows.scrollToIndex(index));
  return (
    <div ref={scroller} className="session-table" role="region" aria-label="List of sessions">
      <div role="table" aria-label="Sessions" aria-rowcount={total + 1}>
        <div role="row" aria-rowindex={1} className="session-table-head session-table-row">
          {COLUMNS.map(([name, title]) => (
            <div key={name} role="columnheader" className={`session-table-${name}`}>
              {title}
            </div>
          ))}
        </div>
        <div role="rowgroup" className="session-table-body" style={{ height: rows.getTotalSize() }}>
          {seen.map(({ index, key, start, size }) => {
            const item = items[index];
            if (item === undefined) return null;
            return (
              <div
                key={key}
                role="row"
                aria-rowindex={index + 2}
                className="session-table-row"
                style={{ transform: `translateY(${start}px)`, height: size }}
              >
                <Cells item={item} isSelected={item.id === selected} onFocus={select} />
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function useIsSmall(): boolean {
  return useSyncExternalStore(
    (listener) => {
      small.addEventListener("change", listener);
      return () => small.removeEventListener("change", listener);
    },
    () => small.matches,
  );
}

/** The selected session keeps its focus while rows move. */
function useSelection(
  items: readonly SessionItem[],
  show: (index: number) => void,
): { readonly selected: string | undefined; readonly select: (id: string) => void } {
  const [selected, setSelected] = useState<string>();
  const move = (by: number): void => {
    const from = items.findIndex(({ id }) => id === selected);
    const to = from < 0 ? 0 : Math.min(items.length - 1, Math.max(0, from + by));
    const item = items[to];
    if (item === undefined) return;
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    setSelected(item.id);
    show(to);
  };
  useKeys("List", [
    { keys: ["j", "ArrowDown"], does: "Next session", run: () => move(1) },
    { keys: ["k", "ArrowUp"], does: "Session before", run: () => move(-1) },
    {
      keys: ["Enter"],
      does: "Open the session",
      run: () => selected !== undefined && navigate(sessionPath(selected)),
    },
  ]);
  return { selected, select: setSelected };
}

function Cells({
  item,
  isSelected,
  onFocus,
}: {
  readonly item: SessionItem;
  readonly isSelected: boolean;
  readonly onFocus: (id: string) => void;
}) {
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    if (isSelected && document.activeElement === document.body) {
      link.current?.focus({ preventScroll: true });
    }
  });
  const { id, name, activityMs } = item;
  return (
    <>
      <div role="cell" className="session-table-state">
        <State state={item.state} sinceMs={item.stateSinceMs} />
      </div>
      <div role="cell" className="session-table-name">
        <Link ref={link} to={sessionPath(id)} onFocus={() => onFocus(id)}>
          {name !== "" && (
            <bdi className="session-table-title">{visible(cut(name, NAME_CHARS_MAX))}</bdi>
          )}
          <bdi className={name === "" ? "session-table-title" : "session-table-id"}>
            {visible(id)}
          </bdi>
        </Link>
        <LastLine item={item} />
      </div>
      <div role="cell" className="session-table-agent">
        <bdi>{visible(item.agent)}</bdi>
        <bdi className="session-table-second">{visible(item.model)}</bdi>
      </div>
      <FactCells facts={item.facts} />
      <div role="cell" className="session-table-labels">
        <bdi>{visible(item.projectId)}</bdi>
        <span className="session-table-second">
          {[...item.labels].slice(0, LABELS_MAX).map(([key, value]) => (
            <bdi key={key} className="session-table-label">
              {visible(`${key}=${value}`)}
            </bdi>
          ))}
        </span>
      </div>
      <div role="cell" className="session-table-activity">
        {activityMs === undefined ? "never" : <Time atMs={activityMs} as="ago" />}
      </div>
      <div role="cell" className="session-table-menu">
        <SessionMenu session={item} />
      </div>
    </>
  );
}

/** The error of a failed session, or what was last said. */
function LastLine({ item: { id, state, failure, facts } }: { readonly item: SessionItem }) {
  if (failure !== undefined && state === "failed") {
    return (
      <Link
        className="session-table-last session-table-error"
        to={`${sessionPath(id)}?at=${failure.seq}`}
        title={visible(cut(failure.message, ERROR_CHARS_MAX))}
      >
        <span aria-hidden="true">✕ </span>
        <bdi>{errorText(failure)}</bdi>
      </Link>
    );
  }
  if (facts === undefined || facts.lastText === "") return null;
  return (
    <div className="session-table-last" dir="auto">
      {facts.lastRole === "user" && <span className="session-table-who">Person: </span>}
      {visible(facts.lastText)}
    </div>
  );
}

function FactCells({ facts }: { readonly facts: Facts | undefined }) {
  const { runs = 0, durationMs = 0, tokens = 0, toolCalls = 0 } = facts ?? {};
  const { failedToolCalls = 0, tools = [] } = facts ?? {};
  return (
    <>
      <div role="cell" className="session-table-runs">
        {runs > 0 && counted(runs, "run")}
        {durationMs > 0 && <span className="session-table-second">{duration(durationMs)}</span>}
      </div>
      <div role="cell" className="session-table-tokens">
        {tokens > 0 && count(tokens)}
        {tokens > 0 && <span className="session-table-unit"> tokens</span>}
      </div>
      <div role="cell" className="session-table-tools" title={visible(tools.join(", "))}>
        {toolCalls > 0 && counted(toolCalls, "call")}
        {failedToolCalls > 0 && (
          <span className="session-table-second session-table-error">{failedToolCalls} failed</span>
        )}
      </div>
    </>
  );
}

function counted(number: number, one: string): string {
  return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

function errorText({ message, code }: NonNullable<SessionItem["failure"]>): string {
  const text = message !== "" ? message : code;
  return text === "" ? "the run failed" : visible(cut(text, ERROR_CHARS_MAX));
}
