/** The texts of all sessions that the search finds, each with the place to open it at. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { type KeyboardEvent, type Ref, useImperativeHandle, useRef } from "react";
import { API, get } from "@session-ledger/react/internal/api/client";
import { ApiError } from "@session-ledger/react/internal/api/errors";
import { SERVICE } from "../token.ts";
import type { SessionFilter } from "../model/session-list.ts";
import { sessionPath } from "../router.ts";
import { Button } from "@session-ledger/react/components/ui/button";
import { ErrorBox } from "@session-ledger/react/components/ui/error-box";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "@session-ledger/react/internal/ui/text";
import { Time } from "@session-ledger/react/components/ui/time";
import "./found.css";

interface FoundText {
  readonly session_id: string;
  readonly session_name: string;
  readonly stream: "messages" | "events";
  readonly seq: number;
  readonly role: string;
  readonly created_at: string;
  readonly excerpt: readonly { readonly text: string; readonly is_match: boolean }[];
}

interface Page {
  readonly items: readonly FoundText[];
  readonly next_cursor?: string;
}

const PAGE_SIZE = 20;
const AGAIN_MS = 5_000;
const NAME_CHARS_MAX = 60;

export interface FoundHandle {
  /** The first text gets the focus; false: none was found. */
  readonly focus: () => boolean;
}

interface FoundProps {
  readonly filter: SessionFilter;
  readonly ref?: Ref<FoundHandle>;
}

function useFound(filter: SessionFilter) {
  const { query, projectId, agentId, label, withinMs } = filter;
  return useInfiniteQuery({
    queryKey: ["found", query, projectId, agentId, label, withinMs],
    initialPageParam: "",
    queryFn: async ({ pageParam, signal }) =>
      await get<Page>(SERVICE, `${API}/search`, {
        signal,
        query: {
          q: query,
          limit: PAGE_SIZE,
          ...(pageParam !== "" && { cursor: pageParam }),
          ...(projectId !== "" && { project: projectId }),
          ...(agentId !== "" && { agent: agentId }),
          ...(label.includes("=") && { labels: label }),
          ...(withinMs > 0 && { after: new Date(Date.now() - withinMs).toISOString() }),
        },
      }),
    getNextPageParam: (last) => last.next_cursor,
    retry: false,
    // New texts are found some seconds after their end.
    refetchInterval: AGAIN_MS,
  });
}

export function FoundTexts({ filter, ref }: FoundProps) {
  const list = useRef<HTMLUListElement>(null);
  const { data, error, hasNextPage, fetchNextPage, isFetching, refetch } = useFound(filter);
  useImperativeHandle(ref, () => ({
    focus: () => {
      const first = list.current?.querySelector("a");
      first?.focus();
      return first !== undefined && first !== null;
    },
  }));
  // A search without a word, as while one is typed, and a service without search find nothing.
  if (error instanceof ApiError && (error.status === 400 || error.reason === "SEARCH_OFF"))
    return null;
  if (error !== null) return <ErrorBox error={error} retry={() => void refetch()} />;
  const items = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <section className="found" aria-label="Found texts">
      <h2 className="found-title" role="status">
        {data === undefined
          ? "Searching texts …"
          : items.length === 0
            ? "No text has this."
            : "Texts"}
      </h2>
      <ul ref={list} className="found-list">
        {items.map((found) => (
          <li key={`${found.session_id} ${found.stream} ${found.seq} ${found.role}`}>
            <Link to={placeOf(found)} className="found-text" onKeyDown={move}>
              <span className="found-excerpt" dir="auto">
                {found.excerpt.map(({ text, is_match: isMatch }, at) =>
                  isMatch ? <mark key={at}>{visible(text)}</mark> : visible(text),
                )}
              </span>
              <span className="found-where">
                {found.role} · <bdi>{visible(nameOf(found))}</bdi> ·{" "}
                <Time atMs={Date.parse(found.created_at)} as="ago" />
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {hasNextPage && (
        <Button disabled={isFetching} onClick={() => void fetchNextPage()}>
          More texts
        </Button>
      )}
    </section>
  );
}

/** Arrows go from text to text. */
function move(event: KeyboardEvent<HTMLAnchorElement>): void {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by === undefined) return;
  const links = [...(event.currentTarget.closest("ul")?.querySelectorAll("a") ?? [])];
  const at = links.indexOf(event.currentTarget);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
  event.preventDefault();
}

function nameOf({ session_name: name, session_id: id }: FoundText): string {
  return cut(name === "" ? id : name, NAME_CHARS_MAX);
}

function placeOf({ session_id: id, stream, seq }: FoundText): string {
  return `${sessionPath(id)}?${stream === "events" ? "at" : "message"}=${seq}`;
}
