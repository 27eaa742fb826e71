import postgres from "postgres";

/** A connection past all proxies, for statements of the harness itself. */
export function openSql(url: string): postgres.Sql {
  // postgres.js asks for the types of arrays in a promise that nobody catches: a lost connection would
  // end the process. So no statement has an array as a parameter.
  const options = { max: 1, connect_timeout: 5, fetch_types: false };
  return postgres(url, { ...options, onnotice: () => undefined });
}

export async function closed(sql: postgres.Sql): Promise<void> {
  await sql.end({ timeout: 1 }).catch(() => undefined);
}
