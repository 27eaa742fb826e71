import { useQuery } from "@tanstack/react-query";
import { API, get } from "../api/client.ts";

/** The session as GET /sessions/{id} has it; 64-bit numbers are text. */
export interface SessionFacts {
  readonly name: string;
  readonly phase?: string;
  readonly projectId?: string;
  readonly capabilities?: string;
  readonly payloadBytes: string;
}

/** The name, phase and capabilities change rarely, and the log does not tell of them. */
const AGAIN_MS = 10_000;

export function useSession(id: string): SessionFacts | undefined {
  const path = `${API}/sessions/${encodeURIComponent(id)}`;
  const { data } = useQuery({
    queryKey: ["session", id],
    queryFn: async ({ signal }) => await get<SessionFacts>(path, { signal }),
    refetchInterval: AGAIN_MS,
  });
  return data;
}
