/** Copies the beginning of a session; the rules are in the function ledger_fork_session (migrations/session.sql). */
import { ServiceError } from "@session-ledger/base/errors";
import { bigintOf, type Database, sql } from "./database.ts";
import { codeOf, failureOf, storeError } from "./failure.ts";
import { type SessionScope, listedIn } from "./sessions.ts";
import { sessions } from "./schema.ts";

export interface ForkRequest {
  readonly sessionId: string;
  readonly forkId: string;
  /** One of the two is given. */
  readonly atSeq: bigint | undefined;
  readonly atMessageSeq: bigint | undefined;
  readonly createdByUserId: string | undefined;
  readonly rowsMax: number;
  readonly bytesMax: number;
}

export type Forked =
  | { readonly kind: "forked"; readonly again: true }
  | { readonly kind: "forked"; readonly again: false; readonly rows: number }
  /** A session of that id was made by another request. */
  | { readonly kind: "exists" | "not_found" | "deleted" }
  /** No row ends at or below the number. */
  | { readonly kind: "erased" }
  | { readonly kind: "beyond"; readonly head: bigint }
  | { readonly kind: "too_large"; readonly rows: number; readonly bytes: number };

/** Each further try means that another transaction was first: the next one sees what it did. */
const TRIES_MAX = 4;

/** Resolves after commit. */
export async function forkSession(database: Database, request: ForkRequest): Promise<Forked> {
  const { sessionId, forkId, atSeq, atMessageSeq, createdByUserId: maker } = request;
  // A fork has chains of the copied rows (ledger_extend_chains, migrations/chain.sql).
  const statement = sql`
    with forked as materialized (
      select ledger_fork_session(${sessionId}::text, ${forkId}::text, ${atSeq?.toString() ?? null}::text::bigint,
        ${atMessageSeq?.toString() ?? null}::text::bigint, ${maker ?? null}::text, ${request.rowsMax}::bigint,
        ${request.bytesMax}::bigint) as answer
    )
    select answer::text as answer, case when answer->>'kind' = 'forked' and answer->>'again' = 'false'
      then ledger_extend_chains(${forkId}::text, 0, 0) end from forked`;
  for (let tries = 1; ; tries += 1) {
    try {
      const [row] = await database.attempt(statement);
      return forkedOf(JSON.parse(String(row?.["answer"])));
    } catch (error) {
      if (failureOf(error) === "slow") throw tooSlow(error);
      if (!wasFirst(error) || tries === TRIES_MAX) throw storeError(error);
    }
  }
}

type ForkAnswer = Exclude<Forked, { readonly kind: "beyond" }> | { kind: "beyond"; head: string };

function forkedOf(answer: ForkAnswer): Forked {
  return answer.kind === "beyond" ? { kind: "beyond", head: bigintOf(answer.head) } : answer;
}

/** unique_violation, no_data_found (the parent was deleted), or a lock that another one holds. */
function wasFirst(error: unknown): boolean {
  return ["23505", "P0002"].includes(codeOf(error) ?? "") || failureOf(error) === "locked";
}

function tooSlow(cause: unknown): ServiceError {
  const message = "the copy took longer than STATEMENT_TIMEOUT_MS; nothing was stored";
  const options = { cause, retryAfterMs: 10_000 };
  return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message, options);
}

const FORKS_MAX = 100;

/** The newest forks that the caller sees. */
export async function forksOf(
  database: Database,
  parentSessionId: string,
  { projectId, sessionId }: SessionScope,
): Promise<readonly string[]> {
  const listed = listedIn({ scope: { projectId, sessionId }, filter: { parentSessionId } });
  const rows = await database.run(sql`
    select id from ${sessions} where ${listed}
      and (forked_at_seq is not null or forked_at_message_seq is not null)
    order by created_at desc nulls last, id desc nulls last limit ${FORKS_MAX}`);
  return rows.map(({ id }) => String(id));
}
