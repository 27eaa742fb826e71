/** The branches of a message: which one is shown, and how a person begins another one. */
import { type FormEvent, useRef, useState } from "react";
import type { MessageItem } from "../model/items.ts";
import { SendKeys } from "../model/sending.ts";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { focus } from "../ui/keyboard.ts";
import { useInSession, useShownCursor } from "./in-session.ts";
import { sendBranch } from "./talk-api.ts";
import { useSending } from "./use-sending.ts";
import { useIsRunning } from "./use-session-log.ts";

/** `‹ 2/3 ›`: an earlier branch is the session before the run that began the next one. */
export function BranchChoice({ branches }: Pick<MessageItem, "branches">) {
  const { moveTo } = useInSession();
  const cursor = useShownCursor();
  if (branches.length === 0) return null;
  const passed = cursor === "live" ? branches : branches.filter((seq) => seq <= cursor);
  const [shown, all] = [passed.length, branches.length];
  const show = (branch: number): void =>
    moveTo(branch === all ? "live" : (branches[branch] ?? 1) - 1);
  return (
    <span className="branch-choice" role="group" aria-label="Branches">
      <Button
        look="plain"
        aria-label="Branch before"
        disabled={shown === 0}
        onClick={() => show(shown - 1)}
      >
        ‹
      </Button>
      {shown + 1}/{all + 1}
      <Button
        look="plain"
        aria-label="Next branch"
        disabled={shown === all}
        onClick={() => show(shown + 1)}
      >
        ›
      </Button>
    </span>
  );
}

export interface Branching {
  readonly isEditing: boolean;
  readonly edit: () => void;
  readonly stop: () => void;
  readonly again: () => void;
  readonly replace: (text: string) => void;
  readonly isSending: boolean;
  readonly error: unknown;
}

export function useBranching({ id, content }: MessageItem): Branching {
  const { sessionId } = useInSession();
  const [isEditing, setIsEditing] = useState(false);
  const keys = useRef(new SendKeys());
  const { send, isSending, error } = useSending(sendBranch);
  const begin = (branch: Parameters<typeof sendBranch>[1]["branch"]): void => {
    const key = keys.current.keyOf(JSON.stringify(branch));
    send({ sessionId, branch, key }, () => {
      keys.current.stored();
      setIsEditing(false);
    });
  };
  return {
    isEditing,
    isSending,
    error,
    edit: () => setIsEditing(true),
    stop: () => setIsEditing(false),
    again: () => begin({ regenerates: id, content }),
    replace: (text) => begin({ edits: id, content: text }),
  };
}

interface BranchButtonsProps {
  readonly item: MessageItem;
  readonly branching: Branching;
}

/** A message that waits, and one beside an open run, begins no branch. */
export function BranchButtons({ item, branching }: BranchButtonsProps) {
  const { rights, log } = useInSession();
  const cursor = useShownCursor();
  const isRunning = useIsRunning(log);
  const { role, isPending, content } = item;
  if (role !== "user" || isPending || !rights.maySend || cursor !== "live") return null;
  if (isRunning || branching.isEditing) return null;
  return (
    <span className="branch-buttons">
      {typeof content === "string" && (
        <Button look="plain" onClick={branching.edit} disabled={branching.isSending}>
          Edit
        </Button>
      )}
      <Button look="plain" onClick={branching.again} disabled={branching.isSending}>
        Answer again
      </Button>
    </span>
  );
}

export function EditForm({ item, branching }: BranchButtonsProps) {
  const [text, setText] = useState(() => String(item.content));
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    branching.replace(text);
  };
  return (
    <form className="branch-edit" onSubmit={submit}>
      <textarea
        ref={focus}
        aria-label="Edited message"
        rows={3}
        dir="auto"
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      <div>
        <Button type="submit" look="primary" disabled={branching.isSending || text.trim() === ""}>
          Send the edit
        </Button>{" "}
        <Button onClick={branching.stop}>Keep it</Button>
      </div>
      {branching.error !== undefined && <ErrorBox error={branching.error} />}
    </form>
  );
}
