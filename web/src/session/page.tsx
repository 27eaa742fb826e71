/**
 * One session: four parts that share a cursor.
 *
 *   wide     conversation │ timeline          middle   conversation │ one of three
 *                         ├───────────────    narrow   one of four
 *                         │ events or state   below    the scrubber
 */
import { useMemo, useSyncExternalStore } from "react";
import { useCaller } from "../api/caller.ts";
import type { Item } from "../model/conversation.ts";
import type { Problem, SessionLog } from "../model/log.ts";
import type { Scrub } from "../model/scrub.ts";
import { openRunOf } from "../model/standing.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { Link } from "../ui/link.tsx";
import { visible } from "../ui/text.ts";
import { Conversation } from "./conversation.tsx";
import { Events } from "./events.tsx";
import { Header, useSession } from "./header.tsx";
import { CursorProvider, type InSession, type Rights, SessionContext } from "./in-session.ts";
import { Scrubber } from "./scrubber.tsx";
import { Split } from "./split.tsx";
import { State } from "./state.tsx";
import { type Tab, Tabs } from "./tabs.tsx";
import { Talk } from "./talk.tsx";
import { Timeline } from "./timeline.tsx";
import { useCursor } from "./use-cursor.ts";
import { useRemembered } from "./use-remembered.ts";
import { useLogVersion, useMoment, useSessionLog } from "./use-session-log.ts";
import "./page.css";

export function SessionPage({ id }: { readonly id: string }) {
  const opened = useSessionLog(id);
  return opened === undefined ? null : <Session id={id} {...opened} />;
}

const DELETED = "This session was deleted.";
/** The fold has not reached the event of the address: an earlier moment is not shown in its place. */
const NOTHING: readonly Item[] = [];

interface SessionProps {
  readonly id: string;
  readonly log: SessionLog;
  readonly scrub: Scrub;
}

function Session({ id, log, scrub }: SessionProps) {
  useLogVersion(log);
  const facts = useSession(id, log);
  const rights = useRights();
  const [cursor, moveTo] = useCursor();
  const moment = useMoment(scrub, cursor);
  const isLoading = !moment.isExact && !scrub.wasComplete;
  const session = useMemo(
    (): InSession => ({ sessionId: id, log, rights, moveTo }),
    [id, log, rights, moveTo],
  );
  const [tab, setTab] = useRemembered("session.tab", "Conversation");
  const width = useWidth();
  if (log.state === "gone" && log.rows.length === 0 && log.messages.length === 0)
    return <Unreadable problem={log.problem} />;
  const conversation: Tab = {
    name: "Conversation",
    content: (
      <div className="page-talk">
        <Conversation
          items={isLoading && cursor !== "live" ? NOTHING : moment.items}
          isLoading={isLoading}
        />
        <Talk moment={moment} isPast={cursor !== "live"} />
      </div>
    ),
  };
  const timeline: Tab = { name: "Timeline", content: <Timeline cursor={cursor} /> };
  const events: Tab = { name: "Events", content: <Events cursor={cursor} /> };
  const state: Tab = { name: "State", content: <State moment={moment} isLoading={isLoading} /> };
  const tabs = (shown: readonly Tab[]) => (
    <Tabs label="Parts of the session" tabs={shown} selected={tab} select={setTab} />
  );
  return (
    <SessionContext value={session}>
      <CursorProvider value={cursor}>
        <div className="page">
          <Header
            id={id}
            log={log}
            facts={facts}
            isRunning={openRunOf(log.newestRows) !== undefined}
          />
          {width === "narrow" && tabs([conversation, timeline, events, state])}
          {width === "middle" && (
            <Split name="middle" label="Width of the conversation" direction="row" initial={50}>
              {conversation.content}
              {tabs([timeline, events, state])}
            </Split>
          )}
          {width === "wide" && (
            <Split name="wide" label="Width of the conversation" direction="row" initial={45}>
              {conversation.content}
              <Split name="side" label="Height of the timeline" direction="column" initial={42}>
                {timeline.content}
                {tabs([events, state])}
              </Split>
            </Split>
          )}
          <Scrubber log={log} cursor={cursor} moveTo={moveTo} />
        </div>
      </CursorProvider>
    </SessionContext>
  );
}

function Unreadable({ problem }: { readonly problem: Problem | undefined }) {
  const { reason, message = "This session cannot be read." } = problem ?? {};
  return (
    <Empty role="alert" title={visible(reason === "SESSION_DELETED" ? DELETED : message)}>
      {reason === "UNAUTHENTICATED" && <Button onClick={() => location.reload()}>Try again</Button>}
      <Link to="/">All sessions</Link>
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

const WIDE = matchMedia("(min-width: 1200px) and (min-height: 620px)");
const MIDDLE = matchMedia("(min-width: 760px)");

/** How many parts of a session fit side by side. */
function useWidth(): "wide" | "middle" | "narrow" {
  return useSyncExternalStore(subscribe, () =>
    WIDE.matches ? "wide" : MIDDLE.matches ? "middle" : "narrow",
  );
}

function subscribe(listener: () => void): () => void {
  for (const query of [WIDE, MIDDLE]) query.addEventListener("change", listener);
  return () => {
    for (const query of [WIDE, MIDDLE]) query.removeEventListener("change", listener);
  };
}
