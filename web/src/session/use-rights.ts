import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { API, get } from "../api/client.ts";
import type { Rights } from "./in-session.ts";

interface Caller {
  readonly id: string;
  readonly actions: readonly string[];
}

const NONE: readonly string[] = [];

/** What the reader's token allows. Before the service has said so, nothing. */
export function useRights(): Rights {
  const { data } = useQuery({
    queryKey: ["caller"],
    queryFn: async ({ signal }) => await get<Caller>(`${API}/caller`, { signal }),
  });
  const actions = data?.actions ?? NONE;
  return useMemo(
    () => ({
      maySend: actions.includes("message.push.user"),
      mayCancel: actions.includes("run.cancel"),
      mayGiveFeedback: actions.includes("feedback.give"),
    }),
    [actions],
  );
}
