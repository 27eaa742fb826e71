/** The address bar as state: a path and a query, changed without loading the page again. */
import { useSyncExternalStore } from "react";

export interface Place {
  readonly path: string;
  readonly query: URLSearchParams;
}

export type View =
  | { readonly name: "sessions" }
  | { readonly name: "inbox" }
  | { readonly name: "session"; readonly id: string }
  | { readonly name: "compare"; readonly id: string }
  | { readonly name: "nothing" };

/** Undefined when the text is not URL-encoded. */
function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

export function viewOf(path: string): View {
  if (path === "/") return { name: "sessions" };
  if (path === "/inbox") return { name: "inbox" };
  const [, encoded, rest] = /^\/sessions\/([^/]+)(\/compare)?$/.exec(path) ?? [];
  const id = encoded === undefined ? undefined : decoded(encoded);
  if (id === undefined) return { name: "nothing" };
  return { name: rest === undefined ? "session" : "compare", id };
}

export function sessionPath(id: string): string {
  return `/sessions/${encodeURIComponent(id)}`;
}

const MOVED = "ledger-moved";

let place = read();

function read(): Place {
  const { pathname, search } = location;
  return { path: pathname, query: new URLSearchParams(search) };
}

function moved(): void {
  place = read();
  dispatchEvent(new Event(MOVED));
}

addEventListener("popstate", moved);

/** Goes to an address of the page; with `replace` the way back skips the address before. */
export function navigate(to: string, { replace = false } = {}): void {
  if (to === `${location.pathname}${location.search}`) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  moved();
}

/** Changes parameters of the address; undefined removes one. */
export function setQuery(
  changes: Readonly<Record<string, string | undefined>>,
  { replace = true } = {},
): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.size === 0 ? "" : `?${query.toString()}`;
  navigate(`${location.pathname}${text}`, { replace });
}

function subscribe(listener: () => void): () => void {
  addEventListener(MOVED, listener);
  return () => removeEventListener(MOVED, listener);
}

export function usePlace(): Place {
  return useSyncExternalStore(subscribe, () => place);
}
