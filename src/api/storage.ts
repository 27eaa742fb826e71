/**
 * What is stored, in sums: of one session by type, a page at a time, and of all sessions that the
 * caller sees. The second is read at most once in ten seconds for all callers with the same rights,
 * because it goes through the records of all these sessions.
 */
import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";
import { invalidArgument } from "../base/errors.ts";
import type { Semaphore } from "../base/semaphore.ts";
import { isUnscoped } from "../auth/principal.ts";
import { inSeat } from "./long-reads.ts";
import { violationsOf } from "../contract/checks.ts";
import type { CallContext } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";
import { cursorBeyondHead, sessionDeleted, sessionNotFound } from "../store/failure.ts";
import type { LedgerReader } from "../store/reader.ts";
import { headOf, type StreamName } from "../store/rows.ts";
import type { SessionScope } from "../store/sessions.ts";
import type { SessionStorage, StorageReader, Totals, TypeSum } from "../store/storage.ts";

export interface SessionStorageRequest {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** Only rows above this number; 0: from the beginning. */
  readonly afterSeq: bigint;
}

export type { SessionStorage };

export interface Storage extends Totals {
  /** Undefined for a caller that does not see every session. */
  readonly diskBytes: bigint | undefined;
  /** The share of the rows that the sums by type were computed from. */
  readonly share: number;
  readonly types: readonly (TypeSum & { readonly stream: StreamName })[];
}

export interface StorageHandlers {
  readSessionStorage(request: SessionStorageRequest, context: CallContext): Promise<SessionStorage>;
  readStorage(request: undefined, context: CallContext): Promise<Storage>;
}

const KEPT_MS = 10_000;
/** Callers with different rights whose sums are kept. */
const KEPT_MAX = 100;

interface Kept {
  readonly untilMs: number;
  readonly storage: Promise<Storage>;
}

export function createStorageHandlers({
  reader,
  storage,
  clock,
  seats,
}: {
  readonly reader: Pick<LedgerReader, "heads">;
  readonly storage: StorageReader;
  readonly clock: Clock;
  readonly seats: Semaphore;
}): StorageHandlers {
  const kept = new BoundedMap<string, Kept>(KEPT_MAX);
  return {
    async readSessionStorage({ sessionId, stream, afterSeq: after }, context) {
      const violations = violationsOf([checkSessionId(sessionId)]);
      if (violations.length > 0) throw invalidArgument(violations);
      const head = (await reader.heads([sessionId])).get(sessionId);
      if (head === undefined) throw sessionNotFound(sessionId);
      if (head.deleted) throw sessionDeleted(sessionId);
      if (after > headOf(head, stream)) throw cursorBeyondHead(headOf(head, stream));
      return inSeat(seats, context, () => storage.sumsOf({ sessionId, stream, after }));
    },
    readStorage(_, { principal }) {
      const { projectId, sessionId } = principal;
      const key = JSON.stringify([projectId, sessionId]);
      const nowMs = clock.monotonicMs();
      const known = kept.get(key);
      if (known !== undefined && known.untilMs > nowMs) return known.storage;
      // Others wait for the same sums, so the caller that leaves does not end them.
      const read = inSeat(seats, { principal }, () =>
        readAll(storage, { projectId, sessionId }, isUnscoped(principal)),
      );
      kept.set(key, { untilMs: nowMs + KEPT_MS, storage: read });
      // A failure is not kept.
      read.catch(() => kept.get(key)?.storage === read && kept.delete(key));
      return read;
    },
  };
}

async function readAll(
  storage: StorageReader,
  scope: SessionScope,
  hasDisk: boolean,
): Promise<Storage> {
  // One after the other, because a seat is for one connection.
  const totals = await storage.totals(scope);
  const messages = await storage.sampledTypes("messages", scope);
  const events = await storage.sampledTypes("events", scope);
  const diskBytes = hasDisk ? await storage.diskBytes() : undefined;
  return {
    ...totals,
    diskBytes,
    share: Math.min(messages.share, events.share),
    types: [
      ...messages.types.map((type) => ({ stream: "messages" as const, ...type })),
      ...events.types.map((type) => ({ stream: "events" as const, ...type })),
    ],
  };
}
