import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ConnectionProvider } from "@session-ledger/react/internal/api/use-connection";
import { makeQueries } from "@session-ledger/react/internal/api/queries";
import { Keys, KeysProvider } from "@session-ledger/react/internal/ui/keyboard";
import { MemoryProvider } from "@session-ledger/react/internal/session/use-remembered";
import { App } from "./app.tsx";
import { BROWSER } from "./memory.ts";
import { SERVICE } from "./token.ts";
import { applyTheme } from "./ui/theme.ts";
import "@session-ledger/react/internal/ui/tokens.css";
import "@session-ledger/react/internal/ui/base.css";

applyTheme();

const queries = makeQueries();
const keys = new Keys();
addEventListener("keydown", (event) => keys.press(event, document));

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <ConnectionProvider value={SERVICE}>
        <KeysProvider value={keys}>
          <MemoryProvider value={BROWSER}>
            <App />
          </MemoryProvider>
        </KeysProvider>
      </ConnectionProvider>
    </QueryClientProvider>
  </StrictMode>,
);
