/** The command `sessions`: a list of sessions, with --watch their changes, or one session in full. */
import { create, type MessageInitShape, toJson, toJsonString } from "@bufbuild/protobuf";
import { type Command, Option } from "commander";
import { EventType, WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  type ListSessionsRequestSchema,
  type Question,
  QuestionSchema,
  type Session,
  SessionOrder,
  SessionState,
  type SessionWatchEvent,
  SessionWatchEventSchema,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ledger } from "@session-ledger/runner/internal/client";
import { sessionJson, timeText } from "@session-ledger/runner/internal/rows";
import { reopening } from "@session-ledger/runner/internal/session-reader";
import { countArgument, type Labels, labelOption, type TextFlags } from "./arguments.ts";
import { COLUMNS, FIELDS, idOf, seconds, STATES } from "./columns.ts";
import { allPages, callsService, type Connection } from "./connection.ts";
import { type CliIo, unlessStopped, UsageError } from "./io.ts";
import {
  addOutputOptions,
  type Column,
  column,
  type OutputFlags,
  printRecord,
  printRecords,
  wide,
} from "./table.ts";

const ORDERS = {
  newest: SessionOrder.UNSPECIFIED,
  activity: SessionOrder.ACTIVITY,
  waiting: SessionOrder.WAITING,
} as const;

export function addSessions(program: Command, io: CliIo): void {
  const command = program
    .command("sessions")
    .summary("list sessions, newest first, or show one")
    .description(
      "list sessions, newest first; all filters hold together. With an id: that session, its name, phase, numbers and run",
    )
    .argument("[session]", "the session to show")
    .option("--running", "only sessions with an open run")
    .option("--waiting", "only sessions with a message that waits for a turn")
    .addOption(
      new Option("--state <state>", "only sessions that stand there").choices([...STATES.keys()]),
    )
    .option("--agent <id>", "only sessions of this agent")
    .option("--query <text>", "only sessions whose name or id contains this text, in any case")
    .addOption(labelOption("only sessions with this label; the option can be repeated"))
    .option("--project <id>", "only sessions of this project")
    .option("--parent <session>", "only sessions that this one has started, and its forks")
    .addOption(
      new Option(
        "--order <order>",
        "waiting: the longest wait first, with --waiting or a state of waiting",
      )
        .choices(Object.keys(ORDERS))
        .default("newest"),
    )
    .option("-w, --watch", "continue with each session that changes, through restarts")
    .option("-n, --limit <sessions>", "end after this number of lines", countArgument());
  callsService(
    addOutputOptions(command),
    io,
    (connection, sessionId: string | undefined, flags: SessionsFlags) =>
      sessionId === undefined
        ? sessions(connection, flags)
        : oneSession(connection, sessionId, flags),
  );
}

/** Every open question and approval, the longest wait first. */
export function addInbox(program: Command, io: CliIo): void {
  const command = program
    .command("inbox")
    .summary("list what agents ask people: questions and approvals that wait")
    .description("list what agents ask people, over all sessions, the longest wait first")
    .option("--project <id>", "only sessions of this project", "")
    .addOption(labelOption("only sessions with this label; the option can be repeated"))
    .option("-n, --limit <questions>", "end after this number of lines", countArgument());
  callsService(addOutputOptions(command), io, inbox);
}

async function inbox(
  connection: Connection,
  flags: OutputFlags & { readonly project: string; readonly label?: Labels },
): Promise<void> {
  const listing = {
    state: SessionState.WAITING_FOR_PERSON,
    orderBy: SessionOrder.WAITING,
    projectId: flags.project,
    labels: flags.label ?? {},
  };
  await printRecords(asked(allSessions(connection, listing)), INBOX, { flags, io: connection.io });
}

export interface Asked {
  readonly session: Session;
  readonly question: Question;
}

async function* asked(listed: AsyncIterable<Session>): AsyncGenerator<Asked, void, undefined> {
  for await (const session of listed)
    for (const question of session.questions) yield { session, question };
}

const INBOX = {
  json: ({ session, question }: Asked) =>
    JSON.stringify({
      sessionId: idOf(session),
      since: timeText(session.stateSince),
      question: toJson(QuestionSchema, question),
    }),
  columns: [
    { heading: "SINCE", width: 20, text: ({ session }) => seconds(session.stateSince) },
    { heading: "SESSION", width: 36, text: ({ session }) => idOf(session) },
    { heading: "REASON", width: 16, text: ({ question }) => question.reason },
    { heading: "TOOL", width: 16, text: ({ question }) => question.toolName },
    wide(column("ARGUMENTS", ({ question }) => question.toolArguments, 32)),
    column("QUESTION", ({ question }) => question.message.replaceAll(/\s+/g, " ")),
  ] satisfies readonly Column<Asked>[],
};

