import type { RetentionSummary } from "../maintenance/retention.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { type CliIo, tell } from "./io.ts";
import { Printer } from "./printer.ts";
import { configOf } from "./serve.ts";

export interface RetentionCommand {
  readonly olderThanMs: number;
  /** Undefined: all sessions. */
  readonly sessionId: string | undefined;
  readonly dryRun: boolean;
  readonly json: boolean;
}

/** Erases ended runs from the beginning of their sessions, on the database itself. */
export async function retention(command: RetentionCommand, io: CliIo): Promise<ExitCode> {
  const { olderThanMs, sessionId, dryRun, json } = command;
  const config = configOf(io);
  const options = { afterMs: olderThanMs, sessionId, dryRun, signal: io.signal };
  const summary = await io.retention(options, config);
  if (summary === undefined) {
    tell(io, `there is no session ${sessionId}`);
    return EXIT.refused;
  }
  const printer = new Printer(io.stdout, io.signal);
  await printer.print(json ? summaryJson(summary, dryRun) : sentenceOf(summary, dryRun));
  if (io.signal.aborted) return EXIT.interrupted;
  if (summary.sessionsBusy === 0) return EXIT.done;
  tell(io, `${summary.sessionsBusy} sessions were held by others all the time: run it again`);
  return EXIT.incomplete;
}

/** Counts as numbers: they are small enough. */
function summaryJson(summary: RetentionSummary, dryRun: boolean): string {
  const { messages, events, payloadBytes, ...sessions } = summary;
  return JSON.stringify({
    dryRun,
    ...sessions,
    messages: Number(messages),
    events: Number(events),
    payloadBytes: Number(payloadBytes),
  });
}

function sentenceOf(summary: RetentionSummary, dryRun: boolean): string {
  const { sessions, sessionsErased, messages, events, payloadBytes } = summary;
  const verb = dryRun ? "would erase" : "erased";
  return `${verb} ${events} events and ${messages} messages (${payloadBytes} payload bytes) of ${sessionsErased} of ${sessions} sessions`;
}
