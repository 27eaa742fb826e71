import { useMemo } from "react";
import { useCaller } from "../api/caller.ts";
import type { Rights } from "./in-session.ts";

/** What the reader's token allows. Before the service has said so, nothing. */
export function useRights(): Rights {
  const caller = useCaller();
  return useMemo(() => {
    const may = (action: string): boolean => caller?.actions.includes(action) === true;
    return {
      maySend: may("message.push.user"),
      mayCancel: may("run.cancel"),
      mayGiveFeedback: may("feedback.give"),
      actor: caller?.kind === "anonymous" ? caller.kind : `${caller?.kind}:${caller?.id}`,
    };
  }, [caller]);
}
