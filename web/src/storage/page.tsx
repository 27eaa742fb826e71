/** What is stored, of all sessions or of the one in the address: rows, events and bytes by type. */
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { API, get } from "../api/client.ts";
import {
  added,
  savedOf,
  type Storage,
  type StoragePage as SumsPage,
  totalOf,
  type TypeSum,
} from "../model/storage-sums.ts";
import { sessionPath, setQuery, usePlace } from "../router.ts";
import { Badge } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { bytes, count } from "../ui/format.ts";
import { Link } from "../ui/link.tsx";
import { visible } from "../ui/text.ts";
import { percent, TypeTable } from "./type-table.tsx";
import { SessionTable } from "./session-table.tsx";
import "./storage.css";

const REFRESH_MS = 30_000;

export function StoragePage() {
  const { query } = usePlace();
  const session = query.get("session");
  return (
    <div className="storage">{session === null ? <All /> : <One key={session} id={session} />}</div>
  );
}

function All() {
  const { data, error, refetch } = useQuery({
    queryKey: ["storage"],
    queryFn: ({ signal }) => get<Storage>(`${API}/storage`, { signal }),
    refetchInterval: REFRESH_MS,
  });
  if (error !== null) return <ErrorBox error={error} retry={() => void refetch()} />;
  if (data === undefined) return <p className="storage-note">Loading …</p>;
  const isWhole = data.sampled >= 1;
  return (
    <>
      <header className="storage-head">
        <h1>Storage</h1>
        <SessionField />
      </header>
      {data.sessions === 0 ? (
        <Empty title="Nothing is stored yet." />
      ) : (
        <>
          <Totals>
            <Total name="Sessions">{count(data.sessions)}</Total>
            <Total name="Rows">{count(data.rows)}</Total>
            <Total name="Events">{count(data.raw_events)}</Total>
            <Total name="Messages">{count(data.messages)}</Total>
            <Total name="Bytes">{bytes(data.bytes)}</Total>
            <Total name="Saved by compression">
              {isWhole ? "" : "about "}
              {percent(savedOf(totalOf(data.types)))}
            </Total>
            {data.disk_bytes !== undefined && (
              <Total name="On disk, with indexes">{bytes(data.disk_bytes)}</Total>
            )}
          </Totals>
          <section aria-labelledby="storage-types">
            <div className="storage-section-head">
              <h2 id="storage-types">By type</h2>
              {!isWhole && (
                <Badge tone="neutral">estimated from {percent(data.sampled)} of the rows</Badge>
              )}
            </div>
            <TypeTable sums={data.types} isEstimate={!isWhole} />
          </section>
          <SessionTable />
        </>
      )}
    </>
  );
}

/** Shows a session by its id. */
function SessionField() {
  const [id, setId] = useState("");
  return (
    <form
      className="storage-field"
      onSubmit={(event) => {
        event.preventDefault();
        if (id.trim() !== "") setQuery({ session: id.trim() }, { replace: false });
      }}
    >
      <input
        aria-label="Id of a session"
        placeholder="Id of a session"
        value={id}
        onChange={(event) => setId(event.target.value)}
      />
      <Button type="submit">Show</Button>
    </form>
  );
}

function One({ id }: { readonly id: string }) {
  const { data, error, refetch } = useSessionSums(id);
  const { sums = [], isWhole = false } = data ?? {};
  const total = totalOf(sums);
  return (
    <>
      <header className="storage-head">
        <Link to="/storage">← All sessions</Link>
        <h1>
          Storage of{" "}
          <Link to={sessionPath(id)}>
            <bdi>{visible(id)}</bdi>
          </Link>
        </h1>
      </header>
      {error !== null && <ErrorBox error={error} retry={() => void refetch()} />}
      {error === null && isWhole && sums.length === 0 ? (
        <Empty title="This session has no rows." />
      ) : (
        error === null && (
          <>
            {isWhole && (
              <Totals>
                <Total name="Rows">{count(total.rows)}</Total>
                <Total name="Events and messages">{count(total.raw_events)}</Total>
                <Total name="Bytes">{bytes(total.bytes)}</Total>
                <Total name="Without compression">{bytes(total.raw_bytes)}</Total>
                <Total name="Saved by compression">{percent(savedOf(total))}</Total>
              </Totals>
            )}
            <section aria-labelledby="storage-types" aria-busy={!isWhole}>
              <div className="storage-section-head">
                <h2 id="storage-types">By type</h2>
                <output className="storage-note">
                  {isWhole ? "" : `Adding up: ${count(total.rows)} rows so far …`}
                </output>
              </div>
              <TypeTable sums={sums} isEstimate={false} />
            </section>
          </>
        )
      )}
    </>
  );
}

const STREAMS = ["events", "messages"] as const;

interface SessionSums {
  readonly sums: readonly TypeSum[];
  readonly isWhole: boolean;
}

/** The pages of both streams, added up as they come. */
function useSessionSums(id: string) {
  return useQuery({
    queryKey: ["storage", "session", id],
    queryFn: async ({ client, queryKey, signal }): Promise<SessionSums> => {
      const isFirst = client.getQueryData(queryKey) === undefined;
      let sums: readonly TypeSum[] = [];
      for await (const page of pagesOf(id, signal)) {
        sums = added(sums, page.items);
        // A later reading replaces the sums when it is whole.
        if (isFirst) client.setQueryData(queryKey, { sums, isWhole: false });
      }
      return { sums, isWhole: true };
    },
  });
}

async function* pagesOf(id: string, signal: AbortSignal): AsyncGenerator<SumsPage> {
  const path = `${API}${sessionPath(id)}/storage`;
  for (const stream of STREAMS) {
    let after = 0;
    for (let hasMore = true; hasMore; ) {
      const query = { stream, after_seq: after };
      const page = await get<SumsPage>(path, { query, signal });
      yield page;
      after = page.next_after_seq;
      hasMore = page.has_more;
    }
  }
}

function Totals({ children }: { readonly children: ReactNode }) {
  return <dl className="storage-totals">{children}</dl>;
}

function Total({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
