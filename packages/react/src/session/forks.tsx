/** The session that this one comes from, its forks, and another fork at an event. */
import { useState } from "react";
import { SendKeys } from "../model/sending.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { count } from "../ui/format.ts";
import { Link, type LinkTarget } from "../ui/link.tsx";
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
  const { links } = useInSession();
  if (parent === undefined) return null;
  const isFork = at !== undefined || atMessage !== undefined;
  const text = (
    <>
      {isFork ? "Forked from" : "Started by"} <bdi>{visible(cut(parent, ID_CHARS))}</bdi>
    </>
  );
  const to = links.session?.(parent, { at });
  if (to === undefined) return <span title={visible(parent)}>{text}</span>;
  return (
    <Link to={to} title={visible(parent)}>
      {text}
    </Link>
  );
}

export function Forks({ family: { forks = [] } }: { readonly family: Family }) {
  const { links } = useInSession();
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
                <Fork id={id} to={links.session?.(id)} close={() => setIsOpen(false)} />
              </li>
            ))}
          </ul>
        </Dialog>
      )}
    </>
  );
}

interface ForkProps {
  readonly id: string;
  readonly to: LinkTarget | undefined;
  readonly close: () => void;
}

function Fork({ id, to, close }: ForkProps) {
  if (to === undefined) return <bdi>{visible(id)}</bdi>;
  const open = (): void => {
    close();
    to.open();
  };
  return (
    <Link to={{ ...to, open }}>
      <bdi>{visible(id)}</bdi>
    </Link>
  );
}

/** Makes a session with the history up to an event, and goes to it. */
export function ForkHere({ seq }: { readonly seq: number }) {
  const { sessionId, rights, links } = useInSession();
  const toFork = links.session;
  const { send, isSending, error } = useSending(forkSession);
  // A repeated click after a lost answer finds the fork of the first.
  const [keys] = useState(() => new SendKeys());
  if (!rights.mayFork || toFork === undefined) return null;
  const fork = (): void => {
    send({ sessionId, key: keys.keyOf(String(seq)), atSeq: seq }, (id) => {
      keys.stored();
      toFork(id).open();
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
