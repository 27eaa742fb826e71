/** Sums by type as a table, with a bar of the bytes with and without compression. */
import { Fragment, useState } from "react";
import { type Column, savedOf, sortedBy, totalOf, type TypeSum } from "../model/storage-sums.ts";
import { bytes, count } from "../ui/format.ts";
import { visible } from "../ui/text.ts";

const COLUMNS: readonly { readonly id: Column; readonly title: string }[] = [
  { id: "event_type", title: "Type" },
  { id: "rows", title: "Rows" },
  { id: "raw_events", title: "Events" },
  { id: "bytes", title: "Bytes" },
  { id: "raw_bytes", title: "Without compression" },
  { id: "saved", title: "Saved" },
];

export function TypeTable({
  sums,
  isEstimate,
}: {
  readonly sums: readonly TypeSum[];
  readonly isEstimate: boolean;
}) {
  const [order, setOrder] = useState<{ readonly by: Column; readonly isReverse: boolean }>({
    by: "raw_bytes",
    isReverse: false,
  });
  const total = totalOf(sums);
  const rawMax = Math.max(1, ...sums.map((sum) => Math.max(sum.raw_bytes, sum.bytes)));
  const direction = (order.by === "event_type") === order.isReverse ? "descending" : "ascending";
  return (
    <div className="type-table">
      <table>
        <thead>
          <tr>
            {COLUMNS.map(({ id, title }) => (
              <th key={id} scope="col" aria-sort={order.by === id ? direction : undefined}>
                <button
                  type="button"
                  onClick={() =>
                    setOrder({ by: id, isReverse: order.by === id && !order.isReverse })
                  }
                >
                  {title}
                  <span aria-hidden="true">
                    {order.by === id && (direction === "descending" ? " ↓" : " ↑")}
                  </span>
                </button>
              </th>
            ))}
            <th scope="col" className="type-table-bars">
              <span className="unseen">Bar</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {sortedBy(sums, order.by, order.isReverse).map((sum) => (
            <Row key={`${sum.stream} ${sum.event_type ?? ""}`} sum={sum} rawMax={rawMax} />
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{isEstimate ? "All, estimated" : "All"}</th>
            <td>{count(total.rows)}</td>
            <td>{count(total.raw_events)}</td>
            <td>{bytes(total.bytes)}</td>
            <td>{bytes(total.raw_bytes)}</td>
            <td>{percent(savedOf(total))}</td>
            <td className="type-table-bars">
              <span className="type-table-key type-table-stored" /> stored{" "}
              <span className="type-table-key type-table-raw" /> without compression
            </td>
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

function Row({ sum, rawMax }: { readonly sum: TypeSum; readonly rawMax: number }) {
  return (
    <tr>
      <th scope="row">
        <TypeName name={sum.event_type ?? "other types"} />
        {sum.stream === "messages" && <span className="type-table-stream">message</span>}
      </th>
      <td>{count(sum.rows)}</td>
      <td>{count(sum.raw_events)}</td>
      <td>{bytes(sum.bytes)}</td>
      <td>{bytes(sum.raw_bytes)}</td>
      <td>
        {sum.raw_bytes === sum.bytes ? (
          <span className="type-table-nothing">0 %</span>
        ) : (
          percent(savedOf(sum))
        )}
      </td>
      <td className="type-table-bars" aria-hidden="true">
        <Bar name="raw" share={sum.raw_bytes / rawMax} />
        <Bar name="stored" share={sum.bytes / rawMax} />
      </td>
    </tr>
  );
}

/** A narrow screen breaks it behind an underscore. */
function TypeName({ name }: { readonly name: string }) {
  const parts = visible(name).split(/(?<=_)/);
  return (
    <bdi>
      {parts.map((part, at) => (
        // oxlint-disable-next-line react/no-array-index-key -- The parts of a name never move.
        <Fragment key={at}>
          {at > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </bdi>
  );
}

function Bar({ name, share }: { readonly name: "raw" | "stored"; readonly share: number }) {
  return (
    <span
      className={`type-table-bar type-table-${name}`}
      style={{ width: `${(100 * share).toFixed(2)}%` }}
    />
  );
}

/** 0.634 is "63 %"; small shares keep a digit. */
export function percent(share: number): string {
  const value = 100 * share;
  const text =
    Math.abs(value) < 10 && value !== 0 ? value.toFixed(1) : Math.round(value).toString();
  return `${text.replace("-", "\u2212")} %`;
}
