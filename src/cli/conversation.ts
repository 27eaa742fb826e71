/** Commands that show the conversation of a session: its transcript, and its runs. */
import { toJsonString } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import {
  type Run,
  RunSchema,
  RunStatus,
  RunStatusSchema,
  TranscriptSchema,
} from "@session-ledger/proto/ambient/v1/conversation_pb";
import { objectsIn, parseJson } from "@session-ledger/agui/json";
import { transcriptMarkdown, transcriptText } from "@session-ledger/agui/transcript/readable";
import { ledger } from "@session-ledger/runner/internal/client";
import { countArgument, seqArgument } from "./arguments.ts";
import { seconds } from "./columns.ts";
import { allPages, callsService, type Connection } from "./connection.ts";
import { type CliIo, printLine, visible } from "./io.ts";
import { addOutputOptions, type Column, type OutputFlags, printRecords } from "./table.ts";

const FORMS = ["json", "text", "markdown"] as const;

interface TranscriptFlags {
  readonly output?: (typeof FORMS)[number];
  readonly json?: boolean;
  readonly upTo: bigint;
}

export function addTranscript(program: Command, io: CliIo): void {
  const command = program
    .command("transcript")
    .summary("show the conversation of a session")
    .description("show the conversation of a session, as an AG-UI client shows it")
    .argument("<session>", "the session to show")
    .addOption(
      new Option("-o, --output <form>", "default: text on a terminal, json elsewhere").choices(
        FORMS,
      ),
    )
    .addOption(new Option("--json", "short for --output json").conflicts("output"))
    .addOption(
      new Option("--up-to <seq>", "as it was at this event")
        .argParser(seqArgument)
        .default(0n, "0"),
    );
  callsService(command, io, transcript);
}

async function transcript(
  { client, retry, io }: Connection,
  sessionId: string,
  { upTo: upToSeq, ...flags }: TranscriptFlags,
): Promise<void> {
  const usual = io.stdout.isTTY === true ? "text" : "json";
  const form = flags.json === true ? "json" : (flags.output ?? usual);
  const read = await client.call(ledger.getTranscript, { sessionId, upToSeq }, retry);
  if (form === "json") return printLine(io, toJsonString(TranscriptSchema, read));
  const messages = objectsIn(parseJson(read.messages));
  const text = form === "text" ? transcriptText(messages) : transcriptMarkdown(messages);
  // Without other control characters than tabs and line breaks.
  if (text !== "") await printLine(io, text.trimEnd().replace(/[^\t\n]+/g, visible));
}

export function addRuns(program: Command, io: CliIo): void {
  const command = program
    .command("runs")
    .description("list the runs of a session, in order")
    .argument("<session>", "the session of the runs")
    .option("-n, --limit <runs>", "end after this number of runs", countArgument());
  callsService(addOutputOptions(command), io, runs);
}

async function runs(connection: Connection, sessionId: string, flags: OutputFlags): Promise<void> {
  const forms = { json: (run: Run) => toJsonString(RunSchema, run), columns: RUN_COLUMNS };
  await printRecords(runsOf(connection, sessionId), forms, { flags, io: connection.io });
}

/** All runs of a session, in order. */
export function runsOf({ client, retry }: Connection, sessionId: string): AsyncGenerator<Run> {
  return allPages(
    (pageToken) => client.call(ledger.listRuns, { sessionId, pageToken }, retry),
    (page) => page.runs,
  );
}

const STATUS_STYLES = new Map<RunStatus, "green" | "yellow" | "red">([
  [RunStatus.RUNNING, "green"],
  [RunStatus.INTERRUPTED, "yellow"],
  [RunStatus.STALLED, "yellow"],
  [RunStatus.ERROR, "red"],
]);

const RUN_COLUMNS: readonly Column<Run>[] = [
  { heading: "STARTED", width: 20, text: ({ startedAt }) => seconds(startedAt) },
  { heading: "ENDED", width: 20, text: ({ endedAt }) => seconds(endedAt) },
  {
    heading: "STATUS",
    width: 11,
    text: ({ status }) => RunStatusSchema.value[status]?.localName.toLowerCase() ?? "",
    style: ({ status }) => STATUS_STYLES.get(status),
  },
  { heading: "EVENTS", width: 8, text: ({ rawEvents }) => String(rawEvents) },
  { heading: "FIRST", width: 8, isWide: true, text: ({ firstSeq }) => String(firstSeq) },
  { heading: "LAST", width: 8, isWide: true, text: ({ lastSeq }) => String(lastSeq) },
  { heading: "ROWS", width: 8, isWide: true, text: ({ rows }) => String(rows) },
  { heading: "BYTES", width: 10, isWide: true, text: ({ payloadBytes }) => String(payloadBytes) },
  { heading: "PARENT", width: 36, isWide: true, text: ({ parentRunId = "" }) => parentRunId },
  { heading: "RUN", width: 0, text: ({ runId }) => runId },
];
