/** Sessions with what they take, those with the newest activity first, a page at a time. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { API, get } from "../api/client.ts";
import { sessionPath } from "../router.ts";
import { Button } from "../ui/button.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { bytes, count } from "../ui/format.ts";
import { Link } from "../ui/link.tsx";
import { cut, visible } from "../ui/text.ts";

interface Listed {
  readonly items: readonly Session[];
  readonly metadata: { readonly total: number };
}

interface Session {
  readonly metadata: { readonly id: string };
  readonly name: string;
  /** Numbers of 64 bits are texts. */
  readonly rows: string;
  readonly eventSeq: string;
  readonly messageSeq: string;
  readonly payloadBytes: string;
}

const SIZE = 25;
const NAME_CHARS_MAX = 80;

export function SessionTable() {
  const [page, setPage] = useState(1);
  const { data, error, refetch } = useQuery({
    queryKey: ["storage", "sessions", page],
    queryFn: ({ signal }) =>
      get<Listed>(`${API}/sessions`, { query: { order_by: "activity", page, size: SIZE }, signal }),
    placeholderData: (last) => last,
  });
  if (error !== null) return <ErrorBox error={error} retry={() => void refetch()} />;
  if (data === undefined) return null;
  const pages = Math.max(1, Math.ceil(data.metadata.total / SIZE));
  return (
    <section aria-labelledby="storage-sessions">
      <div className="storage-section-head">
        <h2 id="storage-sessions">By session</h2>
        <span className="storage-note">newest activity first</span>
        {pages > 1 && (
          <nav aria-label="Pages of sessions" className="storage-pages">
            <Button disabled={page === 1} onClick={() => setPage(page - 1)}>
              Previous
            </Button>
            <span>
              {count(page)} of {count(pages)}
            </span>
            <Button disabled={page >= pages} onClick={() => setPage(page + 1)}>
              Next
            </Button>
          </nav>
        )}
      </div>
      <div className="type-table">
        <table>
          <thead>
            <tr>
              <th scope="col">Session</th>
              <th scope="col">Rows</th>
              <th scope="col">Events</th>
              <th scope="col">Messages</th>
              <th scope="col">Bytes</th>
              <th scope="col">Sums</th>
            </tr>
          </thead>
          <tbody>
            {data.items.map((session) => (
              <Row key={session.metadata.id} session={session} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ session }: { readonly session: Session }) {
  const { id } = session.metadata;
  const title = visible(cut(session.name === "" ? id : session.name, NAME_CHARS_MAX));
  return (
    <tr>
      <td>
        <Link to={sessionPath(id)} title={id} dir="auto">
          {title}
        </Link>
      </td>
      <td>{count(Number(session.rows))}</td>
      <td>{count(Number(session.eventSeq))}</td>
      <td>{count(Number(session.messageSeq))}</td>
      <td>{bytes(Number(session.payloadBytes))}</td>
      <td>
        <Link
          to={`/storage?session=${encodeURIComponent(id)}`}
          aria-label={`Storage of ${title} by type`}
        >
          by type
        </Link>
      </td>
    </tr>
  );
}
