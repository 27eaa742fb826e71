/**
 * One session: four parts that share a cursor.
 *
 *   wide     conversation │ timeline          middle   conversation │ one of three
 *                         ├───────────────    narrow   one of four
 *                         │ events or state   below    the scrubber
 */
import { type ReactNode, type RefCallback, useCallback, useEffect, useMemo, useState } from "react";
import { useCaller } from "../api/caller.ts";
import type { Item } from "../model/items.ts";
import type { Problem } from "../model/log.ts";
import type { Cursor } from "../model/scrub.ts";
import { openRunOf } from "../model/standing.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { Link, type LinkTarget } from "../ui/link.tsx";
import { visible } from "../ui/text.ts";
import { Conversation } from "./conversation.tsx";
import { Events } from "./events.tsx";
import { Header, type HeaderProps, useSession } from "./header.tsx";
import {
  type AppLinks,
  CursorProvider,
  type InSession,
  type Rights,
  SessionContext,
} from "./in-session.ts";
import { Scrubber } from "./scrubber.tsx";
import { Split } from "./split.tsx";
import { State } from "./state.tsx";
import { type Tab, Tabs } from "./tabs.tsx";
import { Talk } from "./talk.tsx";
import { Timeline } from "./timeline.tsx";
import { useProblem } from "./use-problem.ts";
import { useRemembered } from "./use-remembered.ts";
import { useLogVersion, useMoment, useSessionLog } from "./use-session-log.ts";
import "./session.css";

const DELETED = "This session was deleted.";
/** The fold has not reached the event of the cursor: an earlier moment is not shown in its place. */
const NOTHING: readonly Item[] = [];
/** A chat makes its session with the first message. */
const MISSING_AGAIN_MS = 2_000;
const NO_LINKS: AppLinks = {};

export interface SessionProps extends Partial<Pick<HeaderProps, "menu" | "onTitle">> {
  /** Must not change: a session is a component of its own, by its key. */
  readonly id: string;
  /** The place in the session that all parts show, and how they change it. */
  readonly cursor: Cursor;
  readonly moveTo: (cursor: Cursor) => void;
  readonly restart: () => void;
  readonly links?: AppLinks;
  /** The row of a message that is shown once. */
  readonly wanted?: string;
  readonly parts?: "all" | "conversation";
  /** What may help when the service does not answer from the start. */
  readonly unreachable?: string;
  /** Restarts when a session that does not exist yet does. */
  readonly waits?: boolean;
  readonly onProblem?: (problem: Problem) => void;
}

export function Session(props: SessionProps) {
  const { id, cursor, moveTo, restart, links = NO_LINKS, parts = "all" } = props;
  const { log, scrub } = useSessionLog(id);
  useLogVersion(log);
  const isMissing = props.waits === true && log.problem?.reason === "SESSION_NOT_FOUND";
  const facts = useSession(id, log, isMissing ? MISSING_AGAIN_MS : undefined);
  const isFound = isMissing && facts !== undefined;
  useEffect(() => {
    if (isFound) restart();
  }, [isFound, restart]);
  const rights = useRights();
  const moment = useMoment(scrub, cursor);
  const isLoading = !moment.isExact && !scrub.wasComplete;
  const session = useMemo(
    (): InSession => ({ sessionId: id, log, rights, moveTo, links, restart }),
    [id, log, rights, moveTo, links, restart],
  );
  const [box, room] = useWidth();
  const isEmpty = log.rows.length + log.messages.length === 0;
  const problem = isEmpty && log.state !== "live" ? log.problem : undefined;
  useProblem(problem, props.onProblem);
  if (isEmpty && log.state === "gone")
    return <Unreadable problem={log.problem} restart={restart} all={links.all} />;
  return (
    <SessionContext value={session}>
      <CursorProvider value={cursor}>
        <div ref={box} className="session">
          <Header
            id={id}
            log={log}
            facts={facts}
            isRunning={openRunOf(log.newestRows) !== undefined}
            menu={props.menu}
            onTitle={props.onTitle}
          />
          {props.unreachable !== undefined && problem !== undefined && (
            <ErrorBox error={lost(problem, props.unreachable)} />
          )}
          <Parts
            width={parts === "all" ? room : parts}
            conversation={
              <div className="session-talk">
                <Conversation
                  items={isLoading && cursor !== "live" ? NOTHING : moment.items}
                  wanted={props.wanted ?? ""}
                  isLoading={isLoading}
                />
                <Talk moment={moment} isPast={cursor !== "live"} />
              </div>
            }
            timeline={<Timeline cursor={cursor} />}
            events={<Events cursor={cursor} />}
            state={<State moment={moment} isLoading={isLoading} />}
          />
          <Scrubber log={log} cursor={cursor} moveTo={moveTo} />
        </div>
      </CursorProvider>
    </SessionContext>
  );
}

