/** What agents ask people, over all sessions: each question with its tool call, answered in place. */
import { useQueryClient } from "@tanstack/react-query";
import { useCaller } from "@session-ledger/react/internal/api/caller";
import { parseObject } from "@session-ledger/agui/json";
import { sessionPath } from "../router.ts";
import { Interrupts } from "@session-ledger/react/components/session/interrupts";
import { sendAnswers } from "@session-ledger/react/internal/session/talk-api";
import { useSending } from "@session-ledger/react/internal/session/use-sending";
import { Button } from "@session-ledger/react/components/ui/button";
import { Empty } from "@session-ledger/react/components/ui/empty";
import { ErrorBox } from "@session-ledger/react/components/ui/error-box";
import { count } from "@session-ledger/react/internal/ui/format";
import { focus, useKeys } from "@session-ledger/react/internal/ui/keyboard";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "@session-ledger/react/internal/ui/text";
import { Time } from "@session-ledger/react/components/ui/time";
import { useTitle } from "../ui/title.ts";
import { type AskingSession, INBOX, useInbox } from "./waiting.ts";
import "./page.css";

const NAME_CHARS_MAX = 120;

export function InboxPage() {
  useTitle("Inbox");
  useMoves();
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInbox();
  const sessions = data?.pages.flatMap((page) => page.items) ?? [];
  const { total = 0, totalIsLowerBound = false } = data?.pages[0]?.metadata ?? {};
  return (
    <div className="inbox">
      <h1 className="inbox-title">
        {total === 0 ? "Inbox" : waitingWords(total, totalIsLowerBound)}
      </h1>
      {error !== null && <ErrorBox error={error} retry={() => void refetch()} />}
      {data === undefined && error === null && <p className="app-loading">Loading …</p>}
      {data !== undefined && sessions.length === 0 && (
        <Empty title="No agent waits for a person.">
          <p>A run that ends with a question or an approval shows here until it is answered.</p>
        </Empty>
      )}
      <ol className="inbox-list">
        {sessions.map((session) => (
          <li key={session.metadata.id}>
            <Asking session={session} />
          </li>
        ))}
      </ol>
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          More questions
        </Button>
      )}
    </div>
  );
}

function waitingWords(total: number, isLowerBound: boolean): string {
  if (total === 1 && !isLowerBound) return "1 session waits for you";
  return `${count(total)}${isLowerBound ? "+" : ""} sessions wait for you`;
}

function Asking({ session }: { readonly session: AskingSession }) {
  const { metadata, name, stateSince, questions } = session;
  const { id } = metadata;
  const queries = useQueryClient();
  const { send, isSending, error } = useSending(sendAnswers);
  const mayAnswer = useCaller()?.actions.includes("message.push.user") === true;
  const place = `${sessionPath(id)}${questions[0] === undefined ? "" : `?at=${questions[0].seq}`}`;
  return (
    <article className="inbox-session" tabIndex={-1} aria-label={visible(name === "" ? id : name)}>
      <header className="inbox-head">
        <Link to={place}>
          <bdi>{visible(cut(name === "" ? id : name, NAME_CHARS_MAX))}</bdi>
        </Link>
        {stateSince !== undefined && (
          <span className="inbox-since">
            asked <Time atMs={Date.parse(stateSince)} as="ago" />
          </span>
        )}
      </header>
      {questions.length === 0 && (
        <p>The question cannot be shown here: it is large, or its event was erased.</p>
      )}
      {questions.length > 0 && (
        <fieldset className="inbox-questions" disabled={!mayAnswer}>
          <Interrupts
            interrupts={questions.map(({ interrupt }) => parseObject(interrupt))}
            calls={questions.map(({ toolName, toolArguments }) => ({
              name: toolName,
              args: toolArguments,
            }))}
            isSending={isSending}
            send={(answers) =>
              send({ sessionId: id, answers }, () => {
                void queries.invalidateQueries({ queryKey: [INBOX] });
              })
            }
          />
        </fieldset>
      )}
      {error !== undefined && <ErrorBox error={error} />}
    </article>
  );
}

/** Keys that move from question to question. */
function useMoves(): void {
  useKeys("Inbox", [
    { keys: ["j"], does: "Next question", run: () => move(1) },
    { keys: ["k"], does: "Question before", run: () => move(-1) },
    { keys: ["a"], does: "Approve", run: () => press("Approve") },
    { keys: ["d"], does: "Deny", run: () => press("Deny") },
  ]);
}

function move(by: -1 | 1): void {
  const all = [...document.querySelectorAll<HTMLElement>(".inbox-session")];
  const at = all.findIndex((one) => one.contains(document.activeElement));
  focus(all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)] ?? null);
}

/** The first button of this name in the question with the focus. */
function press(name: string): void {
  const asking = document.activeElement?.closest(".inbox-session");
  const buttons = [...(asking?.querySelectorAll("button") ?? [])];
  buttons.find(({ textContent }) => textContent === name)?.click();
}
