/** The bars of the timeline as a table: the same facts without a picture. */
import type { Bar } from "../model/bars.ts";
import type { Scene } from "../model/scene.ts";
import { clockText, count, duration } from "../ui/format.ts";
import { visible } from "../ui/text.ts";
import { type Column, VirtualTable } from "../ui/virtual-table.tsx";
import { KIND_NAMES, nameOf, STATE_NAMES } from "./described.ts";
import { ToolDetails } from "./tool-details.tsx";
import type { RunStatuses } from "./use-runs.ts";

interface TableProps {
  readonly scene: Scene;
  readonly statuses: RunStatuses;
  readonly selected: Bar | undefined;
  readonly select: (bar: Bar | undefined) => void;
}

export function TimelineTable({ scene, statuses, selected, select }: TableProps) {
  const { bars } = scene;
  const at = selected === undefined ? -1 : bars.indexOf(selected);
  const columns: readonly Column<Bar>[] = [
    { name: "What", width: "minmax(160px, 1fr)", cell: whatOf },
    {
      name: "Began",
      width: "104px",
      isNumber: true,
      abovePx: 420,
      cell: ({ startMs }) => clockText(startMs),
    },
    {
      name: "Took",
      width: "80px",
      isNumber: true,
      cell: ({ startMs, endMs }) => duration(endMs - startMs),
    },
    { name: "Waited for result", width: "112px", abovePx: 620, isNumber: true, cell: ranFor },
    {
      name: "Status",
      width: "96px",
      cell: ({ state, kind, fromSeq }) =>
        (kind === "run" ? statuses.get(fromSeq)?.status : undefined) ?? STATE_NAMES[state],
    },
    { name: "Tokens", width: "88px", abovePx: 700, isNumber: true, cell: tokensOf },
    { name: "Events", width: "120px", isNumber: true, cell: numbersOf },
  ];
  return (
    <VirtualTable
      label="Bars of the timeline"
      columns={columns}
      count={bars.length}
      rowAt={(index) => bars[index]}
      keyOf={(index) => index}
      selected={at}
      reveal={at}
      select={(index) => select(bars[index])}
      opened={selected?.kind === "tool" ? at : -1}
      details={
        selected?.kind === "tool" ? <ToolDetails key={selected.id} bar={selected} /> : undefined
      }
    />
  );
}

function tokensOf({ run }: Bar): string {
  return run?.tokens === undefined ? "" : count(run.tokens.input + run.tokens.output);
}

const INDENT_PX = 14;

function whatOf(bar: Bar) {
  return (
    <span style={{ paddingInlineStart: depthOf(bar) * INDENT_PX }}>
      <span className={`timeline-kind timeline-kind-${bar.kind}`}>{KIND_NAMES[bar.kind]}</span>{" "}
      {bar.kind !== "text" && bar.kind !== "reasoning" && <bdi>{visible(nameOf(bar))}</bdi>}
    </span>
  );
}

function depthOf({ parent }: Bar): number {
  return parent === undefined ? 0 : 1 + depthOf(parent);
}

function ranFor({ calledMs, resultMs }: Bar): string {
  if (calledMs === undefined || resultMs === undefined) return "";
  return duration(Math.max(0, resultMs - calledMs));
}

function numbersOf({ fromSeq, toSeq, state }: Bar): string {
  if (state === "open") return `${count(fromSeq)} …`;
  return fromSeq === toSeq ? count(fromSeq) : `${count(fromSeq)}–${count(toSeq)}`;
}
