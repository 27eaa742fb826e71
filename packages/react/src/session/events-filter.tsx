/** The line above the events: what of them is shown. */
import { type ReactNode, type RefObject, useMemo } from "react";
import type { SessionLog } from "../model/log.ts";
import { type Filter, NO_FILTER } from "../model/row-filter.ts";
import { Button } from "../ui/button.tsx";
import { count } from "../ui/format.ts";
import { cut, visible } from "../ui/text.ts";

interface FilterProps {
  readonly log: SessionLog;
  readonly filter: Filter;
  readonly setFilter: (filter: Filter) => void;
  readonly search: RefObject<HTMLInputElement | null>;
  readonly children: ReactNode;
}

/** New rows after which the lists are counted again. */
const COUNTED_ROWS = 500;
const RUNS_LISTED_MAX = 500;
const RUN_CHARS_MAX = 36;

export function EventsFilter({ log, filter, setFilter, search, children }: FilterProps) {
  const { length } = log.rows;
  const upTo = length < COUNTED_ROWS ? length : length - (length % COUNTED_ROWS);
  const { types, runs } = useMemo(() => countsOf(log, upTo), [log, upTo]);
  const set = (change: Partial<Filter>): void => {
    const next = { ...filter, ...change };
    const isEmpty = next.type === "" && next.runId === "" && next.text === "";
    setFilter(isEmpty ? NO_FILTER : next);
  };
  return (
    <div className="events-filter" role="search" aria-label="Events">
      <input
        ref={search}
        type="search"
        aria-label="Text in the events"
        placeholder="Text in events  /"
        value={filter.text}
        onChange={({ target }) => set({ text: target.value })}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <select
        aria-label="Type"
        value={filter.type}
        onChange={({ target }) => set({ type: target.value })}
      >
        <option value="">All types</option>
        {types.map(([type, number]) => (
          <option key={type} value={type}>
            {visible(cut(type, 64))} ({count(number)})
          </option>
        ))}
      </select>
      <select
        aria-label="Run"
        value={filter.runId}
        onChange={({ target }) => set({ runId: target.value })}
      >
        <option value="">All runs</option>
        {runs.map((run, at) => (
          <option key={run} value={run}>
            {at + 1}. {visible(cut(run, RUN_CHARS_MAX))}
          </option>
        ))}
      </select>
      {filter !== NO_FILTER && (
        <Button look="plain" onClick={() => setFilter(NO_FILTER)}>
          Clear
        </Button>
      )}
      <span className="events-gap" />
      {children}
    </div>
  );
}

function countsOf({ rows }: SessionLog, upTo: number) {
  const types = new Map<string, number>();
  const runs = new Set<string>();
  for (const { type, runId } of rows.slice(0, upTo)) {
    types.set(type, (types.get(type) ?? 0) + 1);
    if (runId !== "" && runs.size < RUNS_LISTED_MAX) runs.add(runId);
  }
  return { types: [...types].toSorted(([a], [b]) => (a < b ? -1 : 1)), runs: [...runs] };
}
