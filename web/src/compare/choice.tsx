/** The run of one side, chosen from lists. */
import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { API, get } from "@session-ledger/react/internal/api/client";
import { SERVICE } from "../token.ts";
import { sessionPath } from "../router.ts";
import { duration, timeText } from "@session-ledger/react/internal/ui/format";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "@session-ledger/react/internal/ui/text";
import type { Side } from "./page.tsx";
import type { Run } from "./runs.ts";

export interface ChoiceProps {
  readonly name: "A" | "B";
  readonly sessionId: string;
  readonly side: Side;
  readonly choose: (firstSeq: string) => void;
  /** Absent: the session of the page. */
  readonly chooseSession?: (id: string) => void;
}

export function Choice({ name, sessionId, side, choose, chooseSession }: ChoiceProps) {
  const id = useId();
  const { runs, run } = side;
  return (
    <section className="compare-choice" aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>
        <span className="unseen">Run </span>
        {name}
      </h2>
      <div className="compare-fields">
        {chooseSession === undefined ? (
          <p className="compare-session">
            <Link to={sessionPath(sessionId)} dir="auto">
              {visible(sessionId)}
            </Link>
          </p>
        ) : (
          <SessionChoice name={name} sessionId={sessionId} choose={chooseSession} />
        )}
        <select
          aria-label={`Run ${name}`}
          value={run === undefined ? "" : String(run.first_seq)}
          onChange={(event) => choose(event.target.value)}
        >
          {run === undefined && (
            <option value="">{runs === undefined ? "Loading …" : "Choose a run"}</option>
          )}
          {runs?.map((one) => (
            <option key={one.first_seq} value={String(one.first_seq)}>
              {wordsOf(one)}
            </option>
          ))}
        </select>
        {run !== undefined && (
          <Link
            to={`${sessionPath(sessionId)}?at=${run.first_seq}`}
            aria-label={`Open run ${name} in its session`}
          >
            open
          </Link>
        )}
      </div>
    </section>
  );
}

const NAME_CHARS_MAX = 40;

function wordsOf({ run_id: runId, status, started_at: start, ended_at: end }: Run): string {
  const startedMs = Date.parse(start);
  const time = end === undefined ? "" : `, ${duration(Date.parse(end) - startedMs)}`;
  const name = visible(cut(runId, NAME_CHARS_MAX));
  return `${timeText(startedMs)} · ${status}${time} · ${name}`;
}

interface Listed {
  readonly items: readonly { readonly metadata: { readonly id: string }; readonly name: string }[];
}

/** The sessions with the newest activity; any other one is chosen by its id in the address. */
function SessionChoice({
  name,
  sessionId,
  choose,
}: {
  readonly name: string;
  readonly sessionId: string;
  readonly choose: (id: string) => void;
}) {
  const { data } = useQuery({
    queryKey: ["compare", "sessions"],
    queryFn: ({ signal }) =>
      get<Listed>(SERVICE, `${API}/sessions`, {
        query: { order_by: "activity", size: 200 },
        signal,
      }),
  });
  const listed = (data?.items ?? []).map(({ metadata, name: title }) => {
    return { id: metadata.id, title: title === "" ? metadata.id : title };
  });
  const isListed = listed.some(({ id }) => id === sessionId);
  const options = isListed ? listed : [{ id: sessionId, title: sessionId }, ...listed];
  return (
    <select
      aria-label={`Session of run ${name}`}
      value={sessionId}
      onChange={(event) => choose(event.target.value)}
    >
      {options.map(({ id, title }) => (
        <option key={id} value={id}>
          {visible(cut(title, NAME_CHARS_MAX))}
        </option>
      ))}
    </select>
  );
}
