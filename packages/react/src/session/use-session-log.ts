/** The log of a session and its moments, opened once for all parts of the page. */
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { useConnection } from "../api/use-connection.ts";
import { SessionLog } from "../model/log.ts";
import { type Cursor, type Moment, Scrub } from "../model/scrub.ts";
import { openRunOf } from "../model/standing.ts";
import { httpSource } from "./log-source.ts";

interface Opened {
  readonly log: SessionLog;
  readonly scrub: Scrub;
}

/** For the view, which passes both down: each call opens another log. Connection and id must not change. */
export function useSessionLog(sessionId: string): Opened {
  const connection = useConnection();
  const [opened] = useState(() => {
    const log = new SessionLog(httpSource(connection, sessionId), { soon: nextFrame });
    return { log, scrub: new Scrub(sessionId, log, { turn }) };
  });
  useEffect(() => {
    const { log, scrub } = opened;
    scrub.start();
    log.start();
    for (const type of MOVES) addEventListener(type, noteMove, CAPTURED);
    return () => {
      for (const type of MOVES) removeEventListener(type, noteMove, CAPTURED);
      scrub.stop();
      log.stop();
    };
  }, [opened]);
  return opened;
}

/** Renders again when the log has changed. Its rows are one list that grows: depend on the number. */
export function useLogVersion(log: SessionLog): number {
  const subscribe = useCallback((listener: () => void) => calmly(log, listener), [log]);
  return useSyncExternalStore(subscribe, () => log.version);
}

/** Renders again when a run begins or ends, for parts that do not follow each row. */
export function useIsRunning(log: SessionLog): boolean {
  return useSyncExternalStore(log.subscribe, () => openRunOf(log.newestRows) !== undefined);
}

const READING_MS = 250;

/** While the middle of a long session is read, a view is not drawn for each page of it. */
function calmly(log: SessionLog, listener: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const notify = (): void => {
    clearTimeout(timer);
    timer = undefined;
    listener();
  };
  const unsubscribe = log.subscribe(() => {
    if (log.isLive && !log.isJoined) timer ??= setTimeout(notify, READING_MS);
    else notify();
  });
  return () => {
    clearTimeout(timer);
    unsubscribe();
  };
}

/** The session at the cursor. */
export function useMoment(scrub: Scrub, cursor: Cursor): Moment {
  useSyncExternalStore(scrub.subscribe, () => scrub.version);
  return scrub.at(cursor);
}

/** A hidden tab draws no frames, and its log continues. */
function nextFrame(run: () => void): void {
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(() => run());
}

/** A reader who moved so recently scrolls still: the fold waits longer between its slices. */
const MOVING_MS = 200;
const TURN_MOVING_MS = 40;

let movedMs = Number.NEGATIVE_INFINITY;
// Not "scroll": the page scrolls by itself while rows come.
const MOVES = ["wheel", "touchmove", "keydown"];
const CAPTURED = { capture: true, passive: true };

function noteMove(): void {
  movedMs = performance.now();
}

async function turn(): Promise<void> {
  const isMoving = performance.now() - movedMs < MOVING_MS;
  const { promise, resolve } = Promise.withResolvers<void>();
  setTimeout(() => resolve(), isMoving ? TURN_MOVING_MS : 0);
  await promise;
}
