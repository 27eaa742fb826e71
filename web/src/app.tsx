/** The frame of the page: navigation, the view of the address, and what every view shares. */
import { lazy, Suspense, useState, useSyncExternalStore } from "react";
import { useCaller } from "./api/caller.ts";
import { currentToken, forgetToken, onTokenChange } from "./api/token.ts";
import { Broken } from "./broken.tsx";
import { usePlace, type View, viewOf } from "./router.ts";
import { TokenDialog } from "./token-dialog.tsx";
import { Button } from "./ui/button.tsx";
import { Empty } from "./ui/empty.tsx";
import { FRAME, KeyHelp } from "./ui/key-help.tsx";
import { useKeys } from "./ui/keyboard.ts";
import { Link } from "./ui/link.tsx";
import { setTheme, type Theme, useTheme } from "./ui/theme.ts";
import { SessionsPage } from "./sessions/page.tsx";
import { Toasts } from "./ui/toast.tsx";
import "./app.css";

const SessionPage = lazy(async () => ({
  default: (await import("./session/page.tsx")).SessionPage,
}));
const ComparePage = lazy(async () => ({
  default: (await import("./compare/page.tsx")).ComparePage,
}));
const StoragePage = lazy(async () => ({
  default: (await import("./storage/page.tsx")).StoragePage,
}));
const ServicePage = lazy(async () => ({
  default: (await import("./service/page.tsx")).ServicePage,
}));
const DocsPage = lazy(async () => ({
  default: (await import("./docs/page.tsx")).DocsPage,
}));

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
        <Broken key={path}>
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
    case "session":
      return <SessionPage key={view.id} id={view.id} />;
    case "compare":
      return <ComparePage key={view.id} id={view.id} />;
    case "storage":
      return <StoragePage />;
    case "service":
      return <ServicePage />;
    case "docs":
      return <DocsPage />;
    case "nothing":
      return (
        <Empty title="There is nothing at this address.">
          <Link to="/">All sessions</Link>
        </Empty>
      );
  }
}

const TABS = [
  { to: "/", text: "Sessions", views: ["sessions", "session", "compare"], needs: "session.list" },
  { to: "/storage", text: "Storage", views: ["storage"], needs: "session.list" },
  { to: "/service", text: "Service", views: ["service"], needs: "service.read" },
  { to: "/docs", text: "API", views: ["docs"], needs: "contract.read" },
] as const;

function Head({ view, onHelp }: { readonly view: View; readonly onHelp: () => void }) {
  const caller = useCaller();
  const token = useSyncExternalStore(onTokenChange, currentToken);
  const tabs = TABS.filter(({ needs }) => caller?.actions.includes(needs) ?? true);
  return (
    <header className="app-head">
      <nav aria-label="Pages" className="app-tabs">
        {tabs.map(({ to, text, views }) => (
          <Link
            key={to}
            to={to}
            className="app-tab"
            aria-current={views.some((name) => name === view.name) ? "page" : undefined}
          >
            {text}
          </Link>
        ))}
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
