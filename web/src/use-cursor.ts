import { useCallback, useEffect, useRef, useState } from "react";
import type { Cursor } from "@session-ledger/react/internal/model/scrub";
import { setQuery, usePlace } from "./router.ts";

/** A browser drops changes of the address above 200 in ten seconds; a replay makes 600. */
const ADDRESS_MS = 350;

/**
 * The place in the session that all parts of the page show: `at=1234` in the address, or live. The
 * address follows a drag or a replay a little later.
 */
export function useCursor(): readonly [Cursor, (cursor: Cursor) => void] {
  const at = usePlace().query.get("at") ?? "";
  const [cursor, setCursor] = useState(() => cursorIn(at));
  const newest = useRef(cursor);
  const written = useRef(at);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  useEffect(() => {
    if (at === written.current) return;
    // The reader went back, or followed a link.
    written.current = at;
    newest.current = cursorIn(at);
    setCursor(newest.current);
  }, [at]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const moveTo = useCallback((to: Cursor): void => {
    newest.current = to;
    setCursor(to);
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      written.current = newest.current === "live" ? "" : String(newest.current);
      setQuery({ at: written.current });
    }, ADDRESS_MS);
  }, []);
  return [cursor, moveTo];
}

function cursorIn(text: string): Cursor {
  return /^\d{1,15}$/.test(text) ? Number(text) : "live";
}
