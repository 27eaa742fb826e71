/** Prints the stored rows of a session, and with `--follow` new ones. */
import { type Command, Option } from "commander";
import { followRows, readRows } from "@session-ledger/runner/internal/session-reader";
import {
  isEvent,
  lastSeqOf,
  type LedgerRow,
  rowJson,
  type StreamName,
  timeText,
} from "@session-ledger/runner/internal/rows";
import {
  addSessionArgument,
  countArgument,
  requiredSession,
  seqArgument,
  type SessionFlag,
} from "./arguments.ts";
import { callsService, type Connection } from "./connection.ts";
import { type CliIo, Printer, unlessStopped, UsageError, visible } from "./io.ts";

export function addTail(program: Command, io: CliIo): void {
  const command = program.command("tail").description("print a session, one row per line");
  addSessionArgument(command, "the session to print")
    .option("-f, --follow", "continue with new rows, through restarts of the service")
    .addOption(
      new Option("--stream <name>", "the stream to print")
        .choices(["events", "messages"])
        .default("events"),
    )
    .addOption(
      new Option("--after <seq>", "only rows after this number")
        .argParser(seqArgument)
        .default(0n, "0"),
    )
    .option("--expand", "single events, as they were before they were merged")
    .option("-n, --limit <rows>", "end after this number of rows", countArgument())
    .addOption(
      new Option("--format <format>", "the form of a row").choices(FORMATS).default("json"),
    );
  callsService(command, io, tail);
}

const FORMATS = ["json", "text", "payload"] as const;

interface TailFlags extends SessionFlag {
  readonly follow?: boolean;
  readonly stream: StreamName;
  readonly after: bigint;
  readonly expand?: boolean;
  readonly limit?: number;
  readonly format: (typeof FORMATS)[number];
}

async function tail(
  { client, retry, io }: Connection,
  session: string | undefined,
  flags: TailFlags,
): Promise<void> {
  const sessionId = requiredSession(session, flags);
  const { stream, after: afterSeq, expand = false } = flags;
  if (expand && stream !== "events")
    throw new UsageError("--expand is only for events: messages are never merged");
  const printer = new Printer(io.stdout, io.signal);
  const print = PRINT[flags.format];
  let left = flags.limit ?? Number.POSITIVE_INFINITY;
  const rows = flags.follow === true ? followRows : readRows;
  try {
    for await (const row of rows(client, { sessionId, stream, afterSeq, expand }, retry)) {
      left -= 1;
      if (!(await printer.print(print(row))) || left <= 0 || io.signal.aborted) break;
    }
  } catch (error) {
    unlessStopped(io)(error);
  }
}

const PRINT: Record<TailFlags["format"], (row: LedgerRow) => string> = {
  json: rowJson,
  text: (row) => {
    const count = isEvent(row) && row.eventCount > 1 ? `-${lastSeqOf(row)}` : "";
    return `${row.seq}${count} ${timeText(row.createdAt)} ${row.eventType} ${visible(row.payload)}`;
  },
  // As stored, byte for byte: for programs.
  payload: (row) => row.payload,
};
