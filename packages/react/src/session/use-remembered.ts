import { useCallback, useState } from "react";

/** A choice of the reader that this browser keeps: a width, a tab, a name. Never a token. */
export function useRemembered(
  name: string,
  fallback: string,
): readonly [string, (value: string) => void] {
  const [value, setValue] = useState(() => remembered(name) ?? fallback);
  const set = useCallback(
    (next: string) => {
      setValue(next);
      try {
        localStorage.setItem(keyOf(name), next);
      } catch {
        // A browser may refuse to keep anything: the choice lasts as long as the page.
      }
    },
    [name],
  );
  return [value, set];
}

function remembered(name: string): string | undefined {
  try {
    return localStorage.getItem(keyOf(name)) ?? undefined;
  } catch {
    return undefined;
  }
}

function keyOf(name: string): string {
  return `session-ledger-${name}`;
}
