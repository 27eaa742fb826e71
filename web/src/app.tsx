/** The frame of the page: navigation, the view of the address, and what every view shares. */
import { lazy, Suspense, useState, useSyncExternalStore } from "react";
import { get } from "@session-ledger/react/internal/api/client";
import { currentToken, forgetToken, onTokenChange, SERVICE } from "./token.ts";
import { usePlace, type View, viewOf } from "./router.ts";
import { TokenDialog } from "./token-dialog.tsx";
import { Broken } from "@session-ledger/react/components/ui/broken";
import { Button } from "@session-ledger/react/components/ui/button";
import { Dialog } from "@session-ledger/react/components/ui/dialog";
import { Empty } from "@session-ledger/react/components/ui/empty";
import { useKeyGroups, useKeys } from "@session-ledger/react/internal/ui/keyboard";
import { Link } from "./ui/link.tsx";
import { setTheme, type Theme, useTheme } from "./ui/theme.ts";
import { useWaitingCount } from "./inbox/waiting.ts";
import { count } from "@session-ledger/react/internal/ui/format";
import { useWaitingInTitle } from "./ui/title.ts";
import { SessionsPage } from "./sessions/page.tsx";
import { toast, Toasts } from "./ui/toast.tsx";
import "./ui/key-help.css";
import "./app.css";

const SessionPage = lazy(async () => ({
  default: (await import("./session-page.tsx")).SessionPage,
}));
const InboxPage = lazy(async () => ({
  default: (await import("./inbox/page.tsx")).InboxPage,
}));
const ComparePage = lazy(async () => ({
  default: (await import("./compare/page.tsx")).ComparePage,
}));

/**
 * The service may have a newer page than this tab: then a part that has not been loaded yet is gone, and
 * loading the page again mends it.
 */
const LOAD_AGAIN = <Button onClick={() => location.reload()}>Load the page again</Button>;

/** The title of the keys that every view has. */
const FRAME = "Everywhere";

export function App() {
  const { path } = usePlace();
  const view = viewOf(path);
  const [isHelpOpen, setHelpOpen] = useState(false);
  useKeys(FRAME, [{ keys: ["?"], does: "Show the keys", run: () => setHelpOpen(true) }]);
  return (
    <div className="app">
      <a className="app-skip" href="#main">
        Skip to the content
      </a>
      <Head view={view} onHelp={() => setHelpOpen(true)} />
      <main id="main" className="app-main" tabIndex={-1}>
        <Broken key={path} action={LOAD_AGAIN}>
          <Suspense fallback={<p className="app-loading">Loading …</p>}>
            <Shown view={view} />
          </Suspense>
        </Broken>
      </main>
      {isHelpOpen && <KeyHelp onClose={() => setHelpOpen(false)} />}
      <TokenDialog />
      <Toasts />
    </div>
  );
}

function Shown({ view }: { readonly view: View }) {
  switch (view.name) {
    case "sessions":
      return <SessionsPage />;
    case "inbox":
      return <InboxPage />;
    case "session":
      return <SessionPage key={view.id} id={view.id} />;
    case "compare":
      return <ComparePage key={view.id} id={view.id} />;
    case "nothing":
      return (
        <Empty title="This address has no page.">
          <Link to="/">All sessions</Link>
        </Empty>
      );
  }
}

function Head({ view, onHelp }: { readonly view: View; readonly onHelp: () => void }) {
  const token = useSyncExternalStore(onTokenChange, currentToken);
  const waiting = useWaitingCount();
  useWaitingInTitle(waiting);
  return (
    <header className="app-head">
      <nav aria-label="Pages" className="app-tabs">
        <Link
          to="/"
          className="app-tab"
          aria-current={["nothing", "inbox"].includes(view.name) ? undefined : "page"}
        >
          Sessions
        </Link>
        <Link
          to="/inbox"
          className="app-tab"
          aria-current={view.name === "inbox" ? "page" : undefined}
        >
          Inbox
          {waiting > 0 && <span className="inbox-count">{count(waiting)}</span>}
        </Link>
        <a
          href={OPENAPI}
          className="app-tab"
          title="The OpenAPI document of the HTTP API"
          onClick={(event) => {
            if (token === undefined) return;
            event.preventDefault();
            downloadOpenApi().catch((error: unknown) => toast(String(error), "bad"));
          }}
        >
          API
        </a>
      </nav>
      <div className="app-tools">
        {token !== undefined && (
          <Button
            look="plain"
            aria-label="Forget token"
            title="Forget the token of this tab"
            onClick={() => {
              forgetToken();
              location.reload();
            }}
          >
            <span aria-hidden="true">⏏</span>
          </Button>
        )}
        <ThemeSwitch />
        <Button look="plain" aria-label="Keys" title="Keys (?)" onClick={onHelp}>
          ?
        </Button>
      </div>
    </header>
  );
}

const OPENAPI = "/openapi.json";

/** A link sends no token, so the page reads the document and hands it to the browser as a file. */
async function downloadOpenApi(): Promise<void> {
  const text = JSON.stringify(await get(SERVICE, OPENAPI), null, 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "openapi.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

const SIGNS: Record<Theme, string> = { system: "◐", light: "☀", dark: "☾" };

function ThemeSwitch() {
  const { theme, next } = useTheme();
  return (
    <Button
      look="plain"
      aria-label={`Theme: ${theme}. Switch to ${next}`}
      title={`Theme: ${theme}`}
      onClick={() => setTheme(next)}
    >
      <span aria-hidden="true">{SIGNS[theme]}</span>
    </Button>
  );
}

const NAMES: Readonly<Record<string, string>> = {
  " ": "space",
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  Escape: "esc",
};

function KeyHelp({ onClose }: { readonly onClose: () => void }) {
  const all = useKeyGroups().filter(({ bindings }) => bindings.length > 0);
  // The frame's own keys come last: a reader looks for those of the view.
  const groups = all.toSorted((a, b) => Number(a.title === FRAME) - Number(b.title === FRAME));
  return (
    <Dialog title="Keys" onClose={onClose}>
      {groups.map(({ title, bindings }) => (
        <section key={title} className="key-help">
          <h3>{title}</h3>
          <dl>
            {bindings.map(({ keys, does }) => (
              <div key={does}>
                <dt>
                  {keys.map((key) => (
                    <kbd key={key}>{NAMES[key] ?? key}</kbd>
                  ))}
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
