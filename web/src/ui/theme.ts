/** Light or dark: what the system has, or what the reader chose. */
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "session-ledger-theme";
const THEMES: readonly Theme[] = ["system", "light", "dark"];

let theme: Theme = THEMES.find((one) => one === localStorage.getItem(KEY)) ?? "system";
const listeners = new Set<() => void>();

/** Sets the attribute that tokens.css reads. */
export function applyTheme(): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

export function setTheme(next: Theme): void {
  theme = next;
  if (next === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  applyTheme();
  for (const listener of listeners) listener();
}

/** The theme, and the one that a switch goes to. */
export function useTheme(): { readonly theme: Theme; readonly next: Theme } {
  const now = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => theme,
  );
  return { theme: now, next: THEMES[(THEMES.indexOf(now) + 1) % THEMES.length] ?? "system" };
}
