/**
 * The check of the database at the start, before anything is changed: whether a commit is on disk,
 * and whether a pooler in between carries what the service needs.
 *
 * A pooler shows itself by its cancel key: the process that it names is not the one that answers.
 * One that lends a server connection for a transaction loses prepared statements, unless it prepares
 * them itself: so a statement is prepared, a transaction takes the connection that was used last, and
 * the statement is used again. The driver hides the loss: it prepares the statement under another
 * name, at the price of two more round trips. The server keeps every name until its connection ends,
 * so a busy service would fill the server's memory.
 */
import type postgres from "postgres";
import { type ServiceError, settingRefused } from "@session-ledger/base/errors";
import { within } from "@session-ledger/base/timers";
import {
  connectPool,
  createDatabase,
  type DatabaseOptions,
  type Fields,
  lossOf,
  SERVER_TEXT,
  sql,
} from "./database.ts";
import { storeError } from "./failure.ts";

/** Longer than the limit of a connection, whose error says more. */
const ANSWER_LIMIT_MS = 10_000;
/** With a single server connection the pooler lets the statement wait, and loses nothing. */
const SHARED_LIMIT_MS = 1_000;

/** Settings that PgBouncer passes on by itself. */
const PASSED_ON = ["application_name", "TimeZone", "DateStyle"];

/**
 * `set_config` answers with the value as PostgreSQL writes it, and holds for this statement alone.
 * A search_path is a list of names, and no text.
 */
const LOST = `
  with wanted as materialized (
    select s.name, w.value from json_each_text($1::text::json) w
    join pg_settings s on lower(s.name) = lower(w.key) and s.context = 'user')
  select string_agg(format('ALTER ROLE %I SET %s = %s;', current_user, name,
    case name when 'search_path' then value else quote_literal(value) end), ' ') as lost
  from wanted where current_setting(name) is distinct from set_config(name, value, true)`;
/** With a value: the driver prepares no statement without one. */
const PREPARED = "select pg_backend_pid() + $1::int as pid";

/** Rejects with a sentence that names the setting and the expected value. */
export async function checkServer(options: DatabaseOptions): Promise<void> {
  const one = { ...options, connectionsMax: 1 };
  const pool = connectPool(one, () => undefined);
  const settings = Object.entries(pool.client.options.connection).filter(
    ([name]) => !PASSED_ON.includes(name),
  );
  const names = settings.map(([name]) => name).join(",");
  const ask: Ask = (text, values, prepare = false) => {
    const answer = pool.client.unsafe<Fields[]>(text, [...values], { prepare });
    return within<postgres.RowList<Fields[]>>(answer, LIMIT);
  };
  try {
    const held = await ask(`select ${SERVER_TEXT} as server, pg_backend_pid() as pid`, []);
    const { server, pid } = held[0] ?? {};
    const loss = options.allowsLoss === true ? undefined : lossOf(String(server));
    if (loss !== undefined) {
      throw refused(`acknowledged rows may be lost: ${loss}; ALLOW_LOSS=yes accepts that`);
    }
    if (options.isSharded === true && options.allowsLoss !== true) await checkNodes(ask);
    if (pid === held.state.pid) return;
    const [{ lost } = {}] = await ask(LOST, [JSON.stringify(Object.fromEntries(settings))]);
    if (typeof lost === "string") {
      throw refused(`a pooler drops settings of the connections, expected for the role: ${lost}`);
    }
    const prepared = () => ask(PREPARED, ["0"], true);
    if (pool.client.options.prepare && (await losesStatements(one, prepared))) {
      throw refused(
        "a pooler loses prepared statements, expected max_prepared_statements = 200 (PgBouncer 1.21 or newer), pool_mode = session, or ?prepare=false at the end of the URL",
      );
    }
  } catch (error) {
    if (error instanceof Error && error.message.includes("startup parameter")) {
      throw refused(
        `a pooler refuses settings of the connections (${error.message}), expected ignore_startup_parameters = ${names} in its configuration, and the same settings for the role`,
      );
    }
    throw storeError(error);
  } finally {
    pool.sockets.refuse("CONNECTION_ENDED");
    await pool.client.end({ timeout: 1 });
    await pool.sockets.destroy();
  }
}

type Ask = (
  text: string,
  values: readonly string[],
  prepare?: boolean,
) => Promise<postgres.RowList<Fields[]>>;

/** Commits of a session are on its node, whose settings the coordinator does not pass on. A lost node is left out. */
async function checkNodes(ask: Ask): Promise<void> {
  const [citus] = await ask(
    "select to_regproc('run_command_on_all_nodes') is not null as found",
    [],
  );
  if (citus?.["found"] !== true) return;
  const nodes = await ask("select nodeid, success, result from run_command_on_all_nodes($1)", [
    `select ${SERVER_TEXT}`,
  ]);
  for (const { nodeid, success, result } of nodes) {
    const loss = success === true ? lossOf(String(result)) : undefined;
    if (loss === undefined) continue;
    throw refused(
      `acknowledged rows may be lost on node ${String(nodeid)} of pg_dist_node: ${loss}; ALLOW_LOSS=yes accepts that`,
    );
  }
}

const LIMIT = {
  limitMs: ANSWER_LIMIT_MS,
  onTimeout: () =>
    Promise.reject(Object.assign(new Error("the check had no answer"), { code: "ETIMEDOUT" })),
};

async function losesStatements(
  options: DatabaseOptions,
  prepared: () => Promise<postgres.RowList<Fields[]>>,
): Promise<boolean> {
  const { statement: before } = await prepared();
  return createDatabase(options).transaction(async (transaction) => {
    await transaction.execute(sql`select 1`);
    const again = prepared().then(({ statement }) => statement.name !== before.name);
    return within(again, { limitMs: SHARED_LIMIT_MS, onTimeout: () => false });
  });
}

function refused(why: string): ServiceError {
  return settingRefused("DATABASE_URL", why);
}
