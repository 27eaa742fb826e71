/**
 * The foot of the conversation: send a message as a person, see the messages that wait, cancel the
 * open run, answer the agent's questions. It shows only what the token allows.
 */
import { type FormEvent, useState } from "react";
import type { Item } from "../model/items.ts";
import type { Problem } from "../model/log.ts";
import type { Moment } from "../model/scrub.ts";
import { answeredIn, lastEndMs, openRunOf, wasAskedToEnd } from "../model/standing.ts";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { focus } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import { Composer } from "./composer.tsx";
import { useInSession } from "./in-session.ts";
import { Interrupts } from "./interrupts.tsx";
import { cancelRun, sendAnswers } from "./talk-api.ts";
import { useSending } from "./use-sending.ts";
import "./talk.css";

interface TalkProps {
  readonly moment: Moment;
  /** The page shows an earlier moment: a sent message appears at the end. */
  readonly isPast: boolean;
}

export function Talk({ moment, isPast }: TalkProps) {
  const { sessionId, rights, log } = useInSession();
  const answers = useSending(sendAnswers);
  const openRun = openRunOf(log.newestRows);
  const isCancelling = openRun !== undefined && wasAskedToEnd(log.messages, openRun);
  const answered = answeredIn(log.messages, lastEndMs(log.newestRows));
  // Without the messages nobody knows what was answered.
  const asked = isPast || !log.hasAllMessages ? [] : moment.interrupts;
  const open = asked.filter(({ id }) => !answered.has(String(id)));
  const waiting = isPast ? 0 : moment.items.filter(isWaiting).length;
  if (log.state === "gone") return <TalkProblem problem={log.problem} />;
  if (!rights.maySend && !(rights.mayCancel && openRun !== undefined)) return null;
  return (
    <section className="talk" aria-label="Talk">
      {rights.maySend && open.length > 0 && (
        <Interrupts
          interrupts={open}
          isSending={answers.isSending}
          send={(given) => answers.send({ sessionId, answers: given })}
        />
      )}
      {answers.error !== undefined && <ErrorBox error={answers.error} />}
      <div className="talk-standing">
        <span role="status">
          {[
            waiting === 0 ? "" : waiting === 1 ? "1 message waits" : `${waiting} messages wait`,
            asked.length > open.length ? "the answer waits for a run" : "",
            openRun === undefined ? "" : isCancelling ? "the run is asked to end" : "a run is open",
            isPast ? "this is an earlier moment; a message goes to the end" : "",
          ]
            .filter((words) => words !== "")
            .join(" · ")}
        </span>
        {rights.mayCancel && openRun !== undefined && log.hasAllMessages && !isCancelling && (
          <CancelRun key={openRun} sessionId={sessionId} runId={openRun} />
        )}
      </div>
      {rights.maySend && <Composer sessionId={sessionId} />}
    </section>
  );
}

/** Nothing can be sent to a session that was deleted, or that the token no longer opens. */
function TalkProblem({ problem }: { problem: Problem | undefined }) {
  const { restart } = useInSession();
  const error = new Error(problem?.message ?? "This session cannot be read.");
  if (problem?.reason !== "UNAUTHENTICATED") return <ErrorBox error={error} />;
  return <ErrorBox error={error} retry={restart} />;
}

function isWaiting(item: Item): boolean {
  return item.kind === "message" && item.isPending;
}

function CancelRun({ sessionId, runId }: { sessionId: string; runId: string }) {
  const [isAsking, setIsAsking] = useState(false);
  const [reason, setReason] = useState("");
  const { send, isSending, error } = useSending(cancelRun);
  if (!isAsking) {
    return (
      <Button onClick={() => setIsAsking(true)} title={`Run ${visible(runId)}`}>
        Cancel the run
      </Button>
    );
  }
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    send({ sessionId, runId, reason });
  };
  return (
    <form className="talk-cancel" onSubmit={submit}>
      <input
        ref={focus}
        aria-label="Reason"
        placeholder="Reason (optional)"
        value={reason}
        dir="auto"
        onChange={({ target }) => setReason(target.value)}
        onKeyDown={({ key }) => {
          if (key === "Escape") setIsAsking(false);
        }}
      />
      <Button type="submit" look="danger" disabled={isSending}>
        Cancel the run
      </Button>
      <Button onClick={() => setIsAsking(false)}>Keep it</Button>
      {error !== undefined && <ErrorBox error={error} />}
    </form>
  );
}
