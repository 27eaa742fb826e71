/** Commands on one session of a running service: erase or hold it, issue a token. */
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Command, Option } from "commander";
import { ledger } from "@session-ledger/runner/internal/client";
import { sessionJson, timeText } from "@session-ledger/runner/internal/rows";
import { durationArgument, type TextFlags } from "./arguments.ts";
import { callsService, type Connection } from "./connection.ts";
import { type CliIo, printLine, UsageError } from "./io.ts";

const TOKEN_ROLES = ["runner", "viewer", "editor"] as const;

export function addToken(program: Command, io: CliIo): void {
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
  callsService(command, io, token);
}

export function addErase(program: Command, io: CliIo): void {
  const command = program
    .command("erase")
    .summary("erase a session's rows and texts for good")
    .description("erase a session's rows and texts for good; its id and numbers stay taken")
    .argument("<session>", "the session to erase")
    .option("-y, --yes", "required, because the session cannot be restored")
    .option("--json", "the summary as JSON on stdout");
  callsService(command, io, erase);
}

export function addHold(program: Command, io: CliIo): void {
  const command = program
    .command("hold")
    .summary("hold a session, so that nothing of it is erased")
    .description("hold a session: neither retention nor a person erases it; for admins")
    .argument("<session>", "the session to hold")
    .option("--reason <text>", "why, for people")
    .option("--release", "end the hold instead")
    .option("--json", "the session as JSON on stdout");
  callsService(command, io, hold);
}

interface TokenFlags extends TextFlags {
  readonly role: (typeof TOKEN_ROLES)[number];
  /** Milliseconds. */
  readonly ttl?: number;
}

async function token(
  { client, retry, io }: Connection,
  sessionId: string,
  { role, ttl: ttlMs, json = false }: TokenFlags,
): Promise<void> {
  const ttl = ttlMs === undefined ? undefined : durationFromMs(ttlMs);
  // A second token does no harm: it expires like the first.
  const issued = await client.call(ledger.issueSessionToken, { sessionId, role, ttl }, retry);
  const expiresAt = timeText(issued.expiresAt);
  // The plain token is for `$(…)`.
  await printLine(io, json ? JSON.stringify({ token: issued.token, expiresAt }) : issued.token);
}

/** Through the service, so that watchers of the session learn of it. */
async function erase(
  { client, retry, io }: Connection,
  sessionId: string,
  { yes = false, json = false }: TextFlags & { readonly yes?: boolean },
): Promise<void> {
  if (!yes) {
    throw new UsageError(
      `erase deletes every row and every text of session ${sessionId}, and they cannot be restored; add --yes`,
    );
  }
  // A large session takes long, row by row; a repeated erasure continues an unfinished one.
  const call = { ...retry, deadlineMs: 600_000 };
  const { messages, events } = await client.call(ledger.eraseSession, { id: sessionId }, call);
  const line = json
    ? JSON.stringify({ sessionId, messages: Number(messages), events: Number(events) })
    : `erased ${events} events and ${messages} messages of session ${sessionId}`;
  await printLine(io, line);
}

async function hold(
  { client, retry, io }: Connection,
  sessionId: string,
  {
    reason = "",
    release = false,
    json = false,
  }: TextFlags<"reason"> & {
    readonly release?: boolean;
  },
): Promise<void> {
  if (release === (reason !== "")) throw new UsageError("hold needs --reason <text>, or --release");
  const asked = { id: sessionId, reason, release };
  const session = await client.call(ledger.holdSession, asked, retry);
  const done = release ? `ended the hold of session ${sessionId}` : `session ${sessionId} is held`;
  await printLine(io, json ? sessionJson(session) : done);
}
