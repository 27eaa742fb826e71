/**
 * What happened when: runs, steps, calls, texts and thinking as bars, with what waited above them.
 * The canvas is for eyes; the same bars are a table, and the selected one is read out.
 */
import { memo, useMemo, useState } from "react";
import type { Bar } from "../model/bars.ts";
import {
  around,
  type By,
  type Hit,
  placeOfEvent,
  type Scene,
  sceneOf,
  type Window,
  wholeOf,
  zoomed,
} from "../model/scene.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { count, duration } from "../ui/format.ts";
import { useKeys } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import { useNow } from "../ui/time.tsx";
import { describedBar, describedMark, describedWait, type Described, spoken } from "./described.ts";
import { useInSession } from "./in-session.ts";
import { TimelineChart } from "./timeline-chart.tsx";
import { TimelineOverview } from "./timeline-overview.tsx";
import { TimelineTable } from "./timeline-table.tsx";
import type { Cursor } from "../model/scrub.ts";
import { type RunStatuses, useRuns } from "./use-runs.ts";
import { useTimeline } from "./use-timeline.ts";
import "./timeline.css";

const ZOOM = 1.5;
/** The times of a session that was pushed at once tell nothing. */
const SHORT_MS = 50;

export const Timeline = memo(function Timeline({ cursor }: { readonly cursor: Cursor }) {
  const { log, sessionId, moveTo } = useInSession();
  const parts = useTimeline(log);
  const nowMs = useNow();
  const statuses = useRuns(sessionId, parts);
  const [chosen, setBy] = useState<By>();
  const [folds, setFolds] = useState(true);
  const [isTable, setTable] = useState(false);
  const [view, setView] = useState<Window>();
  const [selected, setSelected] = useState<Bar>();
  const [hit, setHit] = useState<Hit>();
  const liveMs = log.isLive ? nowMs : parts.span.endMs;
  const { startMs, endMs } = parts.span;
  const by = chosen ?? (endMs - startMs < SHORT_MS ? "events" : "time");
  const scene = useMemo(
    () => sceneOf(parts, { by, folds, nowMs: liveMs }),
    [parts, by, folds, liveMs],
  );
  const window = view ?? wholeOf(scene);
  const cursorPlace =
    cursor === "live" ? undefined : placeOfEvent(scene, { seq: cursor, rows: log.rows });
  const zoom = (factor: number): void =>
    setView(zoomed(scene, window, { at: middleOf(window, cursorPlace), factor }));
  const fit = (): void => setView(undefined);
  // Another axis has other places.
  const showAll = (change: () => void): void => {
    change();
    fit();
  };
  const select = (bar: Bar | undefined): void => {
    setSelected(bar);
    setHit(undefined);
    if (bar !== undefined) moveTo(bar.fromSeq);
  };
  if (scene.bars.length === 0 && scene.marks.length === 0 && scene.waits.length === 0)
    return <NoTimeline isLoading={!log.isJoined} />;
  return (
    <section className="timeline" aria-label="Timeline">
      <Toolbar
        scene={scene}
        by={by}
        pick={(to) => showAll(() => setBy(to))}
        folds={folds}
        fold={() => showAll(() => setFolds(!folds))}
        isTable={isTable}
        setTable={setTable}
        zoom={zoom}
        fit={view === undefined ? undefined : fit}
      />
      {isTable ? (
        <TimelineTable scene={scene} statuses={statuses} selected={selected} select={select} />
      ) : (
        <>
          <TimelineOverview scene={scene} window={window} show={setView} />
          <TimelineChart
            scene={scene}
            window={window}
            cursor={cursorPlace}
            selected={selected}
            show={setView}
            select={select}
            reach={(bar) => setView(around(scene, scene.bars.indexOf(bar)))}
            hover={setHit}
          />
        </>
      )}
      <Facts described={describedOf(scene, { hit, selected, statuses, nowMs: liveMs })} />
      <Announcement bar={hit === undefined ? selected : undefined} nowMs={liveMs} />
    </section>
  );
});

interface ToolbarProps {
  readonly scene: Scene;
  readonly by: By;
  readonly pick: (by: By) => void;
  readonly folds: boolean;
  readonly fold: () => void;
  readonly isTable: boolean;
  readonly setTable: (isTable: boolean) => void;
  readonly zoom: (factor: number) => void;
  /** Undefined: all is shown. */
  readonly fit: (() => void) | undefined;
}

