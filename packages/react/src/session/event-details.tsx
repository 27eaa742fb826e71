/** An open row of the events: its JSON, and the events that it was merged from. */
import { useEffect, useState } from "react";
import type { SessionLog } from "../model/log.ts";
import type { Entry } from "../model/row-filter.ts";
import { Button } from "../ui/button.tsx";
import { bytes, clockText, count, duration } from "../ui/format.ts";
import { JsonText } from "../ui/json-tree.tsx";
import { cut, visible } from "../ui/text.ts";
import { CopyButton } from "./code-block.tsx";
import { eventPayload, eventsOf, previewOf } from "./event-text.ts";
import { ForkHere } from "./forks.tsx";
import { useInSession } from "./in-session.ts";

interface DetailsProps {
  readonly log: SessionLog;
  readonly entry: Entry;
  readonly isRaw: boolean;
}

export function EventDetails({ log, entry: { row, seq }, isRaw }: DetailsProps) {
  const payload = isRaw ? eventPayload(row, seq).payload : row.payload;
  const [isErased, setErased] = useState(false);
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    if (row.payload !== undefined) return;
    log.read(row).then(
      (text) => setErased(text === undefined),
      (error: unknown) => setProblem(error instanceof Error ? error.message : "It cannot be read."),
    );
  }, [log, row]);
  if (problem !== undefined) return <p className="events-details">{visible(problem)}</p>;
  if (isErased) return <p className="events-details">This row was erased meanwhile.</p>;
  if (payload === undefined) return <p className="events-details">Reading …</p>;
  const isMerged = !isRaw && row.count > 1;
  return (
    <div className="events-details">
      <div className="events-facts">
        <span>
          {isMerged
            ? `Events ${count(row.seq)} to ${count(row.lastSeq)} in one row`
            : `Event ${count(seq)}`}
        </span>
        <span>{bytes(row.bytes)}</span>
        {isMerged && row.endMs > row.atMs && <span>in {duration(row.endMs - row.atMs)}</span>}
        {row.storedMs - row.atMs >= 1_000 && (
          <span>stored {duration(row.storedMs - row.atMs)} later</span>
        )}
        <CopyButton text={payload} what="JSON" />
        {(!isRaw || seq === row.lastSeq) && <ForkHere seq={row.lastSeq} />}
      </div>
      <div className="events-json">
        <JsonText text={payload} />
      </div>
      {isMerged && <Fragments row={row} />}
    </div>
  );
}

const FRAGMENTS_SHOWN = 50;

function Fragments({ row }: { readonly row: Entry["row"] }) {
  const { moveTo } = useInSession();
  const [shown, setShown] = useState(FRAGMENTS_SHOWN);
  const events = eventsOf(row, { after: row.seq - 1, max: shown });
  if (row.fragments === undefined) {
    return (
      <p className="events-muted">
        The row has no list of its fragments: its producer had merged them already.
      </p>
    );
  }
  return (
    <table className="events-fragments">
      <caption>Fragments</caption>
      <thead>
        <tr>
          <th scope="col">Number</th>
          <th scope="col">Time</th>
          <th scope="col">Text</th>
        </tr>
      </thead>
      <tbody>
        {events.map(({ seq, payload, atMs }) => (
          <tr key={seq}>
            <td>
              <Button look="plain" onClick={() => moveTo(seq)} title={`Go to event ${seq}`}>
                {seq}
              </Button>
            </td>
            <td>{clockText(atMs)}</td>
            <td>
              <bdi>{visible(cut(JSON.stringify(previewOf(row.type, payload ?? "")), 200))}</bdi>
            </td>
          </tr>
        ))}
      </tbody>
      {row.count > shown && (
        <tfoot>
          <tr>
            <td colSpan={3}>
              <Button look="plain" onClick={() => setShown(shown + 10 * FRAGMENTS_SHOWN)}>
                {count(row.count - shown)} more
              </Button>
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}
