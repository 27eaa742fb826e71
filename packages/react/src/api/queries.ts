import { QueryClient } from "@tanstack/react-query";
import { ApiError } from "./errors.ts";

const RETRIES_MAX = 3;

export function makeQueries(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        refetchOnWindowFocus: false,
        networkMode: "always",
        // A refusal will be the same again; a service that starts will answer soon.
        retry: (failures, error) =>
          failures < RETRIES_MAX && !(error instanceof ApiError && error.status < 500),
      },
    },
  });
}
