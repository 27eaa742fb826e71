import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { PlayClock, type Speed, type TimedRow } from "../model/player.ts";

/** A page in the background draws no frames: when it comes back, the replay continues where it stopped. */
const FRAME_MS_MAX = 250;

export interface Player {
  readonly isPlaying: boolean;
  readonly speed: Speed;
  readonly setSpeed: (speed: Speed) => void;
  readonly toggle: () => void;
  readonly pause: () => void;
}

interface Played {
  readonly rows: readonly TimedRow[];
  readonly head: number;
  /** Where the replay begins; the number of an event. */
  readonly seq: number;
  readonly show: (seq: number) => void;
  /** The replay has come to the last event. */
  readonly onEnd: () => void;
}

export function usePlayer(played: Played): Player {
  const [isPlaying, setIsPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>(1);
  const newest = useRef(played);
  useLayoutEffect(() => {
    newest.current = played;
  });

  const toggle = useCallback(() => {
    const { seq, head, show, rows } = newest.current;
    setIsPlaying((was) => {
      if (!was && seq >= head) show(rows[0]?.seq ?? 1);
      return !was && head > 0;
    });
  }, []);

  useEffect(() => {
    if (!isPlaying) return undefined;
    let clock = new PlayClock(newest.current.rows);
    let known = newest.current.rows.length;
    let shown = newest.current.seq;
    let time = clock.timeOf(shown);
    let last = performance.now();
    let frame = requestAnimationFrame(function step(now) {
      const { rows, head, seq, show, onEnd } = newest.current;
      if (rows.length !== known) {
        clock = new PlayClock(rows);
        known = rows.length;
        time = clock.timeOf(shown);
      }
      // The reader has moved the cursor meanwhile: the replay continues at the cursor.
      if (seq !== shown) time = clock.timeOf(seq);
      time += Math.min(now - last, FRAME_MS_MAX) * speed;
      last = now;
      shown = Math.max(clock.seqAt(time), 1);
      if (shown !== seq) show(shown);
      if (shown >= head) {
        setIsPlaying(false);
        onEnd();
        return;
      }
      frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, speed]);

  const pause = useCallback(() => setIsPlaying(false), []);
  return { isPlaying, speed, setSpeed, toggle, pause };
}
