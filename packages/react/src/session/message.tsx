import type { MessageItem, ThinkingItem } from "../model/items.ts";
import { Badge } from "../ui/badge.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { JsonText } from "../ui/json-tree.tsx";
import { visible } from "../ui/text.ts";
import { BranchButtons, BranchChoice, EditForm, useBranching } from "./branches.tsx";
import { Feedback, Thumbs, useThought } from "./feedback.tsx";
import { useInSession } from "./in-session.ts";
import { At, OfSubagent } from "./origin.tsx";
import { useOpen } from "./opened.tsx";
import { Content } from "./parts.tsx";
import { Markdown } from "./markdown.tsx";
import "./message.css";

const NAMES: Readonly<Record<string, string>> = {
  user: "Person",
  assistant: "Agent",
  system: "System",
  developer: "Developer",
  tool: "Result of a tool",
};

export function nameOf({ role, name }: Pick<MessageItem, "role" | "name">): string {
  return visible(name ?? NAMES[role] ?? role);
}

export function MessageView({ item }: { item: MessageItem }) {
  const { role, content, isStreaming, isPending, subagent, feedback } = item;
  const { rights } = useInSession();
  const thought = useThought(item.id);
  const branching = useBranching(item);
  const isAnswer = role === "assistant" && !isStreaming;
  return (
    <div className={`message message-${role in NAMES ? role : "other"}`}>
      <header className="message-head">
        <bdi className="message-name">{nameOf(item)}</bdi>
        {item.name !== undefined && role !== "user" && (
          <span className="message-role">{visible(role)}</span>
        )}
        <OfSubagent name={subagent} />
        {isPending && (
          <span title="No run has taken this message">
            <Badge tone="warn">waiting</Badge>
          </span>
        )}
        {isStreaming && <Badge tone="accent">writing</Badge>}
        <BranchChoice branches={item.branches} />
        <BranchButtons item={item} branching={branching} />
        {isAnswer && rights.mayGiveFeedback && <Thumbs thought={thought} given={feedback} />}
        <At seq={item.seq} atMs={item.atMs} />
      </header>
      <div className="message-body">
        {branching.isEditing && <EditForm item={item} branching={branching} />}
        {!branching.isEditing && branching.error !== undefined && (
          <ErrorBox error={branching.error} />
        )}
        {role === "tool" && typeof content === "string" ? (
          <JsonText text={content} />
        ) : (
          <Content content={content} isLive={isStreaming} />
        )}
      </div>
      <Feedback thought={thought} given={feedback} />
    </div>
  );
}

export function ThinkingView({ item }: { item: ThinkingItem }) {
  const { text, isStreaming } = item;
  const [isOpen, toggle] = useOpen(`thinking ${item.id}`);
  return (
    <div className="thinking">
      <header className="message-head">
        <button type="button" className="quiet-open" aria-expanded={isOpen} onClick={toggle}>
          {isStreaming ? "Thinking" : "Thought"}
        </button>
        <OfSubagent name={item.subagent} />
        <span className="quiet-more">
          {text === "" ? "no text" : isOpen ? "" : visible(text.slice(0, 200))}
        </span>
        <At seq={item.seq} atMs={item.atMs} />
      </header>
      {isOpen && (
        <div className="thinking-body">
          <Markdown text={text} isLive={isStreaming} />
        </div>
      )}
    </div>
  );
}