function Toolbar(props: ToolbarProps) {
  const { scene, by, pick, folds, fold, isTable, setTable, zoom, fit } = props;
  useKeys("Timeline", [
    { keys: ["+", "="], does: "Zoom in", run: () => zoom(1 / ZOOM) },
    { keys: ["-"], does: "Zoom out", run: () => zoom(ZOOM) },
    { keys: ["0"], does: "Show all of the session", run: () => fit?.() },
  ]);
  return (
    <div className="timeline-bar">
      <span role="group" aria-label="Axis" className="timeline-choice">
        <Button pressed={by === "time"} onClick={() => pick("time")}>
          Time
        </Button>
        <Button
          pressed={by === "events"}
          onClick={() => pick("events")}
          title="Each event has one width"
        >
          Events
        </Button>
      </span>
      {by === "time" && (
        <Button pressed={folds} onClick={fold} title="Draw long pauses between runs short">
          Fold pauses
        </Button>
      )}
      <span className="timeline-sum">{sumOf(scene)}</span>
      <Button pressed={isTable} onClick={() => setTable(!isTable)} title="The same as a table">
        Table
      </Button>
      {!isTable && (
        <span className="timeline-zoom">
          <Button aria-label="Zoom out" title="Zoom out (-)" onClick={() => zoom(ZOOM)}>
            −
          </Button>
          <Button aria-label="Zoom in" title="Zoom in (+)" onClick={() => zoom(1 / ZOOM)}>
            +
          </Button>
          <Button onClick={fit} disabled={fit === undefined} title="Show all (0)">
            Fit
          </Button>
        </span>
      )}
    </div>
  );
}

/** The place that a zoom by keys keeps: the cursor, if it is in the window. */
function middleOf({ from, to }: Window, cursor: number | undefined): number {
  const isShown = cursor !== undefined && cursor >= from && cursor <= to;
  return isShown ? cursor : (from + to) / 2;
}

function NoTimeline({ isLoading }: { readonly isLoading: boolean }) {
  return (
    <section className="timeline" aria-label="Timeline">
      <Empty title={isLoading ? "Reading the events" : "No events yet"} />
    </section>
  );
}

/** The chosen bar for a screen reader. */
function Announcement({ bar, nowMs }: { readonly bar: Bar | undefined; readonly nowMs: number }) {
  return (
    <div className="unseen" aria-live="polite">
      {bar !== undefined && visible(spoken(describedBar(bar, { nowMs })))}
    </div>
  );
}

interface Shown {
  readonly hit: Hit | undefined;
  readonly selected: Bar | undefined;
  readonly statuses: RunStatuses;
  readonly nowMs: number;
}

/** The item under the pointer, else the selected one. */
function describedOf(
  scene: Scene,
  { hit, selected, statuses, nowMs }: Shown,
): Described | undefined {
  const mark = hit?.kind === "mark" ? scene.marks[hit.at] : undefined;
  if (mark !== undefined) return describedMark(mark);
  const wait = hit?.kind === "wait" ? scene.waits[hit.at] : undefined;
  if (wait !== undefined) return describedWait(wait);
  const bar = (hit?.kind === "bar" ? scene.bars[hit.at] : undefined) ?? selected;
  if (bar === undefined) return undefined;
  const status = bar.kind === "run" ? statuses.get(bar.fromSeq) : undefined;
  return describedBar(bar, { nowMs, status });
}

function sumOf({ bars, span, by, lastSeq, beginning }: Scene): string {
  const runs = bars.filter(({ kind }) => kind === "run").length;
  const tools = bars.filter(({ kind }) => kind === "tool").length;
  const all = by === "events" ? `${count(lastSeq)} events` : duration(span.endMs - span.startMs);
  const rest = beginning === undefined ? [] : ["more are being read"];
  return [named(runs, "run"), ...(tools > 0 ? [named(tools, "call")] : []), all, ...rest].join(
    " · ",
  );
}

function named(number: number, name: string): string {
  return `${count(number)} ${name}${number === 1 ? "" : "s"}`;
}

/** One line, so that the chart does not move while the pointer does. */
function Facts({ described }: { readonly described: Described | undefined }) {
  return (
    <p className="timeline-facts" aria-hidden="true">
      {described === undefined ? (
        <span className="timeline-hint">
          Press a bar to go to it. Wheel zooms, drag moves, shift and drag selects.
        </span>
      ) : (
        <>
          <bdi className="timeline-title">{visible(described.title)}</bdi>
          {described.facts.map(([name, value]) => (
            <span key={name}>
              {name} <bdi>{visible(value)}</bdi>
            </span>
          ))}
        </>
      )}
    </p>
  );
}
