import { followRows, readRows } from "../runner/read.ts";
import { rowJson, timeText } from "../runner/json.ts";
import { isEvent, lastSeqOf, type LedgerRow, type StreamName } from "../runner/rows.ts";
import { type ConnectionOptions, connected } from "./connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { UsageError } from "./explain.ts";
import type { CliIo } from "./io.ts";
import { Printer } from "./printer.ts";
import { visible } from "./visible.ts";

export const FORMATS = ["json", "text", "payload"] as const;
export type Format = (typeof FORMATS)[number];

export interface TailOptions extends ConnectionOptions {
  readonly sessionId: string;
  readonly stream: StreamName;
  readonly afterSeq: bigint;
  /** True: raw events instead of rows. */
  readonly expand: boolean;
  /** The number of rows to print. */
  readonly limit: number | undefined;
  readonly follow: boolean;
  readonly format: Format;
}

/** Prints the stored rows of a session, and with `follow` new ones. */
export async function tail(options: TailOptions, io: CliIo): Promise<ExitCode> {
  if (options.expand && options.stream !== "events")
    throw new UsageError("--expand is of events: messages are never merged");
  const printer = new Printer(io.stdout, io.signal);
  const print = PRINT[options.format];
  let left = options.limit ?? Number.POSITIVE_INFINITY;
  return connected(io, options, async ({ client, retry }) => {
    const rows = options.follow ? followRows : readRows;
    try {
      for await (const row of rows(client, options, retry)) {
        left -= 1;
        if (!(await printer.print(print(row))) || left <= 0 || io.signal.aborted) break;
      }
    } catch (error) {
      // The user has stopped the command, which is the normal end of a tail.
      if (!io.signal.aborted) throw error;
    }
    return EXIT.done;
  });
}

const PRINT: Record<Format, (row: LedgerRow) => string> = {
  json: rowJson,
  text: (row) => {
    const count = isEvent(row) && row.eventCount > 1 ? `-${lastSeqOf(row)}` : "";
    return `${row.seq}${count} ${timeText(row.createdAt)} ${row.eventType} ${visible(row.payload)}`;
  },
  // As stored, byte for byte: for programs.
  payload: (row) => row.payload,
};
