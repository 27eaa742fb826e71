import { createContext, type ReactNode, useCallback, useContext, useState } from "react";

/**
 * Items of a long conversation are unmounted while they are out of sight: the page remembers which
 * of their parts are open.
 */
const Opened = createContext<Map<string, boolean>>(new Map());

export function RememberOpened({ children }: { children: ReactNode }) {
  const [opened] = useState(() => new Map<string, boolean>());
  return <Opened value={opened}>{children}</Opened>;
}

export function useOpen(key: string, initial = false): readonly [boolean, () => void] {
  const opened = useContext(Opened);
  const [isOpen, setIsOpen] = useState(() => opened.get(key) ?? initial);
  const toggle = useCallback(() => {
    setIsOpen((was) => {
      opened.set(key, !was);
      return !was;
    });
  }, [opened, key]);
  return [isOpen, toggle];
}
