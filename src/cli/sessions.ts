/** Commands on sessions of a running service: list and describe them, erase one, issue a token. */
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
import { type CliIo, EXIT, type ExitCode, printLine, UsageError } from "./io.ts";
import type { Finish } from "./serve.ts";
import {
  addOutputOptions,
  type Column,
  type OutputFlags,
  printRecord,
  printRecords,
} from "./table.ts";

export function addSessionCommands(program: Command, io: CliIo, finish: Finish): void {
  addSessions(program, io, finish);
  addDescribe(program, io, finish);
  addToken(program, io, finish);
  addErase(program, io, finish);
}

function addSessions(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("sessions")
    .description("list sessions, newest first")
    .option("-n, --limit <sessions>", "end after this number of sessions", countArgument());
  addConnectionOptions(addOutputOptions(command)).action(async (flags: SessionsFlags) =>
    finish(await sessions(flags, io)),
  );
}

function addDescribe(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("describe")
    .description("show a session: its name, phase, numbers and run")
    .argument("<session>", "the session to show");
  addConnectionOptions(addOutputOptions(command)).action(
    async (sessionId: string, flags: ConnectionFlags & OutputFlags) =>
      finish(await describe(sessionId, flags, io)),
  );
}

/** The roles of a session token. */
const TOKEN_ROLES = ["runner", "viewer", "editor"] as const;

function addToken(program: Command, io: CliIo, finish: Finish): void {
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
    finish(await token(sessionId, flags, io)),
  );
}

function addErase(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("erase")
    .summary("erase a session's rows and texts for good")
    .description("erase a session's rows and texts for good; its id and numbers stay taken")
    .argument("<session>", "the session to erase")
    .option("-y, --yes", "required, because the session cannot be restored")
    .option("--json", "the summary as JSON on stdout");
  addConnectionOptions(command).action(async (sessionId: string, flags: EraseFlags) =>
    finish(await erase(sessionId, flags, io)),
  );
}

interface SessionsFlags extends ConnectionFlags, OutputFlags {
  readonly limit?: number;
}

const PAGE_SIZE = 100;

async function sessions(flags: SessionsFlags, io: CliIo): Promise<ExitCode> {
  const { limit } = flags;
  return connected(io, flags, async (connection) => {
    const forms = { json: sessionJson, columns: COLUMNS };
    const printing = { flags, io, ...(limit === undefined ? {} : { limit }) };
    await printRecords(allSessions(connection), forms, printing);
    return EXIT.done;
  });
}

async function describe(
  sessionId: string,
  flags: ConnectionFlags & OutputFlags,
  io: CliIo,
): Promise<ExitCode> {
  return connected(io, flags, async ({ client, retry }) => {
    const session = await client.call(ledger.getSession, { id: sessionId }, retry);
    await printRecord(session, { json: sessionJson, columns: FIELDS }, { flags, io });
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

type SessionColumn = Column<Session>;

const CREATED: SessionColumn = {
  heading: "CREATED",
  width: 20,
  text: ({ metadata }) => seconds(metadata?.createdAt),
};
const ACTIVE: SessionColumn = {
  heading: "LAST ACTIVITY",
  width: 20,
  text: ({ lastActivityAt }) => seconds(lastActivityAt),
};
const PHASE: SessionColumn = {
  heading: "PHASE",
  width: 9,
  text: ({ phase = "" }) => phase,
  style: ({ phase = "" }) => PHASE_STYLES.get(phase),
};
/** Ids are often UUIDs. */
const ID: SessionColumn = { heading: "ID", width: 36, text: idOf };
const NAME: SessionColumn = { heading: "NAME", width: 0, text: ({ name }) => name };
const MESSAGES: SessionColumn = {
  heading: "MESSAGES",
  width: 8,
  text: ({ messageSeq }) => String(messageSeq),
};
const EVENTS: SessionColumn = {
  heading: "EVENTS",
  width: 8,
  text: ({ eventSeq }) => String(eventSeq),
};
const WAITING: SessionColumn = {
  heading: "WAITING",
  width: 7,
  text: ({ waiting }) => String(waiting),
};
const OPEN_RUN: SessionColumn = {
  heading: "OPEN RUN",
  width: 36,
  text: ({ openRunId = "" }) => openRunId,
};
const PROJECT: SessionColumn = {
  heading: "PROJECT",
  width: 16,
  text: ({ projectId = "" }) => projectId,
};

const PHASE_STYLES = new Map<string, "green" | "yellow" | "red">([
  ["Pending", "yellow"],
  ["Creating", "yellow"],
  ["Running", "green"],
  ["Stopping", "yellow"],
  ["Failed", "red"],
]);

/** The columns of a list. */
const COLUMNS: readonly SessionColumn[] = [
  CREATED,
  ACTIVE,
  PHASE,
  ID,
  ...[MESSAGES, EVENTS, WAITING, OPEN_RUN, PROJECT].map((column) => wide(column)),
  NAME,
];

/** The lines of one session. */
const FIELDS: readonly SessionColumn[] = [
  ID,
  NAME,
  PHASE,
  CREATED,
  ACTIVE,
  MESSAGES,
  EVENTS,
  WAITING,
  OPEN_RUN,
  PROJECT,
  field("ROWS", ({ rows }) => String(rows)),
  field("BYTES", ({ payloadBytes }) => String(payloadBytes)),
  field("MODEL", ({ llmModel = "" }) => llmModel),
  field("AGENT", ({ agentId = "" }) => agentId),
  field("CREATED BY", ({ createdByUserId = "" }) => createdByUserId),
  field("PARENT", ({ parentSessionId = "" }) => parentSessionId),
  field("STARTED", ({ startTime }) => seconds(startTime)),
  field("COMPLETED", ({ completionTime }) => seconds(completionTime)),
  field("LABELS", ({ labels = "" }) => labels),
  wide(field("ANNOTATIONS", ({ annotations = "" }) => annotations)),
  wide(field("PROMPT", ({ prompt = "" }) => prompt)),
];

function field(heading: string, text: SessionColumn["text"]): SessionColumn {
  return { heading, width: 0, text };
}

function wide(column: SessionColumn): SessionColumn {
  return { ...column, isWide: true };
}

/** RFC 3339 without the fraction: a person compares minutes. */
function seconds(time: Parameters<typeof timeText>[0]): string {
  return timeText(time).replace(/\.\d+Z$/, "Z");
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
