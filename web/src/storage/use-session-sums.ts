/** The sums of one session: the pages of both streams, added up as they come. */
import { useQuery } from "@tanstack/react-query";
import { API, get } from "../api/client.ts";
import { added, type StoragePage, type TypeSum } from "../model/storage-sums.ts";
import { sessionPath } from "../router.ts";

const STREAMS = ["events", "messages"] as const;

export interface SessionSums {
  readonly sums: readonly TypeSum[];
  readonly isWhole: boolean;
}

export function useSessionSums(id: string) {
  return useQuery({
    queryKey: ["storage", "session", id],
    queryFn: async ({ client, queryKey, signal }): Promise<SessionSums> => {
      const isFirst = client.getQueryData(queryKey) === undefined;
      let sums: readonly TypeSum[] = [];
      for await (const page of pagesOf(id, signal)) {
        sums = added(sums, page.items);
        // A later reading replaces the sums when it is whole.
        if (isFirst) client.setQueryData(queryKey, { sums, isWhole: false });
      }
      return { sums, isWhole: true };
    },
  });
}

async function* pagesOf(id: string, signal: AbortSignal): AsyncGenerator<StoragePage> {
  const path = `${API}${sessionPath(id)}/storage`;
  for (const stream of STREAMS) {
    let after = 0;
    for (let hasMore = true; hasMore; ) {
      const query = { stream, after_seq: after };
      const page = await get<StoragePage>(path, { query, signal });
      yield page;
      after = page.next_after_seq;
      hasMore = page.has_more;
    }
  }
}
