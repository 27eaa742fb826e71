/** Commands on the sessions of a running service: list them, erase one, issue a token for one. */
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Command, Option } from "commander";
import { ledger } from "../runner/client.ts";
import { sessionJson, timeText } from "../runner/rows.ts";
import { countArgument, durationArgument } from "./arguments.ts";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, Printer, printLine, UsageError, visible } from "./io.ts";
import type { Finish } from "./serve.ts";

export function addSessionCommands(program: Command, io: CliIo, finish: Finish): void {
  addSessions(program, io, finish);
  addToken(program, io, finish);
  addErase(program, io, finish);
}

function addSessions(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("sessions")
    .description("list sessions, newest first: a table on a terminal, JSON lines elsewhere")
    .option("--json", "JSON lines on a terminal too")
    .option("-n, --limit <sessions>", "end after this number of sessions", countArgument());
  addConnectionOptions(command).action(async (flags: SessionsFlags) =>
    finish(await sessions(flags, io)),
  );
}

/** The roles of a session token. */
const TOKEN_ROLES = ["runner", "viewer", "editor"] as const;

function addToken(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("token")
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
    finish(await token(sessionId, flags, io)),
  );
}

function addErase(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("erase")
    .description("erase a session's rows and texts for good; its id and numbers stay taken")
    .argument("<session>", "the session to erase")
    .option("-y, --yes", "required, because the session cannot be restored")
    .option("--json", "the summary as JSON on stdout");
  addConnectionOptions(command).action(async (sessionId: string, flags: EraseFlags) =>
    finish(await erase(sessionId, flags, io)),
  );
}

interface SessionsFlags extends ConnectionFlags {
  readonly json?: boolean;
  readonly limit?: number;
}

const PAGE_SIZE = 100;

async function sessions(flags: SessionsFlags, io: CliIo): Promise<ExitCode> {
  const printer = new Printer(io.stdout, io.signal);
  const isJson = flags.json ?? io.stdout.isTTY !== true;
  let left = flags.limit ?? Number.POSITIVE_INFINITY;
  return connected(io, flags, async (connection) => {
    if (!isJson) await printer.print(cells(HEADINGS));
    for await (const session of allSessions(connection)) {
      left -= 1;
      const line = isJson ? sessionJson(session) : cells(columnsOf(session));
      if (!(await printer.print(line)) || left <= 0) break;
    }
    return EXIT.done;
  });
}

type Session = Awaited<ReturnType<typeof readPage>>[number];

/** A new session pushes the last one of a page onto the next page, where it is skipped. */
async function* allSessions(connection: Connection): AsyncGenerator<Session, void, undefined> {
  let before: ReadonlySet<string> = new Set();
  for (let page = 1; ; page += 1) {
    const items = await readPage(connection, page);
    yield* items.filter((session) => !before.has(idOf(session)));
    if (items.length < PAGE_SIZE) return;
    before = new Set(items.map(idOf));
  }
}

async function readPage({ client, retry }: Connection, page: number) {
  const { items } = await client.call(ledger.listSessions, { page, size: PAGE_SIZE }, retry);
  return items;
}

function idOf(session: Session): string {
  return session.metadata?.id ?? "";
}

const HEADINGS = ["CREATED", "LAST ACTIVITY", "PHASE", "ID", "NAME"];
/** Fixed, so that a page can be printed before the next one is read; ids are often UUIDs. */
const WIDTHS = [20, 20, 9, 36, 0];

function columnsOf(session: Session): readonly string[] {
  const created = seconds(timeText(session.metadata?.createdAt));
  const active = seconds(timeText(session.lastActivityAt));
  return [created, active, session.phase ?? "", idOf(session), session.name];
}

function cells(columns: readonly string[]): string {
  const padded = columns.map((text, at) => text.padEnd(WIDTHS[at] ?? 0));
  return visible(padded.join("  ").trimEnd());
}

/** RFC 3339 without the fraction: a person compares minutes. */
function seconds(time: string): string {
  return time.replace(/\.\d+Z$/, "Z");
}

interface TokenFlags extends ConnectionFlags {
  readonly role: (typeof TOKEN_ROLES)[number];
  /** Milliseconds. */
  readonly ttl?: number;
  readonly json?: boolean;
}

async function token(sessionId: string, flags: TokenFlags, io: CliIo): Promise<ExitCode> {
  const { role, ttl: ttlMs, json = false } = flags;
  const ttl = ttlMs === undefined ? {} : { ttl: durationFromMs(ttlMs) };
  return connected(io, flags, async ({ client, retry }) => {
    // A second token does no harm: it expires like the first.
    const issued = await client.call(ledger.issueSessionToken, { sessionId, role, ...ttl }, retry);
    const expiresAt = timeText(issued.expiresAt);
    // The plain token is for `$(…)`.
    await printLine(io, json ? JSON.stringify({ token: issued.token, expiresAt }) : issued.token);
    return EXIT.done;
  });
}

interface EraseFlags extends ConnectionFlags {
  readonly yes?: boolean;
  readonly json?: boolean;
}

/** Through the service, so that watchers of the session learn of it. */
async function erase(sessionId: string, flags: EraseFlags, io: CliIo): Promise<ExitCode> {
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
    return EXIT.done;
  });
}
