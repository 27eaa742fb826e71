/** The session that this one comes from, its forks, and another fork at an event. */
import { useState } from "react";
import { SendKeys } from "../model/sending.ts";
import { navigate, sessionPath } from "../router.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { count } from "../ui/format.ts";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "../ui/text.ts";
import { useInSession } from "./in-session.ts";
import { forkSession } from "./talk-api.ts";
import { useSending } from "./use-sending.ts";

export interface Family {
  readonly parentSessionId?: string;
  /** 64-bit numbers are text. */
  readonly forkedAtSeq?: string;
  readonly forkedAtMessageSeq?: string;
  /** The newest ones. */
  readonly forks?: readonly string[];
}

const ID_CHARS = 40;

export function Parent({ family }: { readonly family: Family }) {
  const { parentSessionId: parent, forkedAtSeq: at, forkedAtMessageSeq: atMessage } = family;
  if (parent === undefined) return null;
  const isFork = at !== undefined || atMessage !== undefined;
  return (
    <Link
      to={`${sessionPath(parent)}${at === undefined ? "" : `?at=${at}`}`}
      title={visible(parent)}
    >
      {isFork ? "Forked from" : "Started by"} <bdi>{visible(cut(parent, ID_CHARS))}</bdi>
    </Link>
  );
}

export function Forks({ family: { forks = [] } }: { readonly family: Family }) {
  const [isOpen, setIsOpen] = useState(false);
  if (forks.length === 0) return null;
  return (
    <>
      <Button look="plain" onClick={() => setIsOpen(true)}>
        {forks.length === 1 ? "1 fork" : `${forks.length} forks`}
      </Button>
      {isOpen && (
        <Dialog title="Forks of this session" onClose={() => setIsOpen(false)}>
          <ul>
            {forks.map((id) => (
              <li key={id}>
                <Link to={sessionPath(id)} onClick={() => setIsOpen(false)}>
                  <bdi>{visible(id)}</bdi>
                </Link>
              </li>
            ))}
          </ul>
        </Dialog>
      )}
    </>
  );
}

/** Makes a session with the history up to an event, and goes to it. */
export function ForkHere({ seq }: { readonly seq: number }) {
  const { sessionId, rights } = useInSession();
  const { send, isSending, error } = useSending(forkSession);
  // A repeated click after a lost answer finds the fork of the first.
  const [keys] = useState(() => new SendKeys());
  if (!rights.mayFork) return null;
  const fork = (): void => {
    send({ sessionId, key: keys.keyOf(String(seq)), atSeq: seq }, (id) => {
      keys.stored();
      navigate(sessionPath(id));
    });
  };
  return (
    <>
      <Button
        look="plain"
        disabled={isSending}
        onClick={fork}
        title={`Make a session with the history up to event ${count(seq)}`}
      >
        Fork here
      </Button>
      {error !== undefined && <ErrorBox error={error} />}
    </>
  );
}
