import { useMemo } from "react";
import { useCaller } from "../api/caller.ts";
import type { Rights } from "./in-session.ts";

const NONE: readonly string[] = [];

/** What the reader's token allows. Before the service has said so, nothing. */
export function useRights(): Rights {
  const actions = useCaller()?.actions ?? NONE;
  return useMemo(
    () => ({
      maySend: actions.includes("message.push.user"),
      mayCancel: actions.includes("run.cancel"),
      mayGiveFeedback: actions.includes("feedback.give"),
    }),
    [actions],
  );
}
