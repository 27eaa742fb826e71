/** Reads the views of analytics for a report; every role that may read the views may do it. */
import { type JsonObject, parseObject } from "../agui/json.ts";
import { ServiceError } from "../base/errors.ts";
import { isoOf } from "../store/columns.ts";
import { type Database, type SQL, sql } from "../store/database.ts";
import { analyticsSchema } from "../store/migrate.ts";

export const VIEWS = ["daily_usage", "tools", "runs", "sessions"] as const;
export type View = (typeof VIEWS)[number];

export interface ReportRequest {
  readonly views: readonly View[];
  readonly sinceMicros: bigint;
  /** Undefined: all projects. */
  readonly projectId: string | undefined;
  readonly rowsMax: number;
}

export interface Reported {
  readonly view: View;
  readonly columns: readonly string[];
  /** Counts, times and names by the name of their column. */
  readonly rows: readonly JsonObject[];
  /** True: there are further rows. */
  readonly isCut: boolean;
}

export async function readReport(
  database: Database,
  schema: string | undefined,
  request: ReportRequest,
): Promise<readonly Reported[]> {
  const name = analyticsSchema(schema);
  const [found] = await database.run(
    sql`select to_regclass(${`"${name}".version`}) is not null as there`,
  );
  if (found?.["there"] !== true) {
    const message = `the database has no views in the schema ${name}: run migrate up, or set DATABASE_SCHEMA as the service has it`;
    throw new ServiceError("failed_precondition", "SCHEMA_OLDER", message);
  }
  const reported: Reported[] = [];
  for (const view of request.views) {
    const rows = await database.run(statementOf(sql.raw(`"${name}"`), view, request), {
      prepare: false,
    });
    const records = rows.map(({ record }) => parseObject(String(record)));
    const isCut = records.length > request.rowsMax;
    const shown = records.slice(0, request.rowsMax);
    reported.push({ view, columns: await columnsOf(database, name, view), rows: shown, isCut });
  }
  return reported;
}

function statementOf(schema: SQL, view: View, request: ReportRequest): SQL {
  const { sinceMicros, projectId, rowsMax } = request;
  const since = sql`${isoOf(sinceMicros)}::timestamptz`;
  const of = projectId === undefined ? sql`` : sql` and project_id = ${projectId}`;
  const { from, order } = {
    daily_usage: {
      from: sql`${schema}.daily_usage where day >= (${since} at time zone 'UTC')::date`,
      order: sql`day desc, runs desc, project_id, agent_id, model`,
    },
    tools: {
      from: sql`${schema}.tools_since(${since}) where true`,
      order: sql`calls desc, tool, project_id`,
    },
    runs: {
      from: sql`${schema}.runs where started_at >= ${since}`,
      order: sql`started_at desc, session_id, run_seq`,
    },
    sessions: {
      from: sql`${schema}.sessions where last_activity_at >= ${since}`,
      order: sql`last_activity_at desc, session_id`,
    },
  }[view];
  return sql`
    select row_to_json(v)::text as record
    from (select * from ${from}${of} order by ${order} limit ${rowsMax + 1}) v`;
}

/** A report without rows has columns too. */
async function columnsOf(
  database: Database,
  schema: string,
  view: View,
): Promise<readonly string[]> {
  const columns = await database.run(sql`
    select attname::text as name from pg_attribute
    where attrelid = to_regclass(${`"${schema}".${view}`}) and attnum > 0 order by attnum`);
  return columns.map(({ name }) => String(name));
}
