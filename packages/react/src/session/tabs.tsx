import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";
import "./tabs.css";

export interface Tab {
  readonly name: string;
  readonly content: ReactNode;
}

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly selected: string;
  readonly select: (name: string) => void;
}

export function Tabs({ label, tabs, selected, select }: TabsProps) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const shown = tabs.find(({ name }) => name === selected) ?? tabs[0];
  if (shown === undefined) return null;
  const press = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const at = (tabs.indexOf(shown) + by + tabs.length) % tabs.length;
    const next = tabs[at];
    if (next === undefined) return;
    select(next.name);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[at]?.focus();
  };
  return (
    <div className="tabs">
      <div ref={list} className="tabs-list" role="tablist" aria-label={label}>
        {tabs.map(({ name }) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`${id}-tab-${name}`}
            aria-selected={name === shown.name}
            aria-controls={`${id}-panel`}
            tabIndex={name === shown.name ? 0 : -1}
            onClick={() => select(name)}
            onKeyDown={press}
          >
            {name}
          </button>
        ))}
      </div>
      <div
        className="tabs-panel"
        role="tabpanel"
        id={`${id}-panel`}
        aria-labelledby={`${id}-tab-${shown.name}`}
      >
        {shown.content}
      </div>
    </div>
  );
}
