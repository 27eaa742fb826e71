/** What people think of a message: thumbs with comments. */
import { type FormEvent, useState } from "react";
import type { JsonObject } from "../../../src/agui/json.ts";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { visible } from "../ui/text.ts";
import { focus } from "./focus.ts";
import { useInSession } from "./in-session.ts";
import { giveFeedback } from "./talk-api.ts";
import { useSending } from "./use-sending.ts";
import "./feedback.css";

type Kind = "thumbs_up" | "thumbs_down";

interface FeedbackProps {
  readonly messageId: string;
  readonly given: readonly JsonObject[];
  readonly mayGive: boolean;
}

export function Feedback({ messageId, given, mayGive }: FeedbackProps) {
  const { rights } = useInSession();
  const isOffered = mayGive && rights.mayGiveFeedback;
  if (!isOffered && given.length === 0) return null;
  return (
    <footer className="feedback">
      {isOffered && <Thumbs messageId={messageId} />}
      {given.map((one, at) => (
        <Given key={at} one={one} />
      ))}
    </footer>
  );
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

function Thumbs({ messageId }: { messageId: string }) {
  const { sessionId } = useInSession();
  const [chosen, setChosen] = useState<Kind>();
  const [comment, setComment] = useState("");
  const [isAsking, setIsAsking] = useState(false);
  const { send, isSending, error } = useSending(giveFeedback);
  const choose = (kind: Kind): void => {
    setChosen(kind);
    setIsAsking(true);
    send({ sessionId, messageId, kind, comment: comment.trim() });
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (chosen !== undefined) send({ sessionId, messageId, kind: chosen, comment: comment.trim() });
    setIsAsking(false);
  };
  return (
    <>
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
      {isAsking && (
        <form className="feedback-comment" onSubmit={submit}>
          <input
            ref={focus}
            aria-label="Comment"
            placeholder="Why? (optional)"
            maxLength={4_000}
            dir="auto"
            value={comment}
            onChange={({ target }) => setComment(target.value)}
            onKeyDown={({ key }) => {
              if (key === "Escape") setIsAsking(false);
            }}
          />
          <Button type="submit" disabled={isSending}>
            Add
          </Button>
        </form>
      )}
      {error !== undefined && <ErrorBox error={error} />}
    </>
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
