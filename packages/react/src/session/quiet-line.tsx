/** Items that are one quiet line until they are opened: activities, changes of the state, runs. */
import { type ReactNode, useEffect, useState } from "react";
import { useCaller } from "../api/caller.ts";
import { costOf, type ModelPrice, tokensOf } from "../model/cost.ts";
import type { ActivityItem, RunItem, StateItem } from "../model/items.ts";
import { Badge, type Tone } from "../ui/badge.tsx";
import { count, duration, money } from "../ui/format.ts";
import { JsonText, JsonTree } from "../ui/json-tree.tsx";
import { visible } from "../ui/text.ts";
import { CopyButton } from "./code-block.tsx";
import { At } from "./origin.tsx";
import { useInSession } from "./in-session.ts";
import { useOpen } from "./opened.tsx";
import "./quiet-line.css";

interface QuietLineProps {
  readonly openKey: string;
  readonly title: string;
  readonly more: string;
  readonly seq: number;
  readonly atMs: number;
  readonly children: () => ReactNode;
}

function QuietLine({ openKey, title, more, seq, atMs, children }: QuietLineProps) {
  const [isOpen, toggle] = useOpen(openKey);
  return (
    <div className="quiet">
      <header className="message-head">
        <button type="button" className="quiet-open" aria-expanded={isOpen} onClick={toggle}>
          {title}
        </button>
        <span className="quiet-more">{visible(more)}</span>
        <At seq={seq} atMs={atMs} />
      </header>
      {isOpen && <div className="quiet-body">{children()}</div>}
    </div>
  );
}

export function ActivityView({ item }: { item: ActivityItem }) {
  const { id, type, content, seq, atMs } = item;
  return (
    <QuietLine openKey={`activity ${id}`} title="Activity" more={type} seq={seq} atMs={atMs}>
      {() => <JsonTree value={content} />}
    </QuietLine>
  );
}

const PATHS_SHOWN = 6;

export function StateView({ item }: { item: StateItem }) {
  const { key, change, paths, count: changes, lastSeq, seq, atMs } = item;
  const rest = paths.length - PATHS_SHOWN;
  const more = `${paths.slice(0, PATHS_SHOWN).join("  ")}${rest > 0 ? `  and ${rest} more` : ""}`;
  const once = change === "snapshot" ? "State set" : "State changed";
  const title = changes > 1 ? `State changed ${count(changes)} times` : once;
  return (
    <QuietLine openKey={`state ${key}`} title={title} more={more} seq={seq} atMs={atMs}>
      {() => <EventPayload key={lastSeq} seq={lastSeq} />}
    </QuietLine>
  );
}

/** The event as it is stored, read again if the page has dropped it. */
function EventPayload({ seq }: { seq: number }) {
  const { log } = useInSession();
  const [payload, setPayload] = useState<{ readonly text: string | undefined }>();
  useEffect(() => {
    let isOver = false;
    const row = log.rows[log.indexOf(seq)];
    const read = row === undefined ? Promise.resolve(undefined) : log.read(row);
    read.then(
      (text) => !isOver && setPayload({ text }),
      () => !isOver && setPayload({ text: undefined }),
    );
    return () => {
      isOver = true;
    };
  }, [log, seq]);
  if (payload === undefined) return <p>Loading…</p>;
  if (payload.text === undefined) return <p>This event cannot be read any more.</p>;
  return <JsonText text={payload.text} />;
}

const ENDS: Readonly<Record<string, { tone: Tone; words: string }>> = {
  success: { tone: "good", words: "finished" },
  interrupt: { tone: "warn", words: "waits for an answer" },
  cancelled: { tone: "neutral", words: "cancelled" },
  answered: { tone: "good", words: "answered" },
  unanswered: { tone: "neutral", words: "not answered" },
};

const NO_PRICES = {};

/** "Run 3 · 4.2 s · 2 tools · 1,240 tokens · $0.012". */
function wordsOf(
  { number, tookMs, toolCalls, usage }: RunItem,
  prices: Readonly<Record<string, ModelPrice>>,
): string {
  const words = [number === 0 ? "Run" : `Run ${count(number)}`];
  if (tookMs !== undefined) words.push(duration(tookMs));
  if (toolCalls > 0) words.push(`${count(toolCalls)} ${toolCalls === 1 ? "tool" : "tools"}`);
  const tokens = tokensOf(usage);
  if (tokens > 0) words.push(`${count(tokens)} ${tokens === 1 ? "token" : "tokens"}`);
  const cost = costOf(usage, prices);
  if (cost !== undefined && cost > 0) words.push(money(cost));
  return words.join(" · ");
}

export function RunView({ item }: { item: RunItem }) {
  const { phase, runId, outcome, answer, message, code, seq, atMs } = item;
  const prices = useCaller()?.model_prices ?? NO_PRICES;
  const end = ENDS[answer ?? outcome ?? "success"] ?? {
    tone: "neutral",
    words: visible(outcome ?? ""),
  };
  return (
    <div className={`run-line run-line-${phase}`}>
      <header className="message-head">
        <span className="run-line-title" title={visible(runId)}>
          {wordsOf(item, prices)}
        </span>
        <CopyButton text={runId} what="the id of the run" />
        {phase === "start" && <span className="run-line-word">begins</span>}
        {phase === "end" && <Badge tone={end.tone}>{end.words}</Badge>}
        {phase === "error" && <Badge tone="bad">failed</Badge>}
        <At seq={seq} atMs={atMs} />
      </header>
      {phase === "error" && (
        <p className="run-line-problem" dir="auto">
          {visible(message ?? "")} {code !== undefined && <code>{visible(code)}</code>}
        </p>
      )}
    </div>
  );
}
