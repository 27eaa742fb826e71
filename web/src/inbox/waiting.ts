/** Questions of agents over all sessions, the longest wait first. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { API, get } from "@session-ledger/react/internal/api/client";
import { SERVICE } from "../token.ts";

export interface QuestionJson {
  readonly id: string;
  readonly seq: string;
  readonly message: string;
  readonly reason: string;
  readonly toolName: string;
  readonly toolArguments: string;
  /** The interrupt of AG-UI, as JSON text. */
  readonly interrupt: string;
}

export interface AskingSession {
  readonly metadata: { readonly id: string };
  readonly name: string;
  readonly stateSince?: string;
  readonly questions: readonly QuestionJson[];
}

interface Page {
  readonly items: readonly AskingSession[];
  readonly metadata: { readonly total: number; readonly totalIsLowerBound: boolean };
  readonly nextPageToken: string;
}

/** The keys of both queries begin with it. */
export const INBOX = "inbox";
const AGAIN_MS = 3_000;
const PAGE_SIZE = 25;
const FILTER = { state: "waiting_for_person", order_by: "waiting" };

/** The number of sessions that wait for a person; 0 while it is not known. */
export function useWaitingCount(): number {
  const { data } = useQuery({
    queryKey: [INBOX, "count"],
    queryFn: async ({ signal }) =>
      await get<Page>(SERVICE, `${API}/sessions`, { signal, query: { ...FILTER, size: 1 } }),
    refetchInterval: AGAIN_MS,
    retry: false,
  });
  return data?.metadata.total ?? 0;
}

export function useInbox() {
  return useInfiniteQuery({
    queryKey: [INBOX, "questions"],
    initialPageParam: "",
    queryFn: async ({ pageParam, signal }) =>
      await get<Page>(SERVICE, `${API}/sessions`, {
        signal,
        query: { ...FILTER, size: PAGE_SIZE, ...(pageParam !== "" && { page_token: pageParam }) },
      }),
    getNextPageParam: ({ nextPageToken }) => (nextPageToken === "" ? undefined : nextPageToken),
    refetchInterval: AGAIN_MS,
  });
}
