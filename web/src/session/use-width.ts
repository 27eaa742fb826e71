import { useSyncExternalStore } from "react";

const WIDE = matchMedia("(min-width: 1200px) and (min-height: 620px)");
const MIDDLE = matchMedia("(min-width: 760px)");

/** How many parts of a session have room beside each other. */
export function useWidth(): "wide" | "middle" | "narrow" {
  return useSyncExternalStore(subscribe, () =>
    WIDE.matches ? "wide" : MIDDLE.matches ? "middle" : "narrow",
  );
}

function subscribe(listener: () => void): () => void {
  for (const query of [WIDE, MIDDLE]) query.addEventListener("change", listener);
  return () => {
    for (const query of [WIDE, MIDDLE]) query.removeEventListener("change", listener);
  };
}
