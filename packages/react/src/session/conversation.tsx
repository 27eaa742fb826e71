/**
 * The conversation at the cursor: a virtual list with measured heights. It stays at its end until the
 * reader scrolls back.
 */
import { useVirtualizer } from "@tanstack/react-virtual";
import {
  memo,
  type RefObject,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import type { Item } from "../model/items.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { useKeys } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import { MessageView, nameOf, ThinkingView } from "./message.tsx";
import { RememberOpened } from "./opened.tsx";
import { ActivityView, RunView, StateView } from "./quiet-line.tsx";
import { ToolCard } from "./tool-card.tsx";
import "./conversation.css";

const HEIGHTS: Readonly<Record<Item["kind"], number>> = {
  message: 84,
  thinking: 28,
  tool: 34,
  activity: 28,
  state: 28,
  run: 32,
};
/** Nearer than this to the end, the reader is at the end. */
const END_PIXELS = 48;

interface ConversationProps {
  readonly items: readonly Item[];
  /** The row of a message that is shown once; empty: none. */
  readonly wanted: string;
  /** What came before the items, or the items themselves, are still being read. */
  readonly isLoading: boolean;
}

export const Conversation = memo(function Conversation(props: ConversationProps) {
  return (
    <RememberOpened>
      <List {...props} />
    </RememberOpened>
  );
});

function List({ items, wanted, isLoading }: ConversationProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [isAtEnd, setIsAtEnd] = useState(true);
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: (index) => HEIGHTS[items[index]?.kind ?? "message"],
    getItemKey: useCallback((index: number) => items[index]?.key ?? index, [items]),
    overscan: 6,
    anchorTo: "end",
    followOnAppend: true,
    scrollEndThreshold: END_PIXELS,
  });
  const isEmpty = items.length === 0;
  const toEnd = useCallback(() => virtual.scrollToEnd(), [virtual]);
  const scrolled = useFollowing(items, toEnd);
  useWanted(items, wanted, (index) => {
    scrolled({ isAtEnd: false, scrollTop: -1 });
    virtual.scrollToIndex(index, { align: "start" });
    focusSoon(scroller, index);
  });
  useMoves(scroller, {
    count: items.length,
    draw: (index) => virtual.scrollToIndex(index, { align: "auto" }),
  });
  return (
    <section className="conversation" aria-label="Conversation">
      {isLoading && <Loading />}
      <div
        ref={scroller}
        className="conversation-scroll"
        role={isEmpty ? "group" : "feed"}
        aria-label="Items of the conversation"
        aria-busy={isLoading}
        tabIndex={0}
        onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
          const isNowAtEnd = scrollHeight - scrollTop - clientHeight <= END_PIXELS;
          scrolled({ isAtEnd: isNowAtEnd, scrollTop });
          setIsAtEnd(isNowAtEnd);
        }}
      >
        {isEmpty && !isLoading && <Nothing />}
        <div className="conversation-all" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, key, start }) => {
            const item = items[index];
            if (item === undefined) return null;
            return (
              <article
                key={key}
                ref={virtual.measureElement}
                className="conversation-item"
                data-index={index}
                style={{ transform: `translateY(${start}px)` }}
                tabIndex={-1}
                aria-label={labelOf(item)}
                aria-posinset={index + 1}
                aria-setsize={items.length}
              >
                <ItemView item={item} />
              </article>
            );
          })}
        </div>
      </div>
      {!isAtEnd && !isEmpty && <ToEnd go={toEnd} />}
      <Announcement items={items} />
    </section>
  );
}

function Loading() {
  return (
    <p className="conversation-loading" role="status">
      Loading …
    </p>
  );
}

function ToEnd({ go }: { readonly go: () => void }) {
  return (
    <div className="conversation-end">
      <Button onClick={go}>↓ To the end</Button>
    </div>
  );
}

function Nothing() {
  return (
    <Empty title="Nothing was said yet">
      <p>Messages and what the agent does will show here.</p>
    </Empty>
  );
}

interface Scrolled {
  readonly isAtEnd: boolean;
  readonly scrollTop: number;
}

/** Seeks the end again with each change, until the reader scrolls back. */
function useFollowing(items: readonly Item[], toEnd: () => void): (scrolled: Scrolled) => void {
  const follows = useRef(true);
  const top = useRef(0);
  useLayoutEffect(() => {
    if (follows.current && items.length > 0) toEnd();
  }, [items, toEnd]);
  return ({ isAtEnd, scrollTop }) => {
    // Only the reader moves upwards.
    if (isAtEnd || scrollTop < top.current) follows.current = isAtEnd;
    top.current = scrollTop;
  };
}

function useWanted(items: readonly Item[], wanted: string, show: (index: number) => void): void {
  const shown = useRef("");
  useEffect(() => {
    if (wanted === shown.current) return;
    const index = items.findIndex(
      (item) => item.kind === "message" && item.messageSeq === Number(wanted),
    );
    if (index < 0) return;
    shown.current = wanted;
    show(index);
  });
}

interface Moves {
  readonly count: number;
  /** Makes the page draw the item. */
  readonly draw: (index: number) => void;
}

/** Keys that move the focus from item to item, from the last one upwards at first. */
function useMoves(scroller: RefObject<HTMLElement | null>, { count, draw }: Moves): void {
  const move = (by: -1 | 1): void => {
    const item = scroller.current?.querySelector<HTMLElement>(".conversation-item:focus-within");
    const from = item === null || item === undefined ? count : Number(item.dataset["index"]);
    const to = Math.min(Math.max(from + by, 0), count - 1);
    if (to < 0) return;
    draw(to);
    focusSoon(scroller, to);
  };
  useKeys("Conversation", [
    { keys: ["j"], does: "Next item", run: () => move(1) },
    { keys: ["k"], does: "Item before", run: () => move(-1) },
  ]);
}

/** The item may have to be drawn first. */
function focusSoon(scroller: RefObject<HTMLElement | null>, index: number, frames = 5): void {
  const item = scroller.current?.querySelector<HTMLElement>(`[data-index="${index}"]`);
  if (item !== null && item !== undefined) item.focus({ preventScroll: true });
  else if (frames > 0) requestAnimationFrame(() => focusSoon(scroller, index, frames - 1));
}

const ItemView = memo(function ItemView({ item }: { item: Item }) {
  switch (item.kind) {
    case "message":
      return <MessageView item={item} />;
    case "thinking":
      return <ThinkingView item={item} />;
    case "tool":
      return <ToolCard item={item} />;
    case "activity":
      return <ActivityView item={item} />;
    case "state":
      return <StateView item={item} />;
    case "run":
      return <RunView item={item} />;
  }
});

function labelOf(item: Item): string {
  switch (item.kind) {
    case "message":
      return `Message of ${nameOf(item)}`;
    case "thinking":
      return "Thinking";
    case "tool":
      return visible(`Tool call ${item.name}, ${item.status}`);
    case "activity":
      return visible(`Activity ${item.type}`);
    case "state":
      return "Change of the state";
    case "run":
      return visible(`Run ${item.runId}, ${item.phase}`);
  }
}

const ANNOUNCED_CHARS = 300;

/** Reads the newest message to a person who cannot see it, when it is whole. */
function Announcement({ items }: Pick<ConversationProps, "items">) {
  const message = items.findLast((item) => item.kind === "message" && !item.isStreaming);
  const { content } = message?.kind === "message" ? message : {};
  return (
    <p className="unseen" aria-live="polite">
      {message?.kind === "message" &&
        typeof content === "string" &&
        `${nameOf(message)}: ${visible(content.slice(0, ANNOUNCED_CHARS))}`}
    </p>
  );
}
