/** What a person may do with a session, from the list and from its head: only what the token allows. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { useCaller } from "@session-ledger/react/internal/api/caller";
import { API, get, send } from "@session-ledger/react/internal/api/client";
import { SERVICE } from "../token.ts";
import { labelsIn, type SessionJson } from "../model/session-list.ts";
import { Button } from "@session-ledger/react/components/ui/button";
import { Dialog } from "@session-ledger/react/components/ui/dialog";
import { ErrorBox } from "@session-ledger/react/components/ui/error-box";
import { cut, visible } from "@session-ledger/react/internal/ui/text";
import { toast } from "../ui/toast.tsx";
import { useSending } from "@session-ledger/react/internal/session/use-sending";
import "./menu.css";

interface MenuProps {
  readonly session: { readonly id: string; readonly name: string };
  /** Called after a deletion. */
  readonly onDelete?: () => void;
}

const ACTIONS = ["session.update", "session.hold", "session.delete", "run.cancel"];
const TITLE_CHARS_MAX = 60;

export function SessionMenu({ session: { id, name }, onDelete }: MenuProps) {
  const [isOpen, setIsOpen] = useState(false);
  const actions = useCaller()?.actions ?? [];
  if (!ACTIONS.some((action) => actions.includes(action))) return null;
  const title = visible(cut(name === "" ? id : name, TITLE_CHARS_MAX));
  return (
    <>
      <Button
        look="plain"
        aria-label={`Actions of ${title}`}
        title="Rename, label, hold, delete"
        onClick={() => setIsOpen(true)}
      >
        ⋯
      </Button>
      {isOpen && (
        <Dialog title={title} onClose={() => setIsOpen(false)}>
          <Actions
            id={id}
            actions={actions}
            close={() => setIsOpen(false)}
            onDelete={onDelete ?? (() => undefined)}
          />
        </Dialog>
      )}
    </>
  );
}

interface ActionsProps {
  readonly id: string;
  readonly actions: readonly string[];
  readonly close: () => void;
  readonly onDelete: () => void;
}

/** The record is read when the menu is opened: the list has only a part of it. */
function Actions({ id, actions, close, onDelete }: ActionsProps) {
  const path = `${API}/sessions/${encodeURIComponent(id)}`;
  const queries = useQueryClient();
  const { data, error } = useQuery({
    queryKey: ["session", id],
    queryFn: async ({ signal }) => await get<SessionJson>(SERVICE, path, { signal }),
  });
  if (error !== null) return <ErrorBox error={error} />;
  if (data === undefined) return <p>Loading …</p>;
  const may = (action: string): boolean => actions.includes(action);
  const done = (words: string): void => {
    void queries.invalidateQueries({ queryKey: ["session", id] });
    toast(words);
    close();
  };
  const { openRunId } = data;
  return (
    <div className="menu">
      {may("session.update") && <Texts path={path} session={data} done={done} />}
      {may("run.cancel") && openRunId !== undefined && (
        <Action
          name="Cancel the run"
          run={() =>
            send(SERVICE, "POST", `${path}/runs/${encodeURIComponent(openRunId)}/cancel`, {
              body: {},
            })
          }
          done={() => done("The run is asked to end.")}
        />
      )}
      {may("session.hold") && <Hold path={path} hold={data.hold} done={done} />}
      {may("session.delete") && (
        <Action
          name="Delete the session"
          asks="Nobody can read it from then on."
          isDangerous
          run={() => send(SERVICE, "DELETE", path)}
          done={() => {
            done("The session is deleted.");
            onDelete();
          }}
        />
      )}
    </div>
  );
}

interface FormProps {
  readonly path: string;
  readonly done: (words: string) => void;
}

function Texts({ path, session, done }: FormProps & { readonly session: SessionJson }) {
  const [name, setName] = useState(session.name);
  const [labels, setLabels] = useState(() =>
    [...labelsIn(session.labels)].map((pair) => pair.join("=")).join("\n"),
  );
  const {
    send: save,
    isSending,
    error,
  } = useSending(() =>
    send(SERVICE, "PATCH", path, { body: changesOf(session, { name, labels }) }),
  );
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    save(undefined, () => done("Saved."));
  };
  return (
    <form onSubmit={submit} className="menu-texts">
      <label>
        <span>Name</span>
        <input
          value={name}
          dir="auto"
          maxLength={1_000}
          onChange={({ target }) => setName(target.value)}
        />
      </label>
      <label>
        <span>Labels, one key=value a line</span>
        <textarea
          rows={3}
          value={labels}
          dir="auto"
          onChange={({ target }) => setLabels(target.value)}
        />
      </label>
      <Button type="submit" look="primary" disabled={isSending}>
        Save
      </Button>
      {error !== undefined && <ErrorBox error={error} />}
    </form>
  );
}

/** Labels that are no texts stay as they are. */
function changesOf(
  session: SessionJson,
  { name, labels }: { readonly name: string; readonly labels: string },
): object {
  const lines = labels.split("\n").filter((line) => line.trim() !== "");
  const texts = Object.fromEntries(
    lines.map((line) => {
      const [key = "", ...value] = line.split("=");
      return [key.trim(), value.join("=").trim()];
    }),
  );
  const known = parsed(session.labels ?? "{}");
  const others = Object.entries(known).filter(([, value]) => typeof value !== "string");
  const all = JSON.stringify({ ...Object.fromEntries(others), ...texts });
  return {
    ...(name !== session.name && { name }),
    ...(all !== (session.labels ?? "{}") && { labels: all }),
  };
}

function parsed(text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

function Hold({ path, hold, done }: FormProps & { readonly hold: string | undefined }) {
  const [reason, setReason] = useState("");
  const isHeld = hold !== undefined;
  return (
    <Action
      name={isHeld ? "End the hold" : "Hold"}
      isDisabled={!isHeld && reason.trim() === ""}
      run={() =>
        isHeld
          ? send(SERVICE, "DELETE", `${path}/hold`)
          : send(SERVICE, "PUT", `${path}/hold`, { body: { reason: reason.trim() } })
      }
      done={() => done(isHeld ? "The hold has ended." : "The session is held.")}
    >
      {isHeld ? (
        <p dir="auto">Held: {visible(hold)}</p>
      ) : (
        <label>
          <span>Reason of a hold: nothing is erased</span>
          <input
            value={reason}
            dir="auto"
            maxLength={1_000}
            onChange={({ target }) => setReason(target.value)}
          />
        </label>
      )}
    </Action>
  );
}

interface ActionProps {
  readonly name: string;
  /** A second press confirms, below these words. */
  readonly asks?: string;
  readonly isDangerous?: boolean;
  readonly isDisabled?: boolean;
  readonly run: () => Promise<unknown>;
  readonly done: () => void;
  readonly children?: ReactNode;
}

function Action({ name, asks, isDangerous, isDisabled, run, done, children }: ActionProps) {
  const [isAsking, setIsAsking] = useState(false);
  const { send: start, isSending, error } = useSending(run);
  const press = (): void => {
    if (asks !== undefined && !isAsking) setIsAsking(true);
    else start(undefined, done);
  };
  return (
    <section className="menu-action">
      {children}
      {isAsking && <p role="status">{asks}</p>}
      <Button
        look={isDangerous === true ? "danger" : "normal"}
        disabled={isSending || isDisabled === true}
        onClick={press}
      >
        {isAsking ? `${name}: yes` : name}
      </Button>
      {error !== undefined && <ErrorBox error={error} />}
    </section>
  );
}
