/** The routes of the HTTP API, from the OpenAPI document of this service. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import { API, get } from "../api/client.ts";
import { ApiDocument, found, type Operation } from "../model/openapi.ts";
import { setQuery, usePlace } from "../router.ts";
import { Empty } from "../ui/empty.tsx";
import { ErrorBox } from "../ui/error-box.tsx";
import { useKeys } from "../ui/keyboard.ts";
import { Link } from "../ui/link.tsx";
import { Method, Shown } from "./operation.tsx";
import "./docs.css";

export function DocsPage() {
  const { query } = usePlace();
  const { data, error, refetch } = useQuery({
    queryKey: ["openapi"],
    queryFn: ({ signal }) => get<unknown>("/openapi.json", { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const document = useMemo(() => (data === undefined ? undefined : new ApiDocument(data)), [data]);
  if (error !== null) return <ErrorBox error={error} retry={() => void refetch()} />;
  if (document === undefined) return <p className="docs-note">Loading …</p>;
  const named = query.get("op");
  const operation = document.operations.find(({ id }) => id === named);
  return (
    <div className={operation === undefined ? "docs" : "docs docs-chosen"}>
      <Routes document={document} chosen={operation?.id} />
      <section className="docs-content" aria-label="Route" key={operation?.id}>
        {operation === undefined ? (
          <Empty title={named === null ? "Choose a route." : "There is no such route."}>
            <p>
              The same as a file: <a href="/openapi.json">/openapi.json</a>, OpenAPI 3.1, version{" "}
              {document.version}
            </p>
          </Empty>
        ) : (
          <Shown document={document} operation={operation} />
        )}
      </section>
    </div>
  );
}

function Routes({
  document,
  chosen,
}: {
  readonly document: ApiDocument;
  readonly chosen: string | undefined;
}) {
  const [words, setWords] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const groups = groupsOf(found(document.operations, words));
  const operations = groups.flatMap(([, group]) => group);
  const move = (step: number): void => {
    const at = operations.findIndex(({ id }) => id === chosen);
    const next = operations[at < 0 ? 0 : at + step];
    if (next !== undefined) setQuery({ op: next.id });
  };
  useKeys("API", [
    { keys: ["/"], does: "Search routes", run: () => field.current?.focus() },
    { keys: ["j"], does: "Next route", run: () => move(1) },
    { keys: ["k"], does: "Previous route", run: () => move(-1) },
  ]);
  return (
    <nav className="docs-routes" aria-label="Routes">
      <h1>HTTP API</h1>
      <input
        ref={field}
        type="search"
        aria-label="Search routes"
        placeholder="Search routes"
        value={words}
        onChange={(event) => setWords(event.target.value)}
      />
      {operations.length === 0 && <p className="docs-note">No route has these words.</p>}
      {groups.map(([tag, group]) => (
        <section key={tag} aria-label={tag}>
          <h2>{tag}</h2>
          <ul>
            {group.map((operation) => (
              <li key={operation.id}>
                <Link
                  to={`/docs?op=${encodeURIComponent(operation.id)}`}
                  className="docs-route"
                  aria-current={operation.id === chosen ? "page" : undefined}
                  {...(operation.id === chosen && { ref: intoView })}
                >
                  <Method method={operation.method} /> {operation.summary}
                </Link>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </nav>
  );
}

function intoView(element: HTMLElement | null): void {
  element?.scrollIntoView({ block: "nearest" });
}

/** The ledger's own routes first, then those for other clients. */
function groupsOf(operations: readonly Operation[]) {
  const own = operations.filter(({ path }) => path.startsWith(API));
  const others = operations.filter(({ path }) => !path.startsWith(API));
  return [...Map.groupBy([...own, ...others], ({ tag }) => tag)];
}
