/** The tool calls of two runs: those of one name side by side, in their order. */
import { useMemo } from "react";
import { type ToolCall, type ToolPair, toolPairs } from "../model/compare.ts";
import { Badge } from "@session-ledger/react/components/ui/badge";
import { duration } from "@session-ledger/react/internal/ui/format";
import { JsonText } from "@session-ledger/react/components/ui/json-tree";
import { visible } from "@session-ledger/react/internal/ui/text";

export function Tools({
  left,
  right,
}: {
  readonly left: readonly ToolCall[];
  readonly right: readonly ToolCall[];
}) {
  const pairs = useMemo(() => toolPairs(left, right), [left, right]);
  return (
    <section className="tools" aria-labelledby="compare-tools">
      <h2 id="compare-tools">Tools</h2>
      {pairs.length === 0 && <p className="compare-note">No run called a tool.</p>}
      <ol>
        {pairs.map((pair) => (
          <li key={`${pair.left?.id} ${pair.right?.id}`}>
            <Pair pair={pair} />
          </li>
        ))}
      </ol>
    </section>
  );
}

function Pair({ pair }: { readonly pair: ToolPair }) {
  const { left, right } = pair;
  return (
    <details className="tools-pair">
      <summary>
        <code dir="auto">{visible(left?.name ?? right?.name ?? "")}</code>
        <Words pair={pair} />
        <span className="tools-times">
          {timeOf(left)} / {timeOf(right)}
        </span>
      </summary>
      <div className="compare-sides">
        <Call name="A" call={left} />
        <Call name="B" call={right} />
      </div>
    </details>
  );
}

function Words({ pair: { left, right, sameArgs, sameResult } }: { readonly pair: ToolPair }) {
  if (left === undefined) return <Badge tone="accent">only B</Badge>;
  if (right === undefined) return <Badge tone="accent">only A</Badge>;
  if (sameArgs && sameResult) return <span className="compare-note">the same</span>;
  const other = [...(sameArgs ? [] : ["arguments"]), ...(sameResult ? [] : ["result"])];
  return <Badge tone="warn">other {other.join(" and ")}</Badge>;
}

function timeOf(call: ToolCall | undefined): string {
  return call?.ms === undefined ? "–" : duration(call.ms);
}

function Call({ name, call }: { readonly name: string; readonly call: ToolCall | undefined }) {
  if (call === undefined) {
    return (
      <section aria-label={name} className="compare-note">
        no such call
      </section>
    );
  }
  return (
    <section aria-label={name}>
      <h3>Arguments</h3>
      <JsonText text={call.args} />
      <h3>Result {call.hasFailed && <Badge tone="bad">failed</Badge>}</h3>
      {call.result === undefined ? (
        <p className="compare-note">none in this run</p>
      ) : (
        <JsonText text={call.result} />
      )}
    </section>
  );
}
