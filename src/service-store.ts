/** The database, and the parts of the store for the rest of the service. Part of service.ts. */
import type { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "./base/unit.ts";
import type { Config } from "./config/config.ts";
import type { LedgerWriter } from "./ingest/opener.ts";
import type { Log } from "./observability/log.ts";
import type { Metrics } from "./observability/metrics.ts";
import type { CommitFailures } from "./observability/readiness.ts";
import { append, type AppendOptions, appendNothing } from "./store/append.ts";
import { createDatabase, type Database, inSchema } from "./store/database.ts";
import { DiskSpace } from "./store/disk-space.ts";
import { createEmbeddedPostgres, freeBytesAt } from "./postgres/embedded-postgres.ts";
import { codeOf, commitsMayBeLost, isOfDatabase, isNodeLost, naming } from "./store/failure.ts";
import { migrateUp } from "./store/migrate.ts";
import { checkServer } from "./store/server-check.ts";
import type { WorkerTask } from "./workers.ts";
import { openStream } from "./store/streams.ts";

export interface Postgres {
  readonly database: Database;
  /** Connections for pushes alone, and for what a push asks first. */
  readonly writes: Database;
  /** The number of connections of `database`. */
  readonly readConnections: number;
  /** With the schema of the settings … */
  readonly url: () => string;
  /** … and as it was given, or as the embedded server has it. */
  readonly givenUrl: () => string;
  /** The folder of the embedded server; undefined without one. */
  readonly pgData: () => string | undefined;
  /** The embedded server, if it is used, and the schema: what one process does for all workers. */
  readonly made: readonly Unit[];
  readonly units: readonly Unit[];
  /** Rejects when a push could not be stored now. */
  readonly probe: () => Promise<void>;
  /** Undefined while commits are on disk, and the disk has room for pushes. */
  readonly refusal: () => ServiceError | undefined;
}

/** The database and the units before it. A worker finds what its parent has made. */
export function createPostgres(
  config: Config,
  { log, metrics }: { readonly log: Log; readonly metrics: Metrics },
  task?: WorkerTask,
): Postgres {
  const {
    databaseUrl,
    dataDir,
    databaseSchema,
    diskReserveBytes: reserveBytes,
    integrity,
  } = config;
  const restarted = (): void => metrics.postgresRestarts.inc();
  const embedded =
    task === undefined && databaseUrl === undefined
      ? createEmbeddedPostgres({ dataDir, log, restarted })
      : undefined;
  const givenUrl = (): string => task?.databaseUrl ?? databaseUrl ?? embedded?.url ?? "";
  const pgData = (): string | undefined => embedded?.pgData ?? task?.pgData;
  const url = (): string => inSchema(givenUrl(), databaseSchema);
  const migrate = () => migrateUp(url(), { schema: databaseSchema, engine: config.engine });
  const { databaseConnections, statementTimeoutMs, lockTimeoutMs, allowLoss: allowsLoss } = config;
  const isSharded = config.engine === "citus";
  const options = { url, statementTimeoutMs, lockTimeoutMs, allowsLoss, isSharded };
  const writeConnections = Math.ceil(databaseConnections / 2);
  const readConnections = databaseConnections - writeConnections;
  const writeOptions = { ...options, connectionsMax: writeConnections, hasFixedPlans: true };
  const checkAndMigrate = async () => {
    await checkServer(writeOptions);
    return migrate();
  };
  const schema: Unit = {
    async start() {
      const { applied } = await (databaseUrl === undefined
        ? migrate()
        : naming({ setting: "DATABASE_URL", url: databaseUrl }, checkAndMigrate));
      log.info({ schema: applied.at(-1) }, "schema is up to date");
    },
    stop: () => Promise.resolve(),
  };
  const database = createDatabase({ ...options, connectionsMax: readConnections });
  const writes = {
    ...createDatabase(writeOptions),
    onAnswer: database.onAnswer.bind(database),
    onCommit: database.onCommit.bind(database),
  };
  const seen = (freeBytes: number): void =>
    metrics.diskFree.set({ setting: "DATA_DIR" }, freeBytes);
  const freeBytes = (): Promise<number> => freeBytesAt(pgData() ?? "");
  const hasFiles = embedded !== undefined || task?.pgData !== undefined;
  const disk = hasFiles ? new DiskSpace({ freeBytes, reserveBytes, log, seen }) : undefined;
  return {
    database,
    writes,
    readConnections,
    url,
    givenUrl,
    pgData,
    made: task === undefined ? [embedded, schema].filter((unit) => unit !== undefined) : [],
    units: [disk, database, writes].filter((unit) => unit !== undefined),
    async probe() {
      if (hasFiles) await freeBytes();
      await appendNothing(writes, { hasChains: integrity === "chain" });
    },
    refusal() {
      const loss = database.loss();
      return loss === undefined ? disk?.refusal : commitsMayBeLost(loss);
    },
  };
}

type WriterParts = Pick<Metrics, "limitUse"> &
  Required<Pick<LedgerWriter, "refusal">> & { readonly commits: CommitFailures };

export function createWriter(
  database: Database,
  limits: Config,
  { limitUse, commits, refusal }: WriterParts,
): LedgerWriter {
  const options = {
    createMissing: limits.sessionPolicy === "auto",
    hasChains: limits.integrity === "chain",
  };
  const onMost: AppendOptions["onMost"] = ({ rows, bytes }) => {
    limitUse.note("session_rows", rows / limits.sessionRowsMax);
    limitUse.note("session_bytes", bytes / limits.sessionBytesMax);
  };
  const { sessionCallsMax } = database;
  const isSharded = sessionCallsMax !== undefined;
  return {
    sessionCallsMax,
    async append(pushes, { wait }) {
      try {
        const outcomes = await append(database, pushes, { ...options, wait, limits, onMost });
        if (commits.count > 0) commits.succeeded();
        return outcomes;
      } catch (error) {
        const isCounted = isOfDatabase(error) && !(isSharded && isNodeLost(error));
        if (isCounted) commits.failed(codeOf(error) ?? "");
        throw error;
      }
    },
    refusal,
    openStream: (request, { wait }) => openStream(database, request, { ...options, wait }),
  };
}