interface SessionsFlags
  extends OutputFlags,
    TextFlags<"state" | "agent" | "query" | "project" | "parent"> {
  readonly running?: boolean;
  readonly waiting?: boolean;
  readonly label?: Labels;
  readonly order: keyof typeof ORDERS;
  readonly watch?: boolean;
}

type Listing = Exclude<
  MessageInitShape<typeof ListSessionsRequestSchema>,
  { readonly $typeName: string }
>;
type Filters = Required<Pick<Listing, "running" | "waiting" | "state" | "labels" | "projectId">>;

async function oneSession(
  { client, retry, io }: Connection,
  sessionId: string,
  flags: SessionsFlags,
): Promise<void> {
  const { running, waiting, query, label, project, parent, watch, limit, order } = flags;
  const { state, agent } = flags;
  const listing = [running, waiting, state, agent, query, label, project, parent, watch, limit];
  if (listing.some((flag) => flag !== undefined) || order !== "newest")
    throw new UsageError("session: expected no filter, --order, --watch or --limit with an id");
  const session = await client.call(ledger.getSession, { id: sessionId }, retry);
  await printRecord(session, { json: sessionJson, columns: FIELDS }, { flags, io });
}

async function sessions(connection: Connection, flags: SessionsFlags): Promise<void> {
  const { retry, io } = connection;
  const { running = false, waiting = false, label: labels = {}, project: projectId = "" } = flags;
  const { watch = false, query = "", order, parent: parentSessionId = "" } = flags;
  const { agent: agentId = "" } = flags;
  if (watch && (`${query}${parentSessionId}${agentId}` !== "" || order !== "newest"))
    throw new UsageError("--watch: expected no --query, no --parent, no --agent and no --order");
  const state = STATES.get(flags.state ?? "") ?? SessionState.UNSPECIFIED;
  const filters = { running, waiting, state, labels, projectId };
  const printing = { flags, io };
  if (!watch) {
    const listing = { ...filters, query, parentSessionId, agentId, orderBy: ORDERS[order] };
    const listed = allSessions(connection, listing);
    return printRecords(listed, { json: sessionJson, columns: COLUMNS }, printing);
  }
  const changes = reopening(() => changesOf(connection, filters), retry);
  const forms = {
    json: (event: SessionWatchEvent) => toJsonString(SessionWatchEventSchema, event),
    columns: CHANGE_COLUMNS,
  };
  return printRecords(changes, forms, printing).catch(unlessStopped(io));
}

const PAGE_SIZE = 100;

function allSessions({ client, retry }: Connection, listing: Listing): AsyncGenerator<Session> {
  const request = { ...listing, size: PAGE_SIZE };
  return allPages(
    (pageToken) => client.call(ledger.listSessions, { ...request, pageToken }, retry),
    (page) => page.items,
  );
}

/** The sessions as they are, then their changes. They are listed again where changes may be missing. */
async function* changesOf(
  connection: Connection,
  filters: Filters,
): AsyncGenerator<SessionWatchEvent, void, undefined> {
  const { client, retry } = connection;
  const { signal } = retry;
  const request = { ...filters, stateFrames: true };
  const watch = client.watch(ledger.watchSessions, request, signal === undefined ? {} : { signal });
  for await (const event of watch) {
    if (event.watchState === WatchState.UNSPECIFIED) yield event;
    if (event.watchState !== WatchState.LIVE) continue;
    for await (const session of allSessions(connection, filters))
      yield create(SessionWatchEventSchema, { session, resourceId: idOf(session) });
  }
}

const CHANGES = new Map<EventType, string>([
  [EventType.CREATED, "created"],
  [EventType.UPDATED, "updated"],
  [EventType.DELETED, "deleted"],
]);

/** A watch is about what waits and runs, so those columns are not only for `wide`. */
const SHOWN = new Set(["WAITING", "OPEN RUN"]);

const CHANGE_COLUMNS: readonly Column<SessionWatchEvent>[] = [
  {
    heading: "CHANGE",
    width: 7,
    text: ({ type }) => CHANGES.get(type) ?? "",
    style: ({ type }) => (type === EventType.DELETED ? "red" : undefined),
  },
  { heading: "ID", width: 36, text: ({ resourceId }) => resourceId },
  ...COLUMNS.filter(({ heading }) => heading !== "ID").map(ofSession),
];

function ofSession({ text, style, ...rest }: Column<Session>): Column<SessionWatchEvent> {
  return {
    ...rest,
    isWide: rest.isWide === true && !SHOWN.has(rest.heading),
    text: ({ session }) => (session === undefined ? "" : text(session)),
    style: ({ session }) => session && style?.(session),
  };
}
