import type { CallMemory } from "../auth/caller-memory.ts";
import type { SseFrame } from "./sse-frames.ts";

/** A text is held by its source and, as bytes, by Node. */
const HELD_PER_CHAR = 3;

/**
 * Frames that clients have not taken yet, charged to their callers. Bytes that many streams share
 * are counted once: for the first stream that holds them, and after it for the next one.
 */
export class UnsentFrames {
  readonly #shared = new Map<Uint8Array, Set<CallMemory>>();

  /** The stream stands still with this frame. False: there is no room. */
  hold(frame: SseFrame, memory: CallMemory): boolean {
    const data = "comment" in frame ? frame.comment : (frame.data ?? "");
    if (typeof data === "string") return memory.answer(data.length * HELD_PER_CHAR);
    const holders = this.#shared.get(data) ?? new Set();
    this.#shared.set(data, holders);
    holders.add(memory);
    return holders.size > 1 || memory.answer(data.length);
  }

  /** The stream continues, or is gone. */
  taken(frame: SseFrame, memory: CallMemory): void {
    memory.answer(0);
    if ("comment" in frame || !(frame.data instanceof Uint8Array)) return;
    const { data } = frame;
    const holders = this.#shared.get(data);
    if (holders === undefined) return;
    const [payer] = holders;
    holders.delete(memory);
    const [next] = holders;
    if (next === undefined) this.#shared.delete(data);
    else if (payer === memory) next.takeOverAnswer(data.length);
  }
}
