/** A new session with the history of another one up to a number. */
import { v5 as uuidv5, v7 as uuidv7 } from "uuid";
import type {
  ForkSessionRequest,
  SessionService,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { outcomeOf } from "@session-ledger/agui/run-end";
import { type Principal, userIdOf } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { RateLimits } from "../ingest/rate-limits.ts";
import { type Check, checkKey, checkSessionId, checkThat, refuse } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { endIn } from "./list-extras.ts";
import { sessionDeleted, sessionNotFound } from "../store/failure.ts";
import type { Database } from "../store/database.ts";
import { type Forked, forkSession } from "../store/fork.ts";
import { readRunEnds } from "../store/session-facts.ts";
import { getSession, setRunOutcome } from "../store/sessions.ts";
import { toSession } from "./sessions.ts";

/** A copy is one statement: with 200,000 rows, or 128 MiB, it ends well before STATEMENT_TIMEOUT_MS. */
const FORK_ROWS_MAX = 200_000;
const FORK_BYTES_MAX = 128 * 1024 * 1024;
/** Of the end of its last run. */
const END_BYTES_MAX = 1024 * 1024;

interface ForkParts {
  readonly database: Database;
  /** Called after the commit. */
  readonly onChange: (sessionId: string) => void;
  /** Undefined while the disk has room. */
  readonly refusal: () => ServiceError | undefined;
  readonly rates: RateLimits;
}

export function createForkSession({
  database,
  onChange,
  refusal,
  rates,
}: ForkParts): Handlers<typeof SessionService>["forkSession"] {
  return async (request, { principal }) => {
    refuse(checksOf(request));
    const full = refusal();
    if (full !== undefined) throw full;
    const { sessionId, atSeq, atMessageSeq } = request;
    const forkId = idFor(request, principal);
    const asked = {
      sessionId,
      forkId,
      atSeq: atSeq === 0n ? undefined : atSeq,
      atMessageSeq: atMessageSeq === 0n ? undefined : atMessageSeq,
      createdByUserId: userIdOf(principal),
      rowsMax: FORK_ROWS_MAX,
      bytesMax: FORK_BYTES_MAX,
    };
    // Only the copy tells its bytes, so a caller that has taken too many waits before the next one.
    rates.take(principal, forkId, 0);
    const forked = await forkSession(database, asked);
    if (forked.kind !== "forked") throw refusalOf(forked, request);
    // After the commit of the copy, whose function reads no payloads; a repeated request does it again.
    const ends = await readRunEnds(database, [forkId], { payloadBytesMax: END_BYTES_MAX });
    const end = ends.get(forkId);
    if (end !== undefined)
      await setRunOutcome(database, forkId, outcomeOf(endIn(end)), end.atMicros);
    if (!forked.again) onChange(forkId);
    const session = await getSession(database, forkId);
    if (session === undefined) throw sessionNotFound(forkId);
    if (!forked.again) rates.charge(principal, forkId, Number(session.payloadBytes));
    return toSession(session);
  };
}

/** The namespace of the ids of forks with a key, made at random. */
const KEYED = "5d1b7f0e-6c38-4d0b-9a55-3f6e1f7c2a94";

/** Only callers who see every session choose `new_id` (audited.ts); keys hold for a project. */
function idFor(
  { sessionId, newId, idempotencyKey }: ForkSessionRequest,
  { projectId = null }: { readonly projectId?: Principal["projectId"] | null },
): string {
  if (newId !== "") return newId;
  if (idempotencyKey === "") return uuidv7();
  return uuidv5(JSON.stringify([projectId, sessionId, idempotencyKey]), KEYED);
}

function checksOf(request: ForkSessionRequest): Check[] {
  const { sessionId, newId, idempotencyKey, atSeq, atMessageSeq } = request;
  const description = "at_seq or at_message_seq is required, and not both; from 1";
  return [
    checkSessionId(sessionId),
    newId === "" ? checkKey(idempotencyKey) : checkSessionId(newId, "new_id"),
    checkThat(
      "idempotency_key",
      newId === "" || idempotencyKey === "",
      "must be empty with a new_id",
    ),
    checkThat("new_id", newId === "" || newId !== sessionId, "must be another id"),
    atSeq < 0n || atMessageSeq < 0n || (atSeq === 0n) === (atMessageSeq === 0n)
      ? { field: atMessageSeq === 0n ? "at_seq" : "at_message_seq", description }
      : undefined,
  ];
}

function refusalOf(
  forked: Exclude<Forked, { readonly kind: "forked" }>,
  { sessionId, newId, idempotencyKey, atSeq, atMessageSeq }: ForkSessionRequest,
): ServiceError {
  const [field, seq] = atSeq > 0n ? ["at_seq", atSeq] : ["at_message_seq", atMessageSeq];
  switch (forked.kind) {
    case "not_found":
      return sessionNotFound(sessionId);
    case "deleted":
      return sessionDeleted(sessionId);
    case "exists": {
      if (newId === "") return keyReused(sessionId, idempotencyKey);
      const violations = [{ field: "new_id", description: "expected the id of no session" }];
      const message = `another session has the id ${newId}`;
      return new ServiceError("already_exists", "SESSION_EXISTS", message, { violations });
    }
    case "beyond": {
      const violations = [{ field, description: `expected at most ${forked.head}` }];
      const message = `${field} is above the newest number of the session, which is ${forked.head}`;
      return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message, { violations });
    }
    case "erased": {
      const violations = [{ field, description: "expected the number of an existing row" }];
      const message = `no row of session ${sessionId} ends at or below number ${seq}: its rows were erased, or the number is inside the first row`;
      return new ServiceError("out_of_range", "ROW_ERASED", message, { violations });
    }
    case "too_large": {
      const { rows, bytes } = forked;
      const message = `the history up to number ${seq} has at least ${rows} rows and ${bytes} bytes; a fork has at most ${FORK_ROWS_MAX} rows and ${FORK_BYTES_MAX} bytes`;
      return new ServiceError("failed_precondition", "FORK_TOO_LARGE", message);
    }
  }
}

function keyReused(sessionId: string, key: string): ServiceError {
  const field = "idempotency_key";
  const violations = [{ field, description: "expected a key of no other fork of the session" }];
  const message = `the key ${JSON.stringify(key)} has made another fork of session ${sessionId}, or one that was deleted`;
  return new ServiceError("already_exists", "KEY_REUSED", message, { violations });
}
