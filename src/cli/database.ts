/**
 * The commands that work on the database itself, without a service. The store and the embedded
 * server are imported when a command needs them: `push` and `tail` start without them.
 */
import { type Command, InvalidArgumentError, Option } from "commander";
import { type Config, loadConfig } from "../config/config.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/retention.ts";
import { createLog } from "../observability/log.ts";
import type { Database } from "../store/database.ts";
import type { MigrationStatus, SchemaOptions } from "../store/migrate.ts";
import { addSessionArgument, countArgument, namedSession, type SessionFlag } from "./arguments.ts";
import {
  type CliIo,
  EXIT,
  type ExitCode,
  type MigrateCommand,
  type MigrateOptions,
  Printer,
  printLine,
  tell,
  UsageError,
} from "./io.ts";
import { configOf, type Finish } from "./serve.ts";

export function addMigrate(program: Command, io: CliIo, finish: Finish): void {
  const group = program
    .command("migrate")
    .description("migrate the database schema, or show its state");
  const add = (command: MigrateCommand, description: string): Command =>
    group
      .command(command)
      .description(description)
      .action(async (flags: MigrateFlags) => finish(await migrate(command, flags, io)));
  add("up", "apply the pending migrations; `serve` does the same when it starts").addOption(
    new Option(
      "--partitions <n>",
      "in a new database, divide the tables of rows and texts into n partitions",
    ).argParser(countArgument(PARTITIONS_MAX)),
  );
  add("down", "revert the newest migration, and delete the rows of its tables")
    .option("-y, --yes", "required, because the rows cannot be restored")
    .option("--force", "also while instances of session-ledger are connected to the database");
  add("status", "list the applied and the pending migrations");
}

export function addRetention(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("retention")
    .summary("erase old runs, in the database itself")
    .description(
      "erase old runs from the beginning of their sessions, in the database itself; the service does the same with RETENTION_AFTER",
    );
  addSessionArgument(command, "only of this session; default: of all sessions")
    .addOption(
      new Option("--older-than <age>", "runs that ended at least this long ago: 30d, 720h, 90m")
        .argParser(ageArgument)
        .makeOptionMandatory(),
    )
    .option("--dry-run", "count the rows, and erase none")
    .option("--json", "the summary as JSON on stdout")
    .action(async (session: string | undefined, flags: RetentionFlags) =>
      finish(await retention(namedSession(session, flags), flags, io)),
    );
}

export function addReindex(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("reindex")
    .summary("make search and analytics again, from the rows")
    .description(
      "make the index of search and the runs of analytics again, from the rows; needed after a change of SEARCH_LANGUAGE. A running service does the work in its pauses",
    );
  addSessionArgument(command, "only of this session; default: of all sessions").action(
    async (session: string | undefined, flags: SessionFlag) =>
      finish(await reindex(namedSession(session, flags), io)),
  );
}

/** Forgets the stored texts and runs of one session, or of all, and stores them again. */
async function reindex(sessionId: string | undefined, io: CliIo): Promise<ExitCode> {
  const { reindexTexts } = await import("../search/reindex.ts");
  const config = configOf(io);
  const asked = { sessionId, signal: io.signal, language: config.searchLanguage };
  const { texts, runs, isLeft } = await inDatabase(config, (one) => reindexTexts(one, asked));
  const line = isLeft
    ? "a running service stores the texts and runs again"
    : `stored ${texts} texts and ${runs} runs`;
  await printLine(io, line);
  return io.signal.aborted ? EXIT.interrupted : EXIT.done;
}

/** Has the rules of RETENTION_AFTER. */
function ageArgument(text: string): number {
  const loaded = loadConfig({ RETENTION_AFTER: text });
  const ageMs = loaded.ok ? loaded.config.retentionAfterMs : undefined;
  if (ageMs !== undefined) return ageMs;
  throw new InvalidArgumentError("Expected an age like 30d, 720h, 90m, up to 3650d.");
}

/** Each statement opens all partitions of its table. */
const PARTITIONS_MAX = 128;

interface MigrateFlags {
  readonly partitions?: number;
  readonly yes?: boolean;
  readonly force?: boolean;
}

async function migrate(
  command: MigrateCommand,
  { yes = false, force = false, partitions }: MigrateFlags,
  io: CliIo,
): Promise<ExitCode> {
  const config = configOf(io);
  if (command === "down" && !yes) {
    throw new UsageError(
      "migrate down drops the tables of the newest migration, with their rows; add --yes",
    );
  }
  const { applied, pending, unknown } = await io.migrate(command, { force, partitions }, config);
  const printer = new Printer(io.stdout, io.signal);
  for (const tag of applied) await printer.print(`applied ${tag}`);
  for (const tag of pending) await printer.print(`pending ${tag}`);
  if (unknown > 0) {
    tell(io, `the schema is newer than this version: ${unknown} unknown migrations`);
    return EXIT.incomplete;
  }
  return command === "down" || pending.length === 0 ? EXIT.done : EXIT.incomplete;
}

