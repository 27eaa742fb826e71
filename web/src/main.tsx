import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client.ts";
import { App } from "./app.tsx";
import { applyTheme } from "./ui/theme.ts";
import "./ui/tokens.css";
import "./ui/base.css";

applyTheme();

const RETRIES_MAX = 3;

const queries = new QueryClient({
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

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
