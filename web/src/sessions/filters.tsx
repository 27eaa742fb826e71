import { useEffect, useId, useRef, useState } from "react";
import { setQuery, usePlace } from "../router.ts";
import { isStateName, STATES } from "@session-ledger/react/internal/model/standing";
import type { SessionFilter } from "../model/session-list.ts";
import { useKeys } from "@session-ledger/react/internal/ui/keyboard";
import "./filters.css";

const HOUR_MS = 3_600_000;
const TIMES: ReadonlyMap<string, { readonly words: string; readonly ms: number }> = new Map([
  ["1h", { words: "Last hour", ms: HOUR_MS }],
  ["24h", { words: "Last 24 hours", ms: 24 * HOUR_MS }],
  ["7d", { words: "Last 7 days", ms: 7 * 24 * HOUR_MS }],
  ["30d", { words: "Last 30 days", ms: 30 * 24 * HOUR_MS }],
]);

const TYPING_MS = 200;

/** The filter is in the address, so that it can be sent to somebody. */
export function useFilter(): SessionFilter {
  const { query } = usePlace();
  const state = query.get("state") ?? "";
  return {
    query: query.get("q") ?? "",
    projectId: query.get("project") ?? "",
    agentId: query.get("agent") ?? "",
    label: query.get("label") ?? "",
    state: isStateName(state) ? state : "",
    withinMs: TIMES.get(query.get("within") ?? "")?.ms ?? 0,
  };
}

export function clearFilter(): void {
  const [q, project, agent] = [undefined, undefined, undefined];
  setQuery({ q, project, agent, label: undefined, state: undefined, within: undefined });
}

interface FiltersProps {
  readonly filter: SessionFilter;
  /** Some projects and agents to choose from. */
  readonly projects: readonly string[];
  readonly agents: readonly string[];
  /** Enter in the search field. */
  readonly onEnter: () => void;
}

export function Filters({ filter, projects, agents, onEnter }: FiltersProps) {
  const search = useRef<HTMLInputElement>(null);
  const within = usePlace().query.get("within") ?? "";
  const isRunning = filter.state === "running";
  useKeys("Sessions", [
    { keys: ["/"], does: "Search", run: () => search.current?.select() },
    {
      keys: ["r"],
      does: "Only running sessions, or all",
      run: () => setQuery({ state: isRunning ? undefined : "running" }),
    },
  ]);
  return (
    <search className="filters">
      <TextFilter
        ref={search}
        name="q"
        label="Search names, ids and texts"
        value={filter.query}
        className="filters-search"
        onEnter={onEnter}
      />
      <select
        aria-label="State"
        value={filter.state}
        onChange={(event) => setQuery({ state: event.target.value })}
      >
        <option value="">Any state</option>
        {Object.entries(STATES).map(([name, words]) => (
          <option key={name} value={name}>
            {words}
          </option>
        ))}
      </select>
      <TextFilter name="project" label="Project" value={filter.projectId} choices={projects} />
      <TextFilter name="agent" label="Agent" value={filter.agentId} choices={agents} />
      <TextFilter name="label" label="Label key=value" value={filter.label} />
      <select
        aria-label="Time"
        value={filter.withinMs === 0 ? "" : within}
        onChange={(event) => setQuery({ within: event.target.value })}
      >
        <option value="">Any time</option>
        {[...TIMES].map(([name, { words }]) => (
          <option key={name} value={name}>
            {words}
          </option>
        ))}
      </select>
    </search>
  );
}

interface TextFilterProps {
  readonly name: string;
  readonly label: string;
  readonly value: string;
  readonly className?: string;
  readonly choices?: readonly string[];
  readonly onEnter?: () => void;
  readonly ref?: React.Ref<HTMLInputElement>;
}

/** Filters when the reader stops typing. */
function TextFilter({
  name,
  label,
  value,
  className,
  choices = [],
  onEnter,
  ref,
}: TextFilterProps) {
  const listId = useId();
  /** Undefined: the address has it. */
  const [typed, setTyped] = useState<string>();
  useEffect(() => {
    if (typed === undefined) return;
    const timer = setTimeout(() => {
      setQuery({ [name]: typed });
      setTyped(undefined);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [name, typed]);
  return (
    <>
      <input
        ref={ref}
        type="search"
        className={className ?? "filters-text"}
        aria-label={label}
        placeholder={label}
        value={typed ?? value}
        list={choices.length === 0 ? undefined : listId}
        autoComplete="off"
        spellCheck={false}
        dir="auto"
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && typed === undefined) onEnter?.();
          if (event.key !== "Escape") return;
          setTyped("");
          event.currentTarget.blur();
        }}
      />
      {choices.length > 0 && (
        <datalist id={listId}>
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </datalist>
      )}
    </>
  );
}
