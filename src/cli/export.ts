/** A session as JSON lines up to its head: raw events, messages, or entries of a history. */
import { type Command, Option } from "commander";
import { systemClock } from "@session-ledger/base/clock";
import {
  HISTORY_FORMATS,
  HistoryExport,
  type HistoryFormat,
} from "@session-ledger/history/to-history";
import { oneLine } from "@session-ledger/runner/internal/lines";
import { headSeq, readRows } from "@session-ledger/runner/internal/session-reader";
import {
  isEvent,
  lastSeqOf,
  type LedgerRow,
  microsOf,
  rowJson,
  type StreamName,
} from "@session-ledger/runner/internal/rows";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell } from "./io.ts";
import { startProgress } from "./progress.ts";
import type { Finish } from "./serve.ts";
import { openTarget, type Target, type TargetFlags } from "./target.ts";

export function addExport(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("export")
    .summary("write the current rows of a session")
    .description("write the current rows of a session, one JSON object per line")
    .argument("<session>", "the session to export")
    .addOption(
      new Option(
        "--stream <name>",
        "events as they were before they were merged, as `push` takes them; or messages",
      )
        .choices(["events", "messages"])
        .default("events"),
    )
    .addOption(
      new Option(
        "--format <name>",
        "entries of a history: texts, answers with LangChain4j's events, or role and text alone",
      )
        .choices(HISTORY_FORMATS)
        .conflicts("stream"),
    )
    .option("-o, --output <path>", "a file, which exists only when it is complete; default: stdout")
    .option("--force", "replace an existing file");
  addConnectionOptions(command).action(async (sessionId: string, flags: ExportFlags) =>
    finish(await exportSession(sessionId, flags, io)),
  );
}

interface ExportFlags extends ConnectionFlags, TargetFlags {
  readonly stream: StreamName;
  readonly format?: HistoryFormat;
}

async function exportSession(sessionId: string, flags: ExportFlags, io: CliIo): Promise<ExitCode> {
  const target = await openTarget(flags, io);
  try {
    return await connected(io, flags, (connection) => run(connection, sessionId, flags, target));
  } catch (error) {
    // The signal ends the pause between attempts and the call in progress.
    if (io.signal.aborted) return EXIT.interrupted;
    throw error;
  } finally {
    await target.discard();
  }
}

/** A seq need not fit a number; its fraction of the whole does. */
const PROGRESS_STEPS = 10_000n;
const PROGRESS_FORMAT = "{bar} {percentage}% | {lines} lines | {eta_formatted} to go";

async function run(
  { client, retry, io }: Connection,
  sessionId: string,
  { stream, format }: ExportFlags,
  target: Target,
): Promise<ExitCode> {
  const startMs = systemClock.monotonicMs();
  const head = await headSeq(client, { stream, sessionId }, retry);
  const expand = stream === "events" && format === undefined;
  const request = { stream, sessionId, afterSeq: 0n, expand, untilSeq: head };
  const progress = startProgress(io.stderr, {
    format: PROGRESS_FORMAT,
    total: Number(PROGRESS_STEPS),
    hasBar: !target.isTerminal && head > 0n,
  });
  const printer = new Printer(target.output, io.signal);
  let lines = 0;
  try {
    const form = format === undefined ? rowLines : historyLines(format, sessionId);
    for await (const row of readRows(client, request, retry)) {
      for (const line of form.take(row)) {
        if (!(await printer.print(line))) return EXIT.done; // The reader has closed the pipe.
        lines += 1;
      }
      progress.update(Number((lastSeqOf(row) * PROGRESS_STEPS) / head), { lines });
      if (io.signal.aborted) break;
    }
    for (const line of io.signal.aborted ? [] : form.end()) {
      if (!(await printer.print(line))) return EXIT.done;
      lines += 1;
    }
  } catch (error) {
    throw target.failureOf(error);
  } finally {
    progress.stop();
  }
  if (io.signal.aborted) return EXIT.interrupted;
  await target.complete();
  const seconds = ((systemClock.monotonicMs() - startMs) / 1_000).toFixed(1);
  tell(
    io,
    `${lines} ${format === undefined ? stream : "entries"} in ${seconds} s, session ${sessionId} up to ${head}`,
  );
  return EXIT.done;
}

interface LineForm {
  take(row: LedgerRow): readonly string[];
  /** No more rows. */
  end(): readonly string[];
}

const rowLines: LineForm = {
  take: (row) => [isEvent(row) ? oneLine(row.payload) : rowJson(row)],
  end: () => [],
};

function historyLines(format: HistoryFormat, sessionId: string): LineForm {
  const history = new HistoryExport(format, { sessionId });
  return {
    take: ({ seq, eventType, payload, createdAt }) => {
      const createdAtMicros = microsOf(createdAt) ?? 0n; // Every service sends this field.
      return printed(history.take({ seq, eventType, payload, createdAtMicros }));
    },
    end: () => printed(history.end()),
  };
}

function printed(entries: readonly object[]): readonly string[] {
  return entries.map((entry) => JSON.stringify(entry));
}
