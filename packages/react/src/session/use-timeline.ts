/**
 * The timeline of a log, which grows with it. Rows behind a gap, while the middle of a large session
 * is read, are a timeline of their own, so that the newest part shows at once.
 */
import type { SessionLog } from "../model/log.ts";
import type { Row } from "../model/source.ts";
import type { SceneParts } from "../model/scene.ts";
import { Timeline } from "../model/timeline.ts";
import { waitsOf } from "../model/waits.ts";
import { useLogVersion } from "./use-session-log.ts";

class Growing {
  readonly #log: SessionLog;
  #generation = -1;
  #head = new Timeline();
  #tail = new Timeline();
  #version = -1;
  #parts: SceneParts | undefined;

  constructor(log: SessionLog) {
    this.#log = log;
  }

  /** The same object until the log has another version. */
  at(version: number): SceneParts {
    if (version !== this.#version || this.#parts === undefined) this.#parts = this.#grown();
    this.#version = version;
    return this.#parts;
  }

  #grown(): SceneParts {
    const { generation, rows, joinedCount, messages, hasAllMessages } = this.#log;
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#head = new Timeline();
      this.#tail = new Timeline();
    }
    const isWhole = joinedCount === rows.length;
    feed(this.#head, rows, { from: 0, to: joinedCount });
    if (isWhole) this.#tail = new Timeline();
    else feed(this.#tail, rows, { from: joinedCount, to: rows.length });
    const [head, tail] = [this.#head, this.#tail];
    const bars = isWhole ? head.bars : [...head.bars, ...tail.bars];
    const marks = isWhole ? head.marks : [...head.marks, ...tail.marks];
    const spans = [head, tail].filter(({ lastSeq }) => lastSeq > 0).map(({ span }) => span);
    const span = {
      startMs: Math.min(...spans.map(({ startMs }) => startMs)),
      endMs: Math.max(...spans.map(({ endMs }) => endMs)),
    };
    const lastSeq = Math.max(head.lastSeq, tail.lastSeq);
    const known = spans.length === 0 ? { startMs: 0, endMs: 0 } : span;
    // What a message waited for is known when all runs and messages are.
    const isKnown = isWhole && hasAllMessages;
    const waits = isKnown ? waitsOf(bars, messages, { nowMs: Date.now() }) : [];
    const beginning = { bars: head.bars.length, endMs: head.span.endMs, lastSeq: head.lastSeq };
    const parts = { bars, marks, waits, span: known, lastSeq };
    return isWhole ? parts : { ...parts, beginning };
  }
}

/** Adds the rows that the timeline does not have. */
function feed(
  timeline: Timeline,
  rows: readonly Row[],
  { from, to }: { readonly from: number; readonly to: number },
): void {
  let at = to;
  while (at > from && (rows[at - 1]?.seq ?? 0) > timeline.lastSeq) at -= 1;
  for (; at < to; at += 1) {
    const row = rows[at];
    if (row !== undefined) timeline.add(row);
  }
}

const timelines = new WeakMap<SessionLog, Growing>();

export function useTimeline(log: SessionLog): SceneParts {
  const version = useLogVersion(log);
  const known = timelines.get(log) ?? new Growing(log);
  timelines.set(log, known);
  return known.at(version);
}
