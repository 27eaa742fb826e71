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

/** A large session takes long, row by row; after this time the next try continues. */
const DEADLINE_MS = 600_000;

/** Erases a session for good, through the service, so that its watchers are told. */
export async function erase(options: EraseOptions, io: CliIo): Promise<ExitCode> {
  const { sessionId, yes, json } = options;
  if (!yes) {
    throw new UsageError(
      `erase deletes every row and every text of session ${sessionId}, and nothing brings them back; add --yes`,
    );
  }
  return connected(io, options, async ({ client, retry }) => {
    // A repeated erasure continues an unfinished one.
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
