import {
  createContext,
  type ReactNode,
  useCallback,
  useContext,
  useReducer,
  useState,
} from "react";

/** The open parts of items, which are unmounted while they are out of sight. */
const Opened = createContext<Map<string, boolean>>(new Map());

export function RememberOpened({ children }: { children: ReactNode }) {
  const [opened] = useState(() => new Map<string, boolean>());
  return <Opened value={opened}>{children}</Opened>;
}

/** By a key that an item keeps when the page reads the session again. */
export function useOpen(key: string, initial = false): readonly [boolean, () => void] {
  const opened = useContext(Opened);
  const [, draw] = useReducer((drawn: number) => drawn + 1, 0);
  const isOpen = opened.get(key) ?? initial;
  const toggle = useCallback(() => {
    opened.set(key, !(opened.get(key) ?? initial));
    draw();
  }, [opened, key, initial]);
  return [isOpen, toggle];
}
