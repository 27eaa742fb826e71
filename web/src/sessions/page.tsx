/** All sessions, the newest activity first, as they change. */
import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import type { StreamState } from "@session-ledger/react/internal/api/stream";
import type { SessionFilter, SessionItem } from "../model/session-list.ts";
import { useTitle } from "../ui/title.ts";
import { Button } from "@session-ledger/react/components/ui/button";
import { Empty } from "@session-ledger/react/components/ui/empty";
import { ErrorBox } from "@session-ledger/react/components/ui/error-box";
import { count } from "@session-ledger/react/internal/ui/format";
import { SessionFeed } from "./feed.ts";
import { clearFilter, Filters, useFilter } from "./filters.tsx";
import { type FoundHandle, FoundTexts } from "./found.tsx";
import { SessionTable } from "./table.tsx";
import "../ui/connection.css";
import "./page.css";

function useFeed(filter: SessionFilter): SessionFeed {
  const { query, projectId, agentId, label, state, withinMs } = filter;
  const feed = useMemo(
    () => new SessionFeed({ query, projectId, agentId, label, state, withinMs }),
    [query, projectId, agentId, label, state, withinMs],
  );
  useEffect(() => {
    feed.start();
    return () => feed.stop();
  }, [feed]);
  return feed;
}

export function SessionsPage() {
  const filter = useFilter();
  const feed = useFeed(filter);
  const { items, total, isLowerBound, more, error, stream } = useSyncExternalStore(
    (listener) => feed.subscribe(listener),
    () => feed.sessions,
  );
  useTitle("Sessions");
  const found = useRef<FoundHandle>(null);
  const projects = useMemo(() => valuesOf(items, "projectId"), [items]);
  const agents = useMemo(() => valuesOf(items, "agentId"), [items]);
  return (
    <div className="sessions">
      <ConnectionNotice state={stream} />
      <div className="sessions-head">
        <h1 className="unseen">Sessions</h1>
        <Filters
          filter={filter}
          projects={projects}
          agents={agents}
          onEnter={() => found.current?.focus()}
        />
        <p className="sessions-count">
          {total !== undefined && `${counted(total, isLowerBound)} · `}
          <Connection state={stream} />
        </p>
      </div>
      {error !== undefined && stream !== "reconnecting" && (
        <ErrorBox error={error} retry={() => feed.retry()} />
      )}
      {filter.query.trim() !== "" && <FoundTexts ref={found} filter={filter} />}
      {items.length > 0 && (
        <SessionTable
          items={items}
          total={total}
          onEnd={more === "page" ? () => void feed.more() : undefined}
        />
      )}
      {more === "search" && <Older hasFound={items.length > 0} search={() => void feed.more()} />}
      {items.length === 0 && total === 0 && more === "none" && <Nothing filter={filter} />}
      {items.length === 0 && total === undefined && error === undefined && (
        <p className="app-loading">Loading …</p>
      )}
    </div>
  );
}

function valuesOf(items: readonly SessionItem[], name: "projectId" | "agentId"): readonly string[] {
  return [...new Set(items.map((item) => item[name]))].filter(Boolean).toSorted();
}

function counted(total: number, isLowerBound: boolean): string {
  const word = total === 1 && !isLowerBound ? "session" : "sessions";
  return `${count(total)}${isLowerBound ? "+" : ""} ${word}`;
}

/** A page that is not full has read many sessions, so the reader asks for the next one. */
function Older({ hasFound, search }: { readonly hasFound: boolean; readonly search: () => void }) {
  return (
    <p className="sessions-older">
      {hasFound ? "Older sessions may match too." : "No session that was searched has this."}{" "}
      <Button onClick={search}>Search older sessions</Button>
    </p>
  );
}

function Nothing({ filter }: { readonly filter: SessionFilter }) {
  const isFiltered = Object.values(filter).some((value) => value !== "" && value !== 0);
  if (isFiltered) {
    return (
      <Empty title="No session has all of this.">
        <Button onClick={clearFilter}>Show all sessions</Button>
      </Empty>
    );
  }
  return (
    <Empty title="No sessions yet.">
      <p>
        Fill the ledger with a few recorded sessions, and an agent that answers. In the folder of
        session-ledger:
      </p>
      <pre>npm run -s ledger -- demo</pre>
      <p>A session is also made by its first message or event.</p>
    </Empty>
  );
}

const WORDS: Record<StreamState, string> = {
  connecting: "connecting",
  open: "live",
  reconnecting: "reconnecting",
  paused: "paused",
  ended: "ended",
};

const SIGNS: Record<StreamState, string> = {
  connecting: "◌",
  open: "●",
  reconnecting: "△",
  paused: "‖",
  ended: "✕",
};

/** Shows whether the list is current. Screen readers announce changes. */
function Connection({ state }: { readonly state: StreamState }) {
  return (
    <span className={`connection connection-${state}`} role="status">
      <span aria-hidden="true">{SIGNS[state]}</span> {WORDS[state]}
    </span>
  );
}

/** Across the page while the service does not answer. */
function ConnectionNotice({ state }: { readonly state: StreamState }) {
  return (
    <div role="status">
      {state === "reconnecting" && (
        <p className="connection-notice">
          <span aria-hidden="true">△</span> The connection to the service is lost. The page tries
          again, and continues where it was.
        </p>
      )}
    </div>
  );
}
