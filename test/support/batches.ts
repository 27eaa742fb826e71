import { Independent, type Push } from "../../src/store/rows.ts";

/** Batches as ingest makes them: a push that depends on an earlier one begins the next batch. */
export function batchesOf(pushes: readonly Push[], size: number): Push[][] {
  const made: Push[][] = [];
  let independent = new Map<string, Independent>();
  for (const next of pushes) {
    const session = independent.get(next.sessionId) ?? new Independent();
    const last = made.at(-1);
    if (last !== undefined && last.length < size && session.admit(next)) {
      independent.set(next.sessionId, session);
      last.push(next);
      continue;
    }
    independent = new Map([[next.sessionId, new Independent()]]);
    independent.get(next.sessionId)?.admit(next);
    made.push([next]);
  }
  return made;
}
