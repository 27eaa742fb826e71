import { useEffect, useId, useRef, useState } from "react";
import { setQuery, usePlace } from "../router.ts";
import type { SessionFilter } from "../model/session-list.ts";
import { Button } from "../ui/button.tsx";
import { useKeys } from "../ui/keyboard.ts";
import "./filters.css";

const PHASES = ["Pending", "Creating", "Running", "Stopping", "Stopped", "Completed", "Failed"];

const TYPING_MS = 200;

/** The filter is in the address, so that it can be sent to somebody. */
export function useFilter(): SessionFilter {
  const { query } = usePlace();
  return {
    query: query.get("q") ?? "",
    projectId: query.get("project") ?? "",
    phase: query.get("phase") ?? "",
    isRunning: query.get("running") === "true",
  };
}

export function clearFilter(): void {
  setQuery({ q: undefined, project: undefined, phase: undefined, running: undefined });
}

export function Filters({
  filter,
  projects,
}: {
  readonly filter: SessionFilter;
  /** Some projects to choose from. */
  readonly projects: readonly string[];
}) {
  const search = useRef<HTMLInputElement>(null);
  const listId = useId();
  useKeys("Sessions", [
    { keys: ["/"], does: "Search", run: () => search.current?.select() },
    {
      keys: ["r"],
      does: "Only running sessions, or all",
      run: () => setQuery({ running: filter.isRunning ? undefined : "true" }),
    },
  ]);
  return (
    <search className="filters">
      <TextFilter
        ref={search}
        name="q"
        label="Search by name or id"
        value={filter.query}
        className="filters-search"
      />
      <TextFilter
        name="project"
        label="Project"
        value={filter.projectId}
        className="filters-project"
        list={listId}
      />
      <datalist id={listId}>
        {projects.map((project) => (
          <option key={project} value={project}>
            {project}
          </option>
        ))}
      </datalist>
      <select
        aria-label="Phase"
        value={filter.phase}
        onChange={(event) => setQuery({ phase: event.target.value })}
      >
        <option value="">Any phase</option>
        {PHASES.map((phase) => (
          <option key={phase}>{phase}</option>
        ))}
      </select>
      <Button
        pressed={filter.isRunning}
        onClick={() => setQuery({ running: filter.isRunning ? undefined : "true" })}
      >
        <span aria-hidden="true">●</span> Running now
      </Button>
    </search>
  );
}

interface TextFilterProps {
  readonly name: string;
  readonly label: string;
  readonly value: string;
  readonly className: string;
  readonly list?: string;
  readonly ref?: React.Ref<HTMLInputElement>;
}

/** Filters when the reader stops typing. */
function TextFilter({ name, label, value, className, list, ref }: TextFilterProps) {
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
    <input
      ref={ref}
      type="search"
      className={className}
      aria-label={label}
      placeholder={label}
      value={typed ?? value}
      list={list}
      autoComplete="off"
      spellCheck={false}
      onChange={(event) => setTyped(event.target.value)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        setTyped("");
        event.currentTarget.blur();
      }}
    />
  );
}
