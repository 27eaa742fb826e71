/**
 * Sends the lines of a file or a pipe into a session; the order of the lines is the order of the
 * session. Two ways:
 *
 *   keys     one call a line, one after the other. Every line has an idempotency key, so an
 *            interrupted command can be run again unchanged (lineKeys). Concurrent calls would be
 *            faster and could not keep the order: HTTP/2 gives concurrent calls no order, and a
 *            repeated call would come after its successors.
 *   stream   a push stream, which is many times faster. It fences other writers, and a further
 *            command does not recognise its lines, so the command tells where to continue.
 */
import type { Readable } from "node:stream";
import { type Command, Option } from "commander";
import { systemClock } from "@session-ledger/base/clock";
import { LINE_BYTES_MAX, readLines } from "@session-ledger/runner/internal/lines";
import { eventsOfText } from "@session-ledger/runner/internal/text";
import { proposedEpoch } from "@session-ledger/runner/internal/writer/writer-state";
import {
  addSessionArgument,
  countArgument,
  requiredSession,
  type SessionFlag,
} from "./arguments.ts";
import { addConnectionOptions, type ConnectionFlags } from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, explain, UsageError } from "./io.ts";
import { type InputForm, FORMS, lineKeys, rowLine } from "./push-lines.ts";
import {
  type RowToPush,
  keyed,
  type PushRun,
  pushRows,
  refusalOf,
  runIdOf,
  tellRefusal,
  withInput,
} from "./push-rows.ts";
import { LineSender, type StreamLine } from "./push-stream.ts";
import type { Finish } from "./serve.ts";

export function addPush(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("push")
    .summary("append AG-UI events or messages to a session")
    .description("append AG-UI events or messages to a session, one per line");
  addSessionArgument(command, "the session to append to")
    .option("-f, --file <path>", "the input; default, and for -: stdin")
    .option(
      "--key-prefix <text>",
      "idempotency keys <text>:<line number>; default: keys made of the lines, so the same input sent again is recognised",
    )
    .option("--no-keys", "no idempotency keys: a push whose answer was lost is not sent again")
    .addOption(
      new Option(
        "--as <form>",
        "the lines: AG-UI events, messages as `tail` prints them, or texts of user messages",
      )
        .choices(FORMS)
        .default("events"),
    )
    .addOption(
      new Option(
        "--stream",
        "one push stream: many times faster, ends other writers of the session, and does not recognise an input that is sent again",
      ).conflicts(["keyPrefix", "keys"]),
    )
    .addOption(
      new Option(
        "--format <name>",
        "text: the input is one answer, and becomes a run with a message",
      )
        .choices(["jsonl", "text"])
        .default("jsonl")
        .conflicts(["as", "stream", "keyPrefix", "fromLine"]),
    )
    .option("--run-id <id>", "the run of --format text; default: made of the file")
    .option("--from-line <number>", "skip the lines before this one", countArgument())
    .option("--stop-on-refused", "end at the first refused line")
    .option("--json", "the summary as JSON on stdout");
  addConnectionOptions(command).action(
    async (session: string | undefined, flags: PushFlags & SessionFlag) =>
      finish(await push({ ...flags, session: requiredSession(session, flags) }, io)),
  );
}

interface PushFlags extends ConnectionFlags {
  /** Without it, or `-`: stdin. */
  readonly file?: string;
  /** False: no keys, so a push with an unknown outcome is not sent again. */
  readonly keys: boolean;
  readonly keyPrefix?: string;
  readonly as: InputForm;
  readonly format: "jsonl" | "text";
  readonly runId?: string;
  readonly stream?: boolean;
  readonly fromLine?: number;
  readonly stopOnRefused?: boolean;
  readonly json?: boolean;
}

async function push(flags: Flags, io: CliIo): Promise<ExitCode> {
  const { stream: isStream = false } = flags;
  if (isStream && flags.as !== "events") throw new UsageError("--stream: expected events");
  const parts = {
    sessionId: flags.session,
    stream: flags.as === "events" ? ("events" as const) : ("messages" as const),
    keys: flags.keys,
    stopOnRefused: flags.stopOnRefused === true,
    io,
  };
  if (flags.format === "text") {
    const runId = flags.runId ?? (await runIdOf("text", flags));
    return withInput(flags, parts, (input, run) => pushRows(textRows(input, runId, run), run));
  }
  return withInput(flags, parts, (input, run) =>
    isStream ? streamLines(input, flags, run) : pushRows(rowsOf(input, flags), run),
  );
}

type Flags = PushFlags & { readonly session: string };

async function* textRows(
  input: Readable,
  runId: string,
  { sessionId: threadId }: PushRun,
): AsyncGenerator<RowToPush, void, undefined> {
  const place = { line: 1, endByte: 0 };
  const pieces = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const chunk of input) {
      if (!(chunk instanceof Uint8Array)) throw new TypeError("the input gives texts");
      place.endByte += chunk.length;
      yield chunk;
    }
  };
  yield* keyed(eventsOfText(pieces(), { threadId, runId, messageId: `${runId}:m0.0` }), place);
}

export async function* rowsOf(
  input: Readable,
  { as, keyPrefix, fromLine = 1 }: Pick<PushFlags, "as" | "keyPrefix" | "fromLine">,
): AsyncGenerator<RowToPush, void, undefined> {
  const keyOf = lineKeys(keyPrefix);
  for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
    const key = keyOf(line);
    if (line.number < fromLine) continue;
    yield { line: line.number, endByte: line.endByte, read: rowLine(line, as), key };
  }
}

async function streamLines(input: Readable, flags: Flags, run: PushRun): Promise<ExitCode> {
  const { connection, summary, progress, io } = run;
  let settledLine = (flags.fromLine ?? 1) - 1;
  try {
    const sender = new LineSender({
      ...connection,
      sessionId: flags.session,
      epoch: proposedEpoch(systemClock),
      stopOnRefused: flags.stopOnRefused === true,
      committed: ({ number, endByte }, stored, lastSeq) => {
        settledLine = number;
        summary.stored(lastSeq, { events: stored, isNew: true });
        progress.update(endByte, { lines: number, refused: summary.refused });
      },
      refused: ({ number }, failure) => tellRefusal(number, refusalOf(failure), run),
    });
    await sender.run(eventsOf(input, flags, run));
    return summary.refused > 0 ? EXIT.incomplete : EXIT.done;
  } catch (error) {
    const place = `lines up to ${settledLine} are done: continue with --from-line ${settledLine + 1}`;
    if (io.signal.aborted) {
      progress.note(`session-ledger: ${place}`);
      return EXIT.interrupted;
    }
    const { exitCode, message } = explain(error);
    progress.note(`session-ledger: line ${settledLine + 1}: ${message}; ${place}`);
    return exitCode;
  }
}

async function* eventsOf(
  input: Readable,
  flags: Flags,
  run: PushRun,
): AsyncGenerator<StreamLine, void, undefined> {
  const { summary } = run;
  for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
    const { number, endByte } = line;
    summary.lines = number;
    if (number < (flags.fromLine ?? 1)) continue;
    const row = rowLine(line, "events");
    if (row.kind === "refused") tellRefusal(number, row, run);
    if (row.kind === "refused" && flags.stopOnRefused === true) return;
    if (row.kind !== "row") continue;
    const { eventType, payload } = row;
    yield { number, endByte, eventType, payload };
  }
}
