import { createContext, useCallback, useContext, useState } from "react";

/** Keeps choices of the reader between visits. */
export interface Memory {
  readonly read: (name: string) => string | undefined;
  readonly write: (name: string, value: string) => void;
}

/** Without a provider, a choice lasts as long as its component. */
const Context = createContext<Memory | undefined>(undefined);

export const MemoryProvider = Context.Provider;

/** A choice of the reader: a width, a tab, a name. Never a token. */
export function useRemembered(
  name: string,
  fallback: string,
): readonly [string, (value: string) => void] {
  const memory = useContext(Context);
  const [value, setValue] = useState(() => memory?.read(name) ?? fallback);
  const set = useCallback(
    (next: string) => {
      setValue(next);
      memory?.write(name, next);
    },
    [memory, name],
  );
  return [value, set];
}
