/**
 * The waits of a session: user messages for the run that took them, and interrupts for the
 * run that went on after their answer.
 *
 *   message ├───waits───┤ run ├──┤ interrupt ├───waits───┤ run
 *
 * A claimed RUN_STARTED names the messages that its run takes; any other takes all messages before it.
 */
import type { Bar, Stretch } from "./bars.ts";

/** A message of the messages' stream. */
export interface WaitingMessage {
  readonly seq: number;
  readonly type: string;
  readonly atMs: number;
  readonly storedMs: number;
  /** When the person sent it, where another time than that of its row is known. */
  readonly sentMs: number | undefined;
}

export interface Wait extends Stretch {
  readonly kind: "message" | "interrupt";
  /** The number of the message, or of the event that asked. */
  readonly seq: number;
  /** Why the interrupts wait; empty for a message. */
  readonly reasons: readonly string[];
  /** The run that ended the wait; undefined: it lasts, and `endMs` is now. */
  readonly run: Bar | undefined;
}

export function waitsOf(
  bars: readonly Bar[],
  messages: readonly WaitingMessage[],
  { nowMs }: { readonly nowMs: number },
): readonly Wait[] {
  const runs = bars.filter(({ kind }) => kind === "run");
  return [...messageWaits(runs, messages, nowMs), ...interruptWaits(runs, nowMs)].toSorted(
    (a, b) => a.startMs - b.startMs,
  );
}

function messageWaits(
  runs: readonly Bar[],
  messages: readonly WaitingMessage[],
  nowMs: number,
): Wait[] {
  const isClaimed = runs.some(({ run }) => run?.takenSeq !== undefined);
  let at = 0;
  return messages
    .filter(({ type }) => type === "user")
    .map(({ seq, atMs, storedMs, sentMs }): Wait => {
      const isTooEarly = ({ run }: Bar): boolean =>
        isClaimed ? (run?.takenSeq ?? 0) < seq : (run?.storedMs ?? 0) < storedMs;
      // Messages and runs are in order, so the run of a message is not before that of the last one.
      let run = runs[at];
      while (run !== undefined && isTooEarly(run)) run = runs[++at];
      const startMs = sentMs ?? atMs;
      const endMs = Math.max(startMs, run?.startMs ?? nowMs);
      return { kind: "message", seq, startMs, endMs, reasons: [], run };
    });
}

function interruptWaits(runs: readonly Bar[], nowMs: number): Wait[] {
  return runs.flatMap((run, at): Wait[] => {
    const reasons = run.run?.interrupts ?? [];
    if (run.state !== "interrupted") return [];
    const next = runs[at + 1];
    const endMs = Math.max(run.endMs, next?.startMs ?? nowMs);
    return [{ kind: "interrupt", seq: run.toSeq, startMs: run.endMs, endMs, reasons, run: next }];
  });
}
