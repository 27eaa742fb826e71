import postgres from "postgres";

/** A connection past all proxies, for what the harness itself does to the database. */
export function openSql(url: string): postgres.Sql {
  // Types are not asked for: when the server goes meanwhile, nobody hears that it could not say.
  const options = { max: 1, connect_timeout: 5, fetch_types: false };
  return postgres(url, { ...options, onnotice: () => undefined });
}
