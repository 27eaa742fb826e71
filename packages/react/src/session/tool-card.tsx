import type { ToolItem } from "../model/items.ts";
import { Badge, type Tone } from "../ui/badge.tsx";
import { duration } from "../ui/format.ts";
import { visible } from "../ui/text.ts";
import { JsonText } from "../ui/json-tree.tsx";
import { CopyButton } from "./code-block.tsx";
import { At, OfSubagent } from "./origin.tsx";
import { useOpen } from "./opened.tsx";
import "./tool-card.css";

const STATES: Readonly<Record<ToolItem["status"], { tone: Tone; word: string }>> = {
  pending: { tone: "neutral", word: "no result yet" },
  done: { tone: "good", word: "done" },
  failed: { tone: "bad", word: "failed" },
  unanswered: { tone: "neutral", word: "not answered" },
};
const SUMMARY_CHARS = 300;

export function ToolCard({ item }: { item: ToolItem }) {
  const { name, args, status, result, resultMs, isStreaming } = item;
  const [isOpen, toggle] = useOpen(`tool ${item.messageId} ${item.id}`, status === "failed");
  const { tone, word } = STATES[status];
  return (
    <div className={`tool-card tool-card-${status}`}>
      <header className="message-head">
        <button
          type="button"
          className="quiet-open tool-card-name"
          aria-expanded={isOpen}
          onClick={toggle}
        >
          <bdi>{visible(name)}</bdi>
        </button>
        <OfSubagent name={item.subagent} />
        <span className="quiet-more tool-card-args" dir="ltr">
          {isOpen ? "" : visible(args.slice(0, SUMMARY_CHARS))}
        </span>
        {isStreaming ? <Badge tone="accent">writing</Badge> : <Badge tone={tone}>{word}</Badge>}
        {resultMs !== undefined && (
          <span className="quiet-time">{duration(resultMs - item.atMs)}</span>
        )}
        <At seq={item.seq} atMs={item.atMs} />
      </header>
      {isOpen && (
        <div className="tool-card-body">
          <Value title="Arguments" text={args} />
          {result === undefined ? (
            <p className="tool-card-none">{status === "pending" ? "No result yet" : "No result"}</p>
          ) : (
            <Value title={status === "failed" ? "Failure" : "Result"} text={resultText(result)} />
          )}
        </div>
      )}
    </div>
  );
}

export function resultText({ content, error }: Readonly<Record<string, unknown>>): string {
  const parts = [content, error].filter((part) => part !== undefined && part !== "");
  return parts.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join("\n");
}

export function Value({ title, text }: { title: string; text: string }) {
  return (
    <section className="tool-card-value" aria-label={title}>
      <header className="tool-card-title">
        {title}
        <CopyButton text={text} what={title.toLowerCase()} />
      </header>
      {text === "" ? <p className="tool-card-none">empty</p> : <JsonText text={text} />}
    </section>
  );
}
