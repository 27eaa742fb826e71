import { ledger } from "../runner/client.ts";
import { type ConnectionOptions, connected } from "./connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { UsageError } from "./explain.ts";
import type { CliIo } from "./io.ts";
import { Printer } from "./printer.ts";

export interface EraseOptions extends ConnectionOptions {
  readonly sessionId: string;
  readonly yes: boolean;
  readonly json: boolean;
}

/** A large session takes its time, row by row; past this the next try goes on. */
const DEADLINE_MS = 600_000;

/** Erases a session for good, through the service, so that whoever watches it hears so. */
export async function erase(options: EraseOptions, io: CliIo): Promise<ExitCode> {
  const { sessionId, yes, json } = options;
  if (!yes) {
    throw new UsageError(
      `erase deletes every row and every text of session ${sessionId}, and nothing brings them back; add --yes`,
    );
  }
  return connected(io, options, async ({ client, retry }) => {
    // Erasing again what is half erased goes on with it.
    const call = { ...retry, deadlineMs: DEADLINE_MS };
    const { messages, events } = await client.call(ledger.eraseSession, { id: sessionId }, call);
    const printer = new Printer(io.stdout, io.signal);
    const line = json
      ? JSON.stringify({ sessionId, messages: Number(messages), events: Number(events) })
      : `erased ${events} events and ${messages} messages of session ${sessionId}`;
    await printer.print(line);
    return EXIT.done;
  });
}
