import type { Memory } from "@session-ledger/react/internal/session/use-remembered";

/** This browser keeps the choices. It may refuse to: then they last as long as the page. */
export const BROWSER: Memory = {
  read(name) {
    try {
      return localStorage.getItem(keyOf(name)) ?? undefined;
    } catch {
      return undefined;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(keyOf(name), value);
    } catch {
      // Nothing is kept.
    }
  },
};

function keyOf(name: string): string {
  return `session-ledger-${name}`;
}
