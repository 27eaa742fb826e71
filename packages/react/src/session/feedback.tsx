/** What people think of a message: thumbs with comments. */
import { type FormEvent, useState } from "react";
import type { JsonObject } from "@session-ledger/agui/json";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { focus } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import { useInSession } from "./in-session.ts";
import { giveFeedback } from "./talk-api.ts";
import { useSending } from "./use-sending.ts";
import "./feedback.css";

type Kind = "thumbs_up" | "thumbs_down";

/** What the reader thinks of a message, while they say it. */
export interface Thought {
  readonly messageId: string;
  readonly chosen: Kind | undefined;
  /** A comment was not given yet. */
  readonly isAsking: boolean;
  readonly isSending: boolean;
  readonly error: unknown;
  readonly choose: (kind: Kind) => void;
  /** Undefined: the reader does not want to comment. */
  readonly comment: (text: string | undefined) => void;
}

export function useThought(messageId: string): Thought {
  const { sessionId } = useInSession();
  const [chosen, setChosen] = useState<Kind>();
  const [isAsking, setIsAsking] = useState(false);
  const { send, isSending, error } = useSending(giveFeedback);
  return {
    messageId,
    chosen,
    isAsking,
    isSending,
    error,
    choose: (kind) => {
      setChosen(kind);
      setIsAsking(true);
      send({ sessionId, messageId, kind, comment: "" });
    },
    comment: (text) => {
      setIsAsking(false);
      if (chosen === undefined || text === undefined || text.trim() === "") return;
      send({ sessionId, messageId, kind: chosen, comment: text.trim() });
    },
  };
}

const WORDS: Readonly<Record<string, string>> = { thumbs_up: "Good", thumbs_down: "Bad" };

function Given({ one: { by, kind, comment } }: { one: JsonObject }) {
  const word = typeof kind === "string" ? (WORDS[kind] ?? kind) : "";
  return (
    <span className="feedback-given">
      {(kind === "thumbs_up" || kind === "thumbs_down") && <Thumb kind={kind} />}
      <span>{visible(word)}</span>
      {typeof comment === "string" && comment !== "" && <q dir="auto">{visible(comment)}</q>}
      {typeof by === "string" && (
        <span className="feedback-by">
          by <bdi>{visible(by)}</bdi>
        </span>
      )}
    </span>
  );
}

interface ThumbsProps {
  readonly thought: Thought;
  readonly given: readonly JsonObject[];
}

export function Thumbs({ thought, given }: ThumbsProps) {
  const { actor } = useInSession().rights;
  const { isSending, choose } = thought;
  const chosen = thought.chosen ?? given.find(({ by }) => by === actor)?.["kind"];
  return (
    <span className="feedback-thumbs">
      {(["thumbs_up", "thumbs_down"] as const).map((kind) => (
        <button
          key={kind}
          type="button"
          className="feedback-thumb"
          aria-label={WORDS[kind]}
          title={kind === "thumbs_up" ? "This answer is good" : "This answer is bad"}
          aria-pressed={chosen === kind}
          disabled={isSending}
          onClick={() => choose(kind)}
        >
          <Thumb kind={kind} />
        </button>
      ))}
    </span>
  );
}

/** Below a message: what people think of it, and a field for the reader's comment. */
export function Feedback({ thought, given }: ThumbsProps) {
  const { isAsking, error } = thought;
  if (given.length === 0 && !isAsking && error === undefined) return null;
  return (
    <footer className="feedback">
      {given.map((one, at) => (
        <Given key={typeof one["by"] === "string" ? one["by"] : at} one={one} />
      ))}
      {isAsking && <Comment thought={thought} />}
      {error !== undefined && <ErrorBox error={error} />}
    </footer>
  );
}

function Comment({ thought: { comment, isSending } }: { thought: Thought }) {
  const [text, setText] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    comment(text);
  };
  return (
    <form className="feedback-comment" onSubmit={submit}>
      <input
        ref={focus}
        aria-label="Comment"
        placeholder="Why? (optional)"
        maxLength={4_000}
        dir="auto"
        value={text}
        onChange={({ target }) => setText(target.value)}
        onKeyDown={({ key }) => {
          if (key === "Escape") comment(undefined);
        }}
      />
      <Button type="submit" disabled={isSending}>
        Add
      </Button>
    </form>
  );
}

function Thumb({ kind }: { kind: Kind }) {
  return (
    <svg
      viewBox="0 0 16 16"
      width="14"
      height="14"
      aria-hidden="true"
      className={kind === "thumbs_down" ? "feedback-down" : undefined}
    >
      <path d="M2.5 7h2.2v6.5H2.5zM4.7 7.4 7.6 2c1 0 1.7.7 1.5 1.8L8.6 6.3h3.7c.9 0 1.4.8 1.2 1.6l-1.1 4.4c-.2.7-.7 1.2-1.4 1.2H4.7z" />
    </svg>
  );
}