interface RetentionFlags extends SessionFlag {
  /** Milliseconds. */
  readonly olderThan: number;
  readonly dryRun?: boolean;
  readonly json?: boolean;
}

async function retention(
  sessionId: string | undefined,
  { olderThan: afterMs, dryRun = false, json = false }: RetentionFlags,
  io: CliIo,
): Promise<ExitCode> {
  const options = { afterMs, sessionId, dryRun, signal: io.signal };
  const summary = await io.retention(options, configOf(io));
  if (summary === undefined) {
    tell(io, `session ${sessionId} does not exist`);
    return EXIT.refused;
  }
  const { sessions, sessionsErased, sessionsBusy, messages, events, payloadBytes } = summary;
  const line = json
    ? JSON.stringify({ dryRun, ...summary })
    : `${dryRun ? "would erase" : "erased"} ${events} events and ${messages} messages (${payloadBytes} payload bytes) of ${sessionsErased} of ${sessions} sessions`;
  await printLine(io, line);
  if (io.signal.aborted) return EXIT.interrupted;
  if (sessionsBusy === 0) return EXIT.done;
  tell(io, `${sessionsBusy} sessions were locked all the time: run the command again`);
  return EXIT.incomplete;
}

export async function migrateDatabase(
  command: MigrateCommand,
  options: MigrateOptions,
  config: Config,
): Promise<MigrationStatus> {
  const { migrateDown, migrateUp, migrationStatus } = await import("../store/migrate.ts");
  const run = { up: migrateUp, down: migrateDown, status: migrationStatus }[command];
  const { databaseSchema: schema, engine } = config;
  return withDatabaseUrl(config, {}, (url) => run(url, { ...options, schema, engine }));
}

export async function retainDatabase(
  options: RetentionOptions,
  config: Config,
): Promise<RetentionSummary | undefined> {
  const { retentionPass } = await import("../maintenance/retention.ts");
  return withDatabase(config, (database) => retentionPass({ database }, options));
}

/** For commands on a whole ledger while services run; their statements may read whole tables. */
export function inDatabase<T>(
  config: Config,
  work: (database: Database) => Promise<T>,
  prepare?: DatabaseUse["prepare"],
): Promise<T> {
  return withDatabase(config, work, { joins: true, statementTimeoutMs: 600_000, prepare });
}

export async function withDatabase<T>(
  config: Config,
  work: (database: Database) => Promise<T>,
  { prepare, joins = false, statementTimeoutMs = config.statementTimeoutMs }: DatabaseUse = {},
): Promise<T> {
  const { createDatabase } = await import("../store/database.ts");
  const { refuseOtherSchema } = await import("../store/migrate.ts");
  return withDatabaseUrl(config, { joins }, async (url) => {
    const { lockTimeoutMs, databaseSchema: schema, engine } = config;
    await (prepare ?? refuseOtherSchema)(url, { schema, engine });
    // A command runs one statement at a time, and a pool that lost a connection opens another.
    const limits = { connectionsMax: 2, statementTimeoutMs, lockTimeoutMs };
    const isSharded = engine === "citus";
    const database = createDatabase({ url: () => url, ...limits, isSharded });
    try {
      await database.start();
      return await work(database);
    } finally {
      await database.stop();
    }
  });
}

interface DatabaseUse {
  /** Runs first, and checks or migrates the schema; default: another schema is refused. */
  readonly prepare?: ((url: string, options: SchemaOptions) => Promise<unknown>) | undefined;
  /** Works while a service runs the embedded database. */
  readonly joins?: boolean;
  readonly statementTimeoutMs?: number;
}

/** Runs with the URL of the database; an embedded one runs for it, unless the work may join it. */
async function withDatabaseUrl<T>(
  config: Config,
  { joins = false }: DatabaseUse,
  work: (url: string) => Promise<T>,
): Promise<T> {
  const { inSchema } = await import("../store/database.ts");
  if (config.databaseUrl !== undefined) {
    const { databaseUrl: url, databaseSchema } = config;
    const { naming } = await import("../store/failure.ts");
    return naming({ setting: "DATABASE_URL", url }, () => work(inSchema(url, databaseSchema)));
  }
  const { runningServer } = await import("../postgres/cluster.ts");
  const running = joins ? await runningServer(config.dataDir) : undefined;
  if (running !== undefined) return work(inSchema(running.url, config.databaseSchema));
  const { createEmbeddedPostgres } = await import("../postgres/embedded-postgres.ts");
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const embedded = createEmbeddedPostgres({ dataDir: config.dataDir, log });
  await embedded.start();
  try {
    return await work(inSchema(embedded.url, config.databaseSchema));
  } finally {
    await embedded.stop();
  }
}
