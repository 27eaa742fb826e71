/**
 * Imports a file of another system: its lines become AG-UI events, each with an idempotency key of its run
 * and its place in the run. The same file again therefore stores nothing twice.
 */
import type { Readable } from "node:stream";
import { Option } from "commander";
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { VALUE_DEPTH_MAX } from "@session-ledger/agui/payload";
import { outline } from "@session-ledger/agui/spans";
import { exactJson, NotAnEntry } from "@session-ledger/history/entry";
import { HistoryMapper } from "@session-ledger/history/from-history";
import { LangChain4jMapper, type Mapper } from "@session-ledger/history/langchain4j";
import { SpringAiMapper } from "@session-ledger/history/spring-ai";
import type { RunIds } from "@session-ledger/history/run-builder";
import { LINE_BYTES_MAX, readLines } from "@session-ledger/runner/internal/lines";
import type { TextFlags } from "./arguments.ts";
import { addConnectionOptions, type ConnectionFlags } from "./connection.ts";
import { type CliIo, type ExitCode, UsageError } from "./io.ts";
import { mergedRows } from "./merge-rows.ts";
import { type LineRefusal, rowLine } from "./push-lines.ts";
import { rowsOf } from "./push.ts";
import { keyed, type PushRun, pushRows, runIdOf, tellRefusal, withInput } from "./push-rows.ts";
import { programNamed, runProgram } from "./running.ts";

const IMPORT_FORMATS = ["lc4j", "spring", "history", "jsonl"] as const;
type ImportFormat = (typeof IMPORT_FORMATS)[number];

/** Runs the command with these arguments, and resolves with its exit code. */
export function importFile(argv: readonly string[], io: CliIo): Promise<number> {
  return runProgram(argv, io, (_, finish) => {
    const command = programNamed("session-ledger import", io)
      .description("Import a file of another system into a session; a repeat stores nothing twice.")
      .argument("<file>", "the file, one JSON object per line; - is stdin")
      .requiredOption("-s, --session <id>", "the session to append to")
      .addOption(
        new Option(
          "--format <name>",
          "events of LangChain4j, responses of Spring AI, entries of a history, or AG-UI events",
        ).choices(IMPORT_FORMATS),
      )
      .option("--run-id <id>", "the first run; default: made of the content of the file")
      .option("--json", "the summary as JSON on stdout");
    return addConnectionOptions(command).action(
      async (file: string, flags: Omit<ImportFlags, "file">) =>
        finish(await importInto({ ...flags, file }, io)),
    );
  });
}

interface ImportFlags extends ConnectionFlags, TextFlags<"runId"> {
  readonly format: ImportFormat;
  readonly session: string;
  readonly file: string;
}

async function importInto(flags: ImportFlags, io: CliIo): Promise<ExitCode> {
  const { session: sessionId, format } = flags;
  const parts = { sessionId, stream: "events", keys: true, stopOnRefused: false, io } as const;
  if (format === "jsonl")
    return withInput(flags, parts, (input, run) =>
      pushRows(mergedRows(rowsOf(input, { as: "events" })), run),
    );
  if (flags.runId === undefined && flags.file === "-")
    throw new UsageError("--run-id: expected, as stdin has no content before it is read");
  const runId = flags.runId ?? (await runIdOf(format, flags));
  const names = { sessionId, runId };
  return withInput(flags, parts, (input, run) => {
    const place = { line: 0, endByte: 0 };
    const events = eventsOf(new MAPPERS[format](names), input, { place, run });
    return pushRows(mergedRows(keyed(events, place)), run);
  });
}

const MAPPERS: Readonly<Record<Exclude<ImportFormat, "jsonl">, new (names: RunIds) => Mapper>> = {
  lc4j: LangChain4jMapper,
  spring: SpringAiMapper,
  history: HistoryMapper,
};

/** `place` follows the lines of the input. A line that is no entry is refused. */
async function* eventsOf(
  mapper: Mapper,
  input: Readable,
  { place, run }: { readonly place: { line: number; endByte: number }; readonly run: PushRun },
): AsyncGenerator<AguiEvent, void, undefined> {
  let isEmpty = true;
  for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
    place.line = line.number;
    place.endByte = line.endByte;
    run.summary.lines = line.number;
    const read = rowLine(line, "text");
    if (read.kind === "empty") continue;
    const entry = read.kind === "refused" ? read : entryIn(read.payload);
    if ("reason" in entry) {
      tellRefusal(line.number, entry, run);
      continue;
    }
    isEmpty = false;
    try {
      yield* mapper.take(entry.value);
    } catch (error) {
      if (!(error instanceof NotAnEntry)) throw error;
      tellRefusal(line.number, { reason: "NOT_AN_ENTRY", message: error.message }, run);
    }
  }
  if (!isEmpty) yield* mapper.end();
}

function entryIn(text: string): { readonly value: JsonObject } | LineRefusal {
  if (outline(text).depth > VALUE_DEPTH_MAX) {
    const message = `the line is nested deeper than ${VALUE_DEPTH_MAX} levels`;
    return { reason: "TOO_DEEP", message };
  }
  const value = exactJson(text);
  if (isObject(value)) return { value };
  return { reason: "NOT_JSON", message: "the line is not a JSON object" };
}
