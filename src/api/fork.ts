/** A new session with the history of another one up to a number. */
import type { ForkSessionRequest, SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { userIdOf } from "../auth/principal.ts";
import { ServiceError } from "../base/errors.ts";
import type { RateLimits } from "../ingest/rate-limits.ts";
import type { Check } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { sessionDeleted, sessionNotFound } from "../store/failure.ts";
import type { Forked, ForkRequest } from "../store/fork.ts";
import type { SessionRecord } from "../store/sessions.ts";
import { refuse, toSession } from "./sessions.ts";

/** A copy is one statement: with 200,000 rows, or 128 MiB, it ends well before STATEMENT_TIMEOUT_MS. */
const FORK_ROWS_MAX = 200_000;
const FORK_BYTES_MAX = 128 * 1024 * 1024;

export interface ForkParts {
  readonly fork: (request: ForkRequest) => Promise<Forked>;
  readonly getSession: (id: string) => Promise<SessionRecord | undefined>;
  /** Called after the commit. */
  readonly changed: (sessionId: string) => void;
  /** Undefined while the disk has room. */
  readonly refusal: () => ServiceError | undefined;
  readonly rates: RateLimits;
}

export function createForkHandlers({
  fork,
  getSession,
  changed,
  refusal,
  rates,
}: ForkParts): Pick<Handlers<typeof SessionService>, "forkSession"> {
  return {
    async forkSession(request, { principal }) {
      refuse(checksOf(request));
      const full = refusal();
      if (full !== undefined) throw full;
      const { sessionId, newId: forkId, atSeq, atMessageSeq } = request;
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
      const forked = await fork(asked);
      if (forked.kind !== "forked") throw refusalOf(forked, request);
      if (!forked.again) changed(forkId);
      const session = await getSession(forkId);
      if (session === undefined) throw sessionNotFound(forkId);
      if (!forked.again) rates.charge(principal, forkId, Number(session.payloadBytes));
      return toSession(session);
    },
  };
}

function checksOf({ sessionId, newId, atSeq, atMessageSeq }: ForkSessionRequest): Check[] {
  const description = "at_seq or at_message_seq is required, and not both; from 1";
  return [
    checkSessionId(sessionId),
    checkSessionId(newId, "new_id"),
    newId === sessionId ? { field: "new_id", description: "new_id must be another id" } : undefined,
    atSeq < 0n || atMessageSeq < 0n || (atSeq === 0n) === (atMessageSeq === 0n)
      ? { field: atMessageSeq === 0n ? "at_seq" : "at_message_seq", description }
      : undefined,
  ];
}

function refusalOf(
  forked: Exclude<Forked, { readonly kind: "forked" }>,
  { sessionId, newId, atSeq, atMessageSeq }: ForkSessionRequest,
): ServiceError {
  const [field, seq] = atSeq > 0n ? ["at_seq", atSeq] : ["at_message_seq", atMessageSeq];
  switch (forked.kind) {
    case "not_found":
      return sessionNotFound(sessionId);
    case "deleted":
      return sessionDeleted(sessionId);
    case "exists": {
      const violations = [{ field: "new_id", description: "expected the id of no session" }];
      const message = `there is another session ${newId}`;
      return new ServiceError("already_exists", "SESSION_EXISTS", message, { violations });
    }
    case "beyond": {
      const violations = [{ field, description: `expected at most ${forked.head}` }];
      const message = `${field} is above the newest number of the session, which is ${forked.head}`;
      return new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", message, { violations });
    }
    case "erased": {
      const violations = [{ field, description: "expected the number of a row that is there" }];
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
