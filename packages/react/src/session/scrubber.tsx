/** The bar below the session: drag through its events, and play them again. */
import {
  type KeyboardEvent,
  type PointerEvent,
  type RefObject,
  useMemo,
  useRef,
  useState,
} from "react";
import type { SessionLog } from "../model/log.ts";
import type { Row } from "../model/source.ts";
import { type Mark, Marks, runBeside, thinned } from "../model/marks.ts";
import { SPEEDS } from "../model/player.ts";
import { Button } from "../ui/button.tsx";
import { useKeys } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import type { Cursor } from "../model/scrub.ts";
import { type Player, usePlayer } from "./use-player.ts";
import "./scrubber.css";

/** Marks that the bar has room for. */
const PARTS = 240;
const PAGE_PART = 0.05;

interface ScrubberProps {
  readonly log: SessionLog;
  readonly cursor: Cursor;
  readonly moveTo: (cursor: Cursor) => void;
}

export function Scrubber({ log, cursor, moveTo }: ScrubberProps) {
  const { head, rows } = log;
  const seq = Math.min(cursor === "live" ? head : cursor, head);
  const [known] = useState(() => new Marks());
  const marks = known.of(rows);
  const shown = useMemo(() => thinned(marks, { head, parts: PARTS }), [marks, head]);
  const player = usePlayer({ rows, head, seq, show: moveTo, onEnd: () => moveTo("live") });
  const row = rowAt(log, seq);
  const goTo = (to: number): void => moveTo(to >= head ? "live" : Math.max(to, 1));
  const toRun = (by: -1 | 1): void => {
    const start = runBeside(marks, { seq, step: by });
    if (start !== undefined) moveTo(start);
    else if (by === 1) moveTo("live");
  };
  const number = useRef<HTMLInputElement>(null);
  useKeys("Scrubber", [
    { keys: [" "], does: "Play or pause", run: player.toggle },
    { keys: ["["], does: "Run before", run: () => toRun(-1) },
    { keys: ["]"], does: "Run after", run: () => toRun(1) },
    { keys: ["g"], does: "Go to an event by number", run: () => number.current?.select() },
  ]);
  return (
    <section className="scrubber" aria-label="Scrubber">
      <Buttons player={player} toRun={toRun} isEmpty={head === 0} />
      <Bar
        seq={seq}
        head={head}
        text={valueText(row, { seq, head, isLoading: !log.isJoined })}
        marks={shown}
        goTo={goTo}
        onGrab={player.pause}
      />
      <div className="scrubber-place">
        <NumberInput
          inputRef={number}
          seq={seq}
          head={log.hasNewest ? head : undefined}
          goTo={goTo}
        />
        <span className="scrubber-type" title={row?.type}>
          {row === undefined ? (log.isJoined ? "no event" : "loading …") : visible(row.type)}
        </span>
        <Button
          pressed={cursor === "live"}
          onClick={() => moveTo("live")}
          title="Show the newest event, and follow (End)"
        >
          <span aria-hidden="true">●</span> Live
        </Button>
      </div>
    </section>
  );
}

interface ButtonsProps {
  readonly player: Player;
  readonly toRun: (by: -1 | 1) => void;
  readonly isEmpty: boolean;
}

function Buttons({ player, toRun, isEmpty }: ButtonsProps) {
  return (
    <div className="scrubber-buttons">
      <Button look="plain" onClick={() => toRun(-1)} aria-label="Run before" title="Run before ([)">
        <Icon path="M4 3v10M13 3 6 8l7 5z" />
      </Button>
      <Button
        look="plain"
        onClick={player.toggle}
        disabled={isEmpty}
        aria-label={player.isPlaying ? "Pause" : "Play"}
        title={player.isPlaying ? "Pause (space)" : "Play (space)"}
      >
        <Icon path={player.isPlaying ? "M5 3v10M11 3v10" : "M4 2.5 13 8l-9 5.5z"} />
      </Button>
      <Button look="plain" onClick={() => toRun(1)} aria-label="Run after" title="Run after (])">
        <Icon path="M12 3v10M3 3l7 5-7 5z" />
      </Button>
      <select
        aria-label="Speed"
        value={player.speed}
        onChange={({ target }) =>
          player.setSpeed(SPEEDS.find((speed) => String(speed) === target.value) ?? 1)
        }
      >
        {SPEEDS.map((speed) => (
          <option key={speed} value={speed}>
            ×{speed}
          </option>
        ))}
      </select>
    </div>
  );
}

interface BarProps {
  readonly seq: number;
  readonly head: number;
  readonly text: string;
  readonly marks: readonly Mark[];
  readonly goTo: (seq: number) => void;
  readonly onGrab: () => void;
}