function lost({ reason, message }: Problem, help: string): Error {
  return new Error(reason === "NO_ANSWER" ? `${message} ${help}` : message);
}

interface PartsProps
  extends Readonly<Record<"conversation" | "timeline" | "events" | "state", ReactNode>> {
  /** Undefined before the first layout. */
  readonly width: Width | "conversation" | undefined;
}

function Parts({ width, ...parts }: PartsProps) {
  const [tab, setTab] = useRemembered("session.tab", "Conversation");
  const conversation: Tab = { name: "Conversation", content: parts.conversation };
  const timeline: Tab = { name: "Timeline", content: parts.timeline };
  const events: Tab = { name: "Events", content: parts.events };
  const state: Tab = { name: "State", content: parts.state };
  const tabs = (shown: readonly Tab[]) => (
    <Tabs label="Parts of the session" tabs={shown} selected={tab} select={setTab} />
  );
  switch (width) {
    case undefined:
      return null;
    case "conversation":
      return conversation.content;
    case "narrow":
      return tabs([conversation, timeline, events, state]);
    case "middle":
      return (
        <Split name="middle" label="Width of the conversation" direction="row" initial={50}>
          {conversation.content}
          {tabs([timeline, events, state])}
        </Split>
      );
    case "wide":
      return (
        <Split name="wide" label="Width of the conversation" direction="row" initial={45}>
          {conversation.content}
          <Split name="side" label="Height of the timeline" direction="column" initial={42}>
            {timeline.content}
            {tabs([events, state])}
          </Split>
        </Split>
      );
  }
}

interface UnreadableProps {
  readonly problem: Problem | undefined;
  readonly restart: () => void;
  readonly all: LinkTarget | undefined;
}

function Unreadable({ problem, restart, all }: UnreadableProps) {
  const { reason, message = "This session cannot be read." } = problem ?? {};
  return (
    <Empty role="alert" title={visible(reason === "SESSION_DELETED" ? DELETED : message)}>
      {reason === "UNAUTHENTICATED" && <Button onClick={restart}>Try again</Button>}
      {all !== undefined && <Link to={all}>All sessions</Link>}
    </Empty>
  );
}

/** What the reader's token allows. Before the service has said so, nothing. */
function useRights(): Rights {
  const caller = useCaller();
  return useMemo(() => {
    const may = (action: string): boolean => caller?.actions.includes(action) === true;
    return {
      maySend: may("message.push.user"),
      mayCancel: may("run.cancel"),
      mayGiveFeedback: may("feedback.give"),
      mayFork: may("session.fork"),
      actor: caller?.kind === "anonymous" ? caller.kind : `${caller?.kind}:${caller?.id}`,
    };
  }, [caller]);
}

/** In pixels of the view; the head of the page has the other 36 of a window of 620. */
const WIDE_PX = { width: 1_200, height: 584 };
const MIDDLE_PX = 760;

type Width = "wide" | "middle" | "narrow";

/** How many parts of a session fit side by side; undefined before the first layout. */
function useWidth(): readonly [RefCallback<HTMLElement>, Width | undefined] {
  const [width, setWidth] = useState<Width>();
  const box = useCallback((element: HTMLElement | null) => {
    if (element === null) return undefined;
    const measure = (): void => setWidth(widthOf(element));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

function widthOf({ clientWidth, clientHeight }: HTMLElement): Width {
  if (clientWidth >= WIDE_PX.width && clientHeight >= WIDE_PX.height) return "wide";
  return clientWidth >= MIDDLE_PX ? "middle" : "narrow";
}
