/** What the comparison asks of the API: the runs of a session, and the rows of one run. */
import { useQuery } from "@tanstack/react-query";
import { API, get } from "@session-ledger/react/internal/api/client";
import { SERVICE } from "../token.ts";
import { type RunFacts, factsOf, questionBefore } from "../model/compare.ts";
import {
  type EventItem,
  LoggedRow,
  type MessageItem,
  type Row,
  conversationMessageOf,
} from "@session-ledger/react/internal/model/source";
import { sessionPath } from "../router.ts";

/** Of `GET /sessions/{id}/runs`. */
export interface Run {
  readonly run_id: string;
  readonly status:
    | "running"
    | "finished"
    | "error"
    | "interrupted"
    | "unanswered"
    | "cancelled"
    | "stalled";
  readonly first_seq: number;
  readonly last_seq: number;
  readonly started_at: string;
  readonly ended_at?: string;
  readonly raw_events: number;
}

interface Page<T> {
  readonly items: readonly T[];
  readonly next_after_seq: number;
  readonly has_more: boolean;
}

/** A list of more runs is not a list to choose from. */
const RUNS_MAX = 2_000;
/** The longest run that is compared whole. */
const ROWS_MAX = 20_000;
const PAGE_ROWS = 1_000;
const PAGE_MESSAGES = 1_000;

/** The latest first. */
export function useRuns(sessionId: string) {
  return useQuery({
    queryKey: ["runs", sessionId],
    queryFn: async ({ signal }) => {
      const runs = await collect<Run>(`${pathOf(sessionId)}/runs`, { max: RUNS_MAX, signal });
      return runs.toReversed();
    },
  });
}

export interface Compared {
  readonly facts: RunFacts;
  /** False: only its first rows were read. */
  readonly isWhole: boolean;
}

/** Read again while the run is open. */
export function useFacts(sessionId: string, run: Run | undefined) {
  return useQuery({
    queryKey: ["run", sessionId, run?.first_seq, run?.last_seq, run?.status],
    enabled: run !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    structuralSharing: false,
    queryFn: async ({ signal }): Promise<Compared> => {
      const rows = run === undefined ? [] : await rowsOf(sessionId, run, signal);
      const facts = factsOf(sessionId, rows);
      const isWhole = run === undefined || (rows.at(-1)?.lastSeq ?? 0) >= run.last_seq;
      if (facts.question !== undefined) return { facts, isWhole };
      const query = { after_seq: 0, limit: PAGE_MESSAGES, recorded: true };
      const path = `${pathOf(sessionId)}/messages`;
      const items = await get<readonly MessageItem[]>(SERVICE, path, { query, signal });
      return {
        facts: { ...facts, question: questionBefore(items.map(conversationMessageOf), rows) },
        isWhole,
      };
    },
  });
}

async function rowsOf(
  sessionId: string,
  { first_seq: first, last_seq: last }: Run,
  signal: AbortSignal,
): Promise<readonly Row[]> {
  const items = await collect<EventItem>(`${pathOf(sessionId)}/events/history`, {
    after: first - 1,
    upTo: last,
    limit: PAGE_ROWS,
    recorded: true,
    max: ROWS_MAX,
    signal,
  });
  return items.filter(({ seq }) => seq <= last).map((item) => new LoggedRow(item));
}

interface Collecting {
  readonly after?: number;
  readonly upTo?: number;
  readonly limit?: number;
  readonly recorded?: true;
  readonly max: number;
  readonly signal: AbortSignal;
}

async function collect<T>(
  path: string,
  { after: from = 0, upTo = Number.POSITIVE_INFINITY, limit, recorded, max, signal }: Collecting,
): Promise<readonly T[]> {
  const items: T[] = [];
  let after = from;
  for (let hasMore = true; hasMore && after < upTo && items.length < max; ) {
    const query = { after_seq: after, limit, recorded };
    const page = await get<Page<T>>(SERVICE, path, { query, signal });
    items.push(...page.items);
    after = page.next_after_seq;
    hasMore = page.has_more;
  }
  return items;
}

function pathOf(sessionId: string): string {
  return `${API}${sessionPath(sessionId)}`;
}