function Bar({ seq, head, text, marks, goTo, onGrab }: BarProps) {
  const drag = useDrag({ head, goTo, onGrab });
  const press = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const to = placeOf(event.key, { seq, head });
    if (to === undefined) return;
    event.preventDefault();
    onGrab();
    goTo(to);
  };
  const part = (at: number): string => `${(100 * at) / Math.max(head, 1)}%`;
  return (
    <div
      className="scrubber-bar"
      role="slider"
      tabIndex={0}
      aria-label="Event shown"
      aria-valuemin={Math.min(1, head)}
      aria-valuemax={head}
      aria-valuenow={seq}
      aria-valuetext={text}
      title="Drag to an event. With shift, one pixel is one event."
      onKeyDown={press}
      {...drag}
    >
      <div className="scrubber-track">
        <div className="scrubber-past" style={{ width: part(seq) }} />
        {marks.map(({ seq: at, kind }) => (
          <i
            key={at}
            className={`scrubber-mark scrubber-mark-${kind}`}
            style={{ left: part(at) }}
          />
        ))}
      </div>
      <div className="scrubber-thumb" style={{ left: part(seq) }} />
    </div>
  );
}

/** Where a key of a slider leads; undefined for another key. */
function placeOf(
  key: string,
  { seq, head }: { readonly seq: number; readonly head: number },
): number | undefined {
  const page = Math.max(1, Math.round(head * PAGE_PART));
  const places: Readonly<Record<string, number>> = {
    ArrowLeft: seq - 1,
    ArrowDown: seq - 1,
    ArrowRight: seq + 1,
    ArrowUp: seq + 1,
    PageDown: seq - page,
    PageUp: seq + page,
    Home: 1,
    End: head,
  };
  return places[key];
}

type DragEvent = PointerEvent<HTMLElement>;

function useDrag({ head, goTo, onGrab }: Pick<BarProps, "head" | "goTo" | "onGrab">) {
  /** The pointer, and the event that it points to. */
  const pressed = useRef<{ readonly x: number; readonly seq: number }>(undefined);
  const pointAt = ({ currentTarget, clientX }: DragEvent): void => {
    const { left, width } = currentTarget.getBoundingClientRect();
    const part = Math.min(Math.max((clientX - left) / width, 0), 1);
    const at = Math.max(1, Math.round(part * head));
    pressed.current = { x: clientX, seq: at };
    goTo(at);
  };
  const release = (): void => {
    pressed.current = undefined;
  };
  return {
    onPointerDown: (event: DragEvent): void => {
      if (event.button !== 0 || head === 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      onGrab();
      pointAt(event);
    },
    onPointerMove: (event: DragEvent): void => {
      const from = pressed.current;
      if (from === undefined) return;
      // With shift, one pixel is one event, from where the pointer was.
      if (event.shiftKey) goTo(Math.max(1, Math.round(from.seq + event.clientX - from.x)));
      else pointAt(event);
    },
    onPointerUp: release,
    onPointerCancel: release,
  };
}

interface NumberInputProps {
  readonly inputRef: RefObject<HTMLInputElement | null>;
  readonly seq: number;
  /** Undefined: it is not known yet. */
  readonly head: number | undefined;
  readonly goTo: (seq: number) => void;
}

function NumberInput({ inputRef, seq, head, goTo }: NumberInputProps) {
  const [typed, setTyped] = useState<string>();
  const submit = (): void => {
    const asked = Number(typed);
    if (typed !== undefined && typed !== "" && Number.isSafeInteger(asked)) goTo(asked);
    setTyped(undefined);
  };
  return (
    <form
      className="scrubber-number"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
        inputRef.current?.blur();
      }}
    >
      <input
        ref={inputRef}
        inputMode="numeric"
        aria-label="Number of the event"
        title="Go to an event (g)"
        value={typed ?? (head === undefined ? "" : String(seq))}
        style={{ width: `calc(${Math.max(String(head ?? "").length, 3)}ch + 16px)` }}
        onChange={({ target }) => setTyped(target.value.replaceAll(/\D/g, ""))}
        onBlur={submit}
        onKeyDown={({ key }) => {
          if (key === "Escape") setTyped(undefined);
        }}
      />
      {head !== undefined && <span>of {head.toLocaleString("en")}</span>}
    </form>
  );
}

function Icon({ path }: { path: string }) {
  return (
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

/** Undefined also while the row of the event has not been read. */
function rowAt(log: SessionLog, seq: number): Row | undefined {
  const row = log.rows[log.indexOf(seq)];
  return row !== undefined && seq <= row.lastSeq ? row : undefined;
}

function valueText(
  row: Row | undefined,
  { seq, head, isLoading }: { seq: number; head: number; isLoading: boolean },
): string {
  if (row === undefined) return isLoading ? "Loading" : "No event";
  const time = new Date(row.atMs).toLocaleTimeString();
  const run = row.runId === "" ? "" : `, run ${row.runId}`;
  return `Event ${seq} of ${head}, ${row.type}${run}, ${time}`;
}
