import { useSyncExternalStore } from "react";
import { Button } from "@session-ledger/react/components/ui/button";
import "./toast.css";

interface Message {
  readonly id: number;
  readonly text: string;
  readonly tone: "normal" | "bad";
}

const SHOWN_MS = 5_000;
const SHOWN_MAX = 4;

let messages: readonly Message[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function set(next: readonly Message[]): void {
  messages = next;
  for (const listener of listeners) listener();
}

function remove(id: number): void {
  set(messages.filter((message) => message.id !== id));
}

/** Tells something in the corner; an error stays until it is closed. */
export function toast(text: string, tone: Message["tone"] = "normal"): void {
  lastId += 1;
  const id = lastId;
  set([...messages, { id, text, tone }].slice(-SHOWN_MAX));
  if (tone === "normal") setTimeout(() => remove(id), SHOWN_MS);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => messages,
  );
  return (
    <section className="toasts" aria-live="polite" aria-label="Notices">
      {shown.map(({ id, text, tone }) => (
        <div key={id} className={`toast toast-${tone}`}>
          <span>{text}</span>
          <Button look="plain" aria-label="Close this notice" onClick={() => remove(id)}>
            ✕
          </Button>
        </div>
      ))}
    </section>
  );
}
