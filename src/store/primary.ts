/**
 * Finds the primary among the hosts of a URL, before each new connection.
 *
 * The driver's own `target_session_attrs` is not used: with several hosts postgres.js 3.4.9 reports
 * no failed connection (error() in connection.js), and tries the next host without a pause. While no
 * host was a primary, a statement would wait for its deadline, and then count as sent. Here
 * all hosts are asked at the same time, each on a short connection.
 */
import postgres from "postgres";
import { codeOf, failureOf, reasonOf } from "./failure.ts";
import type { SocketTarget } from "./pools.ts";

/** A host that does not answer within this time is not the primary; the next try asks it again. */
const ANSWER_LIMIT_S = 2;

export interface Primary {
  readonly url: string;
  readonly target: SocketTarget;
}

/** Rejects with a code that means "not sent", unless the user or the database is refused. */
export async function findPrimary(urls: readonly string[]): Promise<Primary> {
  const clients = urls.map((url) =>
    postgres(url, {
      max: 1,
      connect_timeout: ANSWER_LIMIT_S,
      fetch_types: false,
      max_lifetime: null,
      onnotice: () => undefined,
      connection: { application_name: "session-ledger-primary" },
    }),
  );
  const asked = clients.map(async (client, at): Promise<Primary> => {
    const [row] = await client.unsafe<{ standby: boolean }[]>(
      "select pg_is_in_recovery() as standby",
    );
    if (row?.standby !== false) throw new Error("a standby answers");
    const { host, port } = client.options;
    return { url: urls[at] ?? "", target: { host, port, path: false } };
  });
  try {
    return await Promise.any(asked);
  } catch (error) {
    const causes: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
    throw causes.find(isRefusal) ?? noPrimary(causes.map(reasonOf).join("; "));
  } finally {
    for (const client of clients) void client.end({ timeout: 0 });
  }
}

/** Such as a wrong password: another try does not mend it. */
function isRefusal(cause: unknown): cause is Error {
  return codeOf(cause) !== undefined && failureOf(cause) === "defect" && cause instanceof Error;
}

/** As PostgreSQL says of a failover that is under way (read_only_sql_transaction). */
function noPrimary(why: string): Error {
  return Object.assign(new Error(`no host is a primary: ${why}`), { code: "25006" });
}
