/** Commands on one session of a running service: erase or hold it, issue a token. */
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Command, Option } from "commander";
import { ledger } from "@session-ledger/runner/internal/client";
import { sessionJson, timeText } from "@session-ledger/runner/internal/rows";
import { durationArgument } from "./arguments.ts";
import { addConnectionOptions, connected, type ConnectionFlags } from "./connection.ts";
import { type CliIo, printLine, UsageError } from "./io.ts";

export function addSessionCommands(program: Command, io: CliIo): void {
  addToken(program, io);
  addErase(program, io);
  addHold(program, io);
}

const TOKEN_ROLES = ["runner", "viewer", "editor"] as const;

function addToken(program: Command, io: CliIo): void {
  const command = program
    .command("token")
    .summary("issue a short-lived token for one session")
    .description("issue a short-lived token for one session; for admins")
    .argument("<session>", "the session that the token opens")
    .addOption(
      new Option("--role <role>", "the rights of the token").choices(TOKEN_ROLES).default("runner"),
    )
    .addOption(
      new Option("--ttl <duration>", "the token's lifetime; default: one hour").argParser(
        durationArgument,
      ),
    )
    .option("--json", "the token and its end as JSON");
  addConnectionOptions(command).action(async (sessionId: string, flags: TokenFlags) =>
    token(sessionId, flags, io),
  );
}

function addErase(program: Command, io: CliIo): void {
  const command = program
    .command("erase")
    .summary("erase a session's rows and texts for good")
    .description("erase a session's rows and texts for good; its id and numbers stay taken")
    .argument("<session>", "the session to erase")
    .option("-y, --yes", "required, because the session cannot be restored")
    .option("--json", "the summary as JSON on stdout");
  addConnectionOptions(command).action(async (sessionId: string, flags: EraseFlags) =>
    erase(sessionId, flags, io),
  );
}

function addHold(program: Command, io: CliIo): void {
  const command = program
    .command("hold")
    .summary("hold a session, so that nothing of it is erased")
    .description("hold a session: neither retention nor a person erases it; for admins")
    .argument("<session>", "the session to hold")
    .option("--reason <text>", "why, for people")
    .option("--release", "end the hold instead")
    .option("--json", "the session as JSON on stdout");
  addConnectionOptions(command).action(async (sessionId: string, flags: HoldFlags) =>
    hold(sessionId, flags, io),
  );
}

interface TokenFlags extends ConnectionFlags {
  readonly role: (typeof TOKEN_ROLES)[number];
  /** Milliseconds. */
  readonly ttl?: number;
  readonly json?: boolean;
}

async function token(sessionId: string, flags: TokenFlags, io: CliIo): Promise<void> {
  const { role, ttl: ttlMs, json = false } = flags;
  const ttl = ttlMs === undefined ? {} : { ttl: durationFromMs(ttlMs) };
  return connected(io, flags, async ({ client, retry }) => {
    // A second token does no harm: it expires like the first.
    const issued = await client.call(ledger.issueSessionToken, { sessionId, role, ...ttl }, retry);
    const expiresAt = timeText(issued.expiresAt);
    // The plain token is for `$(…)`.
    await printLine(io, json ? JSON.stringify({ token: issued.token, expiresAt }) : issued.token);
  });
}

interface EraseFlags extends ConnectionFlags {
  readonly yes?: boolean;
  readonly json?: boolean;
}

/** Through the service, so that watchers of the session learn of it. */
async function erase(sessionId: string, flags: EraseFlags, io: CliIo): Promise<void> {
  const { yes = false, json = false } = flags;
  if (!yes) {
    throw new UsageError(
      `erase deletes every row and every text of session ${sessionId}, and they cannot be restored; add --yes`,
    );
  }
  return connected(io, flags, async ({ client, retry }) => {
    // A large session takes long, row by row; a repeated erasure continues an unfinished one.
    const call = { ...retry, deadlineMs: 600_000 };
    const { messages, events } = await client.call(ledger.eraseSession, { id: sessionId }, call);
    const line = json
      ? JSON.stringify({ sessionId, messages: Number(messages), events: Number(events) })
      : `erased ${events} events and ${messages} messages of session ${sessionId}`;
    await printLine(io, line);
  });
}

interface HoldFlags extends ConnectionFlags {
  readonly reason?: string;
  readonly release?: boolean;
  readonly json?: boolean;
}

async function hold(sessionId: string, flags: HoldFlags, io: CliIo): Promise<void> {
  const { reason = "", release = false, json = false } = flags;
  if (release === (reason !== "")) throw new UsageError("hold needs --reason <text>, or --release");
  return connected(io, flags, async ({ client, retry }) => {
    const asked = { id: sessionId, reason, release };
    const session = await client.call(ledger.holdSession, asked, retry);
    const done = release
      ? `ended the hold of session ${sessionId}`
      : `session ${sessionId} is held`;
    await printLine(io, json ? sessionJson(session) : done);
  });
}
