/** What the reader's token allows, so that the page shows no control that would be refused. */
import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import type { ModelPrice } from "../model/cost.ts";
import { API, get } from "./client.ts";
import { useConnection } from "./use-connection.ts";

export interface Caller {
  readonly id: string;
  readonly kind: "anonymous" | "static" | "oidc" | "session";
  readonly roles: readonly string[];
  /** By the names in docs/security.md: "run.cancel". */
  readonly actions: readonly string[];
  /** What a million tokens of a model cost, in USD. */
  readonly model_prices: Readonly<Record<string, ModelPrice>>;
  readonly project_id?: string;
  readonly session_id?: string;
}

/** Undefined until the service has said so. */
export function useCaller(): Caller | undefined {
  const connection = useConnection();
  const revision = useSyncExternalStore(connection.subscribe, connection.revision);
  const query = useQuery({
    // The token itself is no key: keys are kept, and shown by tools.
    queryKey: ["caller", revision],
    queryFn: ({ signal }) => get<Caller>(connection, `${API}/caller`, { signal }),
    staleTime: Infinity,
  });
  return query.data;
}
