import postgres from "postgres";

/** A connection past all proxies, for what the harness itself does to the database. */
export function openSql(url: string): postgres.Sql {
  return postgres(url, { max: 1, onnotice: () => undefined, connect_timeout: 5 });
}
