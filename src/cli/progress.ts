import { clearLine, cursorTo } from "node:readline";
import cliProgress from "cli-progress";
import type { Output } from "./io.ts";

export interface Progress {
  /** The position, in the unit of `total`, and the values of the format's placeholders. */
  update(done: number, counts: Readonly<Record<string, number>>): void;
  /** A line for a person that stays while the bar moves on below it. */
  note(line: string): void;
  stop(): void;
}

interface ProgressOptions {
  readonly format: string;
  readonly total: number;
  /** False: only the notes, also on a terminal. */
  readonly hasBar?: boolean;
}

/** A bar on a terminal, and elsewhere only the notes, because a log file cannot use a bar. */
export function startProgress(
  output: Output,
  { format, total, hasBar = true }: ProgressOptions,
): Progress {
  if (output.isTTY !== true || !hasBar) {
    return {
      update: () => undefined,
      note: (line) => output.write(`${line}\n`),
      stop: () => undefined,
    };
  }
  const bar = new cliProgress.SingleBar({
    stream: output,
    format,
    clearOnComplete: true, // The summary replaces the bar.
    forceRedraw: true, // Otherwise a note would erase the bar until its text changes.
    gracefulExit: false, // Otherwise the bar would take the signals away from the command.
  });
  bar.start(total, 0, { lines: 0, refused: 0 });
  return {
    update: (done, counts) => bar.update(done, counts),
    note: (line) => {
      clearLine(output, 0);
      cursorTo(output, 0);
      output.write(`${line}\n`);
    },
    stop: () => bar.stop(),
  };
}
