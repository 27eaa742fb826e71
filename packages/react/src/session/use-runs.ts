import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { API, get } from "../api/client.ts";
import type { Connection } from "../api/connection.ts";
import { useConnection } from "../api/use-connection.ts";
import type { SceneParts } from "../model/scene.ts";
import type { RunStatus } from "./described.ts";

interface Run extends RunStatus {
  readonly run_id: string;
  readonly first_seq: number;
}

interface RunsPage {
  readonly items: readonly Run[];
  readonly next_after_seq: number;
  readonly has_more: boolean;
}

/** By the number of the run's first event. */
export type RunStatuses = ReadonlyMap<number, Run>;

const NONE: RunStatuses = new Map();
const PAGE_RUNS = 100;
/** A stalled run is known only by its silence, so a session with an open run is asked again. */
const AGAIN_MS = 15_000;

/** The runs as the service lists them; read again when one begins or ends, but not for each page of a gap. */
export function useRuns(id: string, { bars, beginning }: SceneParts): RunStatuses {
  const connection = useConnection();
  const hasGap = beginning !== undefined;
  const runs = bars.filter(({ kind }) => kind === "run");
  const ended = runs.filter(({ state }) => state !== "open").length;
  const { data } = useQuery({
    queryKey: ["runs", id, ...(hasGap ? ["gap"] : [runs.length, ended])],
    enabled: runs.length > 0,
    queryFn: ({ signal }) => readAll(connection, id, signal),
    placeholderData: keepPreviousData,
    refetchInterval: ended < runs.length ? AGAIN_MS : false,
  });
  return data ?? NONE;
}

async function readAll(
  connection: Connection,
  id: string,
  signal: AbortSignal,
): Promise<RunStatuses> {
  const path = `${API}/sessions/${encodeURIComponent(id)}/runs`;
  const runs = new Map<number, Run>();
  for (let after = 0; ; ) {
    const query = { after_seq: after, limit: PAGE_RUNS };
    const page = await get<RunsPage>(connection, path, { query, signal });
    for (const run of page.items) runs.set(run.first_seq, run);
    if (!page.has_more) return runs;
    after = page.next_after_seq;
  }
}
