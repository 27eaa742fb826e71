/** The place in the session that all parts of the page show: `at=1234` in the address, or live. */
import { useCallback } from "react";
import type { Cursor } from "../model/scrub.ts";
import { setQuery, usePlace } from "../router.ts";

export type { Cursor } from "../model/scrub.ts";

export function useCursor(): readonly [Cursor, (cursor: Cursor) => void] {
  const { query } = usePlace();
  const cursor = cursorIn(query.get("at"));
  const setCursor = useCallback((to: Cursor): void => {
    setQuery({ at: to === "live" ? undefined : String(to) });
  }, []);
  return [cursor, setCursor];
}

function cursorIn(text: string | null): Cursor {
  const seq = text !== null && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  return seq ?? "live";
}
