/** The log of a session and its moments, opened once for all parts of the page. */
import { useEffect, useState, useSyncExternalStore } from "react";
import { SessionLog } from "../model/log.ts";
import { type Cursor, type Moment, Scrub } from "../model/scrub.ts";
import { httpSource } from "./log-source.ts";

interface Opened {
  readonly log: SessionLog;
  readonly scrub: Scrub;
}

/** For the page, which passes both down: each call opens another log. The id must not change. */
export function useSessionLog(sessionId: string): Opened {
  const [opened] = useState(() => {
    const log = new SessionLog(httpSource(sessionId), { soon: nextFrame });
    return { log, scrub: new Scrub(sessionId, log) };
  });
  useEffect(() => {
    const { log, scrub } = opened;
    scrub.start();
    log.start();
    return () => {
      scrub.stop();
      log.stop();
    };
  }, [opened]);
  return opened;
}

/** Renders again when the log has changed. Its rows are one list that grows: depend on the number. */
export function useLogVersion(log: SessionLog): number {
  return useSyncExternalStore(log.subscribe, () => log.version);
}

/** The session at the cursor. */
export function useMoment(scrub: Scrub, cursor: Cursor): Moment {
  useSyncExternalStore(scrub.subscribe, () => scrub.version);
  return scrub.at(cursor);
}

/** A hidden tab draws no frames, and its log goes on. */
function nextFrame(run: () => void): void {
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(() => run());
}
