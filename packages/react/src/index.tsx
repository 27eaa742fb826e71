/** A session of a ledger as a React component, for the apps of others. */
import { QueryClientProvider } from "@tanstack/react-query";
import {
  useCallback,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { AppConnection } from "./api/app-connection.ts";
import { ConnectionProvider } from "./api/use-connection.ts";
import { makeQueries } from "./api/queries.ts";
import type { Cursor } from "./model/scrub.ts";
import { faultIn, type SessionProblem, type SessionViewProps } from "./props.ts";
import type { AppLinks } from "./session/in-session.ts";
import { Session } from "./session/session.tsx";
import { useProblem } from "./session/use-problem.ts";
import { Broken } from "./ui/broken.tsx";
import { Button } from "./ui/button.tsx";
import { Empty } from "./ui/empty.tsx";
import { Keys, KeysProvider } from "./ui/keyboard.ts";
import { visible } from "./ui/text.ts";
import "./ui/tokens.css";
import "./ui/base.css";
import "./view.css";

export type { SessionProblem, SessionViewProps, Token } from "./props.ts";

/**
 * Shows a session, live, in all of its container: give the container a height. Everything that it changes
 * in the page is inside of its own element. A prop that cannot be used is a message in the view.
 */
export function SessionView(props: SessionViewProps) {
  const { url, session, theme = "system", onError } = props;
  const [keys] = useState(() => new Keys());
  const [attempt, showAgain] = useReducer(next, 0);
  const isMounted = useMounted();
  const fault = faultIn(props);
  useProblem(fault === undefined ? fault : { reason: "BAD_PROPS", message: fault }, onError);
  const failed = useCallback(
    ({ message }: Error) => onError?.({ reason: "FAILED", message }),
    [onError],
  );
  return (
    // oxlint-disable-next-line jsx-a11y/no-static-element-interactions -- Its parts have the roles.
    <div
      className="session-ledger"
      data-theme={theme === "system" ? undefined : theme}
      tabIndex={-1}
      onKeyDown={({ nativeEvent, currentTarget }) => keys.press(nativeEvent, currentTarget)}
    >
      {fault !== undefined && <Empty role="alert" title={visible(fault)} />}
      {isMounted && fault === undefined && (
        <Broken
          key={`${attempt} ${url} ${session}`}
          action={<Button onClick={showAgain}>Show it again</Button>}
          onError={failed}
        >
          <KeysProvider value={keys}>
            <Opened {...props} />
          </KeysProvider>
        </Broken>
      )}
    </div>
  );
}

function next(number: number): number {
  return number + 1;
}

function Opened({ url, session, token, parts, onOpen, onError }: SessionViewProps) {
  const [attempt, restart] = useReducer(next, 0);
  const [queries] = useState(makeQueries);
  const [connection] = useState(() => new AppConnection(url));
  const [cursor, moveTo] = useState<Cursor>("live");
  const links = useMemo((): AppLinks => {
    if (onOpen === undefined) return {};
    return { session: (id) => ({ open: () => onOpen(id) }) };
  }, [onOpen]);
  const isRefused = useRef(false);
  const report = useCallback(
    (problem: SessionProblem) => {
      isRefused.current = problem.reason === "UNAUTHENTICATED";
      onError?.(problem);
    },
    [onError],
  );
  // Before the effects that call the service.
  useLayoutEffect(() => {
    connection.give(token);
    // An app may make its function with each render, which is no other token.
    if (isRefused.current && typeof token === "string") restart();
  }, [connection, token, restart]);
  return (
    <QueryClientProvider client={queries}>
      <ConnectionProvider value={connection}>
        <Session
          key={attempt}
          id={session}
          cursor={cursor}
          moveTo={moveTo}
          restart={restart}
          links={links}
          parts={parts ?? "all"}
          waits
          unreachable={`Is the service at ${connection.url}, and is ${location.origin} in its HTTP_ORIGINS?`}
          onProblem={report}
        />
      </ConnectionProvider>
    </QueryClientProvider>
  );
}

/** A server draws the empty box. */
function useMounted(): boolean {
  return useSyncExternalStore(
    () => () => undefined,
    () => true,
    () => false,
  );
}
