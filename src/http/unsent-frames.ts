/**
 * Large frames that clients have not taken yet, of all streams together. One that is sent to many is
 * counted once. But a session that goes on has a snapshot of its own for each client that comes, and
 * clients that come and do not read would hold one each; so above the bound those that have stood still
 * for the longest are cut off. Who reads on after all connects again, and gets what is newest by then.
 */
import type { SseFrame } from "./sse-frames.ts";

export interface UnsentLimits {
  readonly bytesMax: number;
  /** A frame of no more is not counted. */
  readonly freeBytesMax: number;
}

/** Sixteen of the largest snapshots with all that is in them of two bytes a character. */
const UNSENT_LIMITS: UnsentLimits = {
  bytesMax: 256 * 1024 * 1024,
  freeBytesMax: 64 * 1024,
};

interface Held {
  readonly bytes: number;
  /** Of each stream that holds it. */
  readonly cuts: Set<() => void>;
  isCut: boolean;
}

export class UnsentFrames {
  readonly #limits: UnsentLimits;
  /** By what is held; the one that was first held the longest ago first. */
  readonly #held = new Map<unknown, Held>();
  #bytes = 0;

  constructor(limits = UNSENT_LIMITS) {
    this.#limits = limits;
  }

  /** Counted once each. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A stream stands still with it; returns what to call when it goes on or is gone. */
  hold(frame: SseFrame, cut: () => void): () => void {
    const data = "comment" in frame ? frame.comment : (frame.data ?? "");
    if (data.length <= this.#limits.freeBytesMax) return () => undefined;
    const isOwn = typeof data === "string";
    const key = isOwn ? frame : data;
    const held = this.#held.get(key) ?? this.#added(key, isOwn ? 2 * data.length : data.length);
    held.cuts.add(cut);
    this.#makeRoom();
    return () => {
      held.cuts.delete(cut);
      if (held.cuts.size > 0 || !this.#held.delete(key)) return;
      this.#bytes -= held.bytes;
    };
  }

  #added(key: unknown, bytes: number): Held {
    const held: Held = { bytes, cuts: new Set(), isCut: false };
    this.#held.set(key, held);
    this.#bytes += bytes;
    return held;
  }

  /** What is cut off is let go of when its connection has closed. */
  #makeRoom(): void {
    let over = this.#bytes - this.#limits.bytesMax;
    for (const held of this.#held.values()) {
      if (over <= 0) return;
      over -= held.bytes;
      if (held.isCut) continue;
      held.isCut = true;
      for (const cut of held.cuts) cut();
    }
  }
}
