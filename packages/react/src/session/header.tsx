/** What the view shows: the session's name and id, where it stands, and its sizes. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { API, get } from "../api/client.ts";
import { useConnection } from "../api/use-connection.ts";
import type { SessionLog } from "../model/log.ts";
import { openRunOf, stateNameOf } from "../model/standing.ts";
import type { Row } from "../model/source.ts";
import { Badge, type Tone } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { bytes, count } from "../ui/format.ts";
import { JsonText } from "../ui/json-tree.tsx";
import { Link } from "../ui/link.tsx";
import { State as StateBadge } from "../ui/session-state.tsx";
import { cut, visible } from "../ui/text.ts";
import { CopyButton } from "./code-block.tsx";
import { type Family, Forks, Parent } from "./forks.tsx";
import { useInSession } from "./in-session.ts";
import "./header.css";

/** The session as GET /sessions/{id} has it; 64-bit numbers are text. */
interface SessionFacts extends Family {
  readonly name: string;
  readonly phase?: string;
  readonly projectId?: string;
  readonly capabilities?: string;
  readonly payloadBytes: string;
  readonly state: string;
  readonly stateSince?: string;
  /** Why nothing of it is erased. */
  readonly hold?: string;
}

/** The name, phase and capabilities change rarely, and the log does not tell of them. */
const AGAIN_MS = 10_000;

/** Read again after `againMs`. */
export function useSession(
  id: string,
  log: SessionLog,
  againMs = AGAIN_MS,
): SessionFacts | undefined {
  const path = `${API}/sessions/${encodeURIComponent(id)}`;
  const connection = useConnection();
  const queries = useQueryClient();
  // Its state changes with runs and messages, of which the log knows at once.
  const moment = `${openRunOf(log.newestRows)} ${log.messages.length}`;
  const read = useRef(moment);
  useEffect(() => {
    if (read.current === moment) return;
    read.current = moment;
    void queries.invalidateQueries({ queryKey: ["session", id] });
  }, [queries, id, moment]);
  const { data } = useQuery({
    queryKey: ["session", id],
    queryFn: async ({ signal }) => await get<SessionFacts>(connection, path, { signal }),
    refetchInterval: againMs,
  });
  return data;
}

const NAME_CHARS = 200;

export interface HeaderProps {
  readonly id: string;
  readonly log: SessionLog;
  readonly facts: SessionFacts | undefined;
  readonly isRunning: boolean;
  /** Actions of the app on this session. */
  readonly menu:
    | ((session: { readonly id: string; readonly name: string }) => ReactNode)
    | undefined;
  /** Gets the name of the session, or its id; once more after a change. */
  readonly onTitle: ((title: string) => void) | undefined;
}

export function Header({ id, log, facts, isRunning, menu, onTitle }: HeaderProps) {
  const { links } = useInSession();
  const { name = "", phase = "" } = facts ?? {};
  const title = visible(cut(name === "" ? id : name, NAME_CHARS));
  useEffect(() => onTitle?.(title), [onTitle, title]);
  return (
    <header className="header">
      <h1 className="header-name">
        <bdi>{title}</bdi>
      </h1>
      {name !== "" && name !== id && <code className="header-id">{visible(id)}</code>}
      <CopyButton text={id} what="the id of the session" />
      <LiveBadge log={log} />
      {log.state !== "gone" && <Standing facts={facts} isRunning={isRunning} />}
      {phase !== "" && !OF_RUNNERS.has(phase) && (
        <span title="The phase that the platform has reported">
          <Badge tone="neutral">{visible(phase)}</Badge>
        </span>
      )}
      {facts?.hold !== undefined && (
        <span title={`Nothing of it is erased: ${visible(facts.hold)}`}>
          <Badge tone="warn">held</Badge>
        </span>
      )}
      <dl className="header-counts">
        {log.hasNewest && <Count name="event" number={log.head} />}
        {log.isJoined && <Count name="row" number={log.rows.length} />}
        {log.hasAllMessages && <Count name="message" number={log.messages.length} />}
        {facts !== undefined && <Fact name="stored" value={bytes(Number(facts.payloadBytes))} />}
      </dl>
      <Capabilities facts={facts} />
      {menu?.({ id, name })}
      {facts !== undefined && <Parent family={facts} />}
      {facts !== undefined && <Forks family={facts} />}
      {links.compare !== undefined && hasTwoRuns(log.rows) && (
        <Link className="header-link" to={links.compare}>
          Compare runs
        </Link>
      )}
    </header>
  );
}

function hasTwoRuns(rows: readonly Row[]): boolean {
  const first = rows.findIndex(isStart);
  return first >= 0 && rows.findLastIndex(isStart) > first;
}

function isStart({ type }: Row): boolean {
  return type === "RUN_STARTED";
}

/** A runner reports these around each run; the state says the same, and more exactly. */
const OF_RUNNERS: ReadonlySet<string> = new Set(["Running", "Stopped"]);

/** The log knows of an open run at once, and the record has the rest. */
function Standing({ facts, isRunning }: Pick<HeaderProps, "facts" | "isRunning">) {
  if (isRunning) return <StateBadge state="running" sinceMs={undefined} />;
  if (facts === undefined) return null;
  const state = stateNameOf(facts.state);
  const since = facts.stateSince === undefined ? undefined : Date.parse(facts.stateSince);
  return state === "running" ? null : <StateBadge state={state} sinceMs={since} />;
}

const STATES: Readonly<Record<SessionLog["state"], { tone: Tone; word: string }>> = {
  loading: { tone: "neutral", word: "loading" },
  live: { tone: "good", word: "live" },
  reconnecting: { tone: "warn", word: "reconnecting" },
  gone: { tone: "bad", word: "ended" },
};

function LiveBadge({ log }: { log: SessionLog }) {
  const { tone, word } = STATES[log.state];
  return (
    <span role="status" title={log.problem?.message}>
      <Badge tone={tone}>{word}</Badge>
    </span>
  );
}

/** Before all of them are read, their number is not shown. */
function Count({ name, number }: { name: string; number: number }) {
  return <Fact name={number === 1 ? name : `${name}s`} value={count(number)} />;
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Capabilities({ facts }: { facts: SessionFacts | undefined }) {
  const [isOpen, setIsOpen] = useState(false);
  const capabilities = facts?.capabilities ?? "";
  if (capabilities === "") return null;
  return (
    <>
      <Button look="plain" onClick={() => setIsOpen(true)}>
        Capabilities
      </Button>
      {isOpen && (
        <Dialog title="What the runner can do" onClose={() => setIsOpen(false)}>
          <JsonText text={capabilities} openDepth={3} />
        </Dialog>
      )}
    </>
  );
}
