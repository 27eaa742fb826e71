/** The figures of two runs, and how the second one differs. */
import type { ReactNode } from "react";
import type { RunFacts } from "../model/compare.ts";
import { Badge, type Tone } from "@session-ledger/react/components/ui/badge";
import { bytes, count, duration } from "@session-ledger/react/internal/ui/format";
import { visible } from "@session-ledger/react/internal/ui/text";

interface Figure {
  readonly name: string;
  readonly of: (facts: RunFacts) => number | undefined;
  readonly shown: (value: number) => string;
  /** Shown only where a run has it. */
  readonly isOptional?: boolean;
}

const FIGURES: readonly Figure[] = [
  { name: "Time", of: ({ ms }) => ms, shown: duration },
  { name: "Until the first text", of: ({ firstTextMs }) => firstTextMs, shown: duration },
  { name: "Time in tools", of: ({ toolsMs }) => toolsMs, shown: duration },
  { name: "Tool calls", of: ({ tools }) => tools.length, shown: count },
  { name: "Tokens in", of: ({ tokens }) => tokens.input, shown: count, isOptional: true },
  {
    name: "of these from a cache",
    of: ({ tokens }) => tokens.cachedInput,
    shown: count,
    isOptional: true,
  },
  { name: "Tokens out", of: ({ tokens }) => tokens.output, shown: count, isOptional: true },
  {
    name: "of these for thinking",
    of: ({ tokens }) => tokens.reasoning,
    shown: count,
    isOptional: true,
  },
  { name: "Tokens in all", of: ({ tokens }) => tokens.total, shown: count, isOptional: true },
  { name: "Characters of text", of: ({ text }) => text.length, shown: count },
  { name: "Events", of: ({ events }) => events, shown: count },
  { name: "Stored rows", of: ({ rows }) => rows, shown: count },
  { name: "Stored payloads", of: (facts) => facts.bytes, shown: bytes },
];

const TONES: Record<RunFacts["status"], Tone> = {
  running: "accent",
  finished: "good",
  interrupted: "warn",
  cancelled: "warn",
  error: "bad",
};

export function Summary({ left, right }: { readonly left: RunFacts; readonly right: RunFacts }) {
  const figures = FIGURES.filter(
    ({ of, isOptional }) => isOptional !== true || (of(left) ?? of(right)) !== undefined,
  );
  return (
    <section aria-labelledby="compare-figures">
      <h2 id="compare-figures">Figures</h2>
      <table className="summary">
        <thead>
          <tr>
            <th scope="col">
              <span className="unseen">Figure</span>
            </th>
            <th scope="col">A</th>
            <th scope="col">B</th>
            <th scope="col">B is</th>
          </tr>
        </thead>
        <tbody>
          <Words name="Status" left={statusOf(left)} right={statusOf(right)} />
          <Words name="Model" left={modelsOf(left)} right={modelsOf(right)} />
          {(left.tokens.total ?? right.tokens.total) === undefined && (
            <Words name="Tokens" left={UNREPORTED} right={UNREPORTED} />
          )}
          {figures.map((figure) => (
            <Row key={figure.name} figure={figure} left={left} right={right} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Words({
  name,
  left,
  right,
}: {
  readonly name: string;
  readonly left: ReactNode;
  readonly right: ReactNode;
}) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{left}</td>
      <td>{right}</td>
      <td aria-label="no difference of numbers" />
    </tr>
  );
}

function statusOf({ status, error }: RunFacts): ReactNode {
  return (
    <>
      <Badge tone={TONES[status]}>{status}</Badge>
      {error !== undefined && (
        <span className="summary-error" dir="auto">
          {visible(error)}
        </span>
      )}
    </>
  );
}

const UNREPORTED = <span className="compare-note">not reported</span>;

function modelsOf({ tokens }: RunFacts): ReactNode {
  if (tokens.models.length === 0) return UNREPORTED;
  return <bdi>{visible(tokens.models.join(", "))}</bdi>;
}

function Row({
  figure: { name, of, shown },
  left,
  right,
}: {
  readonly figure: Figure;
  readonly left: RunFacts;
  readonly right: RunFacts;
}) {
  const [a, b] = [of(left), of(right)];
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{a === undefined ? "–" : shown(a)}</td>
      <td>{b === undefined ? "–" : shown(b)}</td>
      <td>{a !== undefined && b !== undefined && <Difference a={a} b={b} shown={shown} />}</td>
    </tr>
  );
}

function Difference({
  a,
  b,
  shown,
}: {
  readonly a: number;
  readonly b: number;
  readonly shown: Figure["shown"];
}) {
  if (a === b) return <span className="compare-note">the same</span>;
  const change = shown(Math.abs(b - a));
  const share = a === 0 ? "" : ` (${Math.round((100 * b) / a)} %)`;
  return (
    <>
      {b > a ? "+" : "\u2212"}
      {change}
      <span className="compare-note">{share}</span>
    </>
  );
}
