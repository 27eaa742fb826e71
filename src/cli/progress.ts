import { clearLine, cursorTo } from "node:readline";
import cliProgress from "cli-progress";
import type { Output } from "./io.ts";

export interface Progress {
  update(state: { readonly bytes: number; readonly lines: number; readonly refused: number }): void;
  /** A line for a person that stays while the bar moves on below it. */
  note(line: string): void;
  stop(): void;
}

/** A bar on a terminal, and elsewhere only the notes, because a log file cannot use a bar. */
export function startProgress(
  output: Output,
  { bytesTotal }: { readonly bytesTotal: number | undefined },
): Progress {
  if (output.isTTY !== true) {
    return {
      update: () => undefined,
      note: (line) => output.write(`${line}\n`),
      stop: () => undefined,
    };
  }
  const bar = barOn(output, bytesTotal === undefined ? PIPE_FORMAT : FILE_FORMAT);
  bar.start(bytesTotal ?? 0, 0, { lines: 0, refused: 0 });
  return {
    update: ({ bytes, lines, refused }) => bar.update(bytes, { lines, refused }),
    note: (line) => {
      clearLine(output, 0);
      cursorTo(output, 0);
      output.write(`${line}\n`);
    },
    stop: () => bar.stop(),
  };
}

export interface ExportProgress {
  update(state: { readonly lines: number; readonly seq: bigint }): void;
  stop(): void;
}

/** For a read up to `head`; without an output, or without a terminal, nothing is shown. */
export function startExportProgress(output: Output | undefined, head: bigint): ExportProgress {
  if (output?.isTTY !== true || head === 0n) {
    return { update: () => undefined, stop: () => undefined };
  }
  const bar = barOn(output, EXPORT_FORMAT);
  bar.start(PROGRESS_STEPS, 0, { lines: 0 });
  return {
    update: ({ lines, seq }) =>
      bar.update(Number((seq * BigInt(PROGRESS_STEPS)) / head), { lines }),
    stop: () => bar.stop(),
  };
}

function barOn(output: Output, format: string): cliProgress.SingleBar {
  return new cliProgress.SingleBar({
    stream: output,
    format,
    clearOnComplete: true, // The summary replaces the bar.
    forceRedraw: true, // Otherwise a note would erase the bar until its text changes.
    gracefulExit: false, // Otherwise the bar would take the signals away from the command.
  });
}

/** A seq need not fit a number; its fraction of the whole does. */
const PROGRESS_STEPS = 10_000;
const EXPORT_FORMAT = "{bar} {percentage}% | {lines} lines | {eta_formatted} to go";
const FILE_FORMAT =
  "{bar} {percentage}% | {lines} lines | {refused} refused | {eta_formatted} to go";
/** The length of a pipe's input is unknown, so the bar has no end. */
const PIPE_FORMAT = "{lines} lines | {refused} refused | {duration_formatted}";
