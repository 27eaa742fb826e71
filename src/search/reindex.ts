/** The command `reindex`: forgets the stored texts and runs, and stores them again unless a running service does. */
import { randomUUID } from "node:crypto";
import { systemClock } from "@session-ledger/base/clock";
import { createLog } from "../observability/log.ts";
import { createMetrics } from "../observability/metrics.ts";
import type { Database } from "../store/database.ts";
import { countRuns } from "../analytics/stored.ts";
import { createReader } from "../store/reader.ts";
import { checkLanguage, forgetTexts } from "./index-store.ts";
import { TextIndex } from "./index-unit.ts";

export interface Reindexed {
  readonly texts: number;
  readonly runs: number;
  /** A running service has the lease, and stores the texts. */
  readonly isLeft: boolean;
}

interface ReindexOptions {
  readonly sessionId: string | undefined;
  /** Undefined: only runs. */
  readonly language: string | undefined;
  readonly signal: AbortSignal;
}

export async function reindexTexts(
  database: Database,
  { sessionId, language, signal }: ReindexOptions,
): Promise<Reindexed> {
  if (language !== undefined) await checkLanguage(database, language);
  await forgetTexts(database, sessionId);
  const reader = createReader(database);
  const metrics = createMetrics();
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const index = new TextIndex(
    { database, reader, clock: systemClock, log, metrics },
    { holder: randomUUID(), language, isGentle: false },
  );
  const stop = (): void => void index.stop();
  signal.addEventListener("abort", stop, { once: true });
  try {
    let isDone = await index.pass();
    while (isDone && index.hasMore) isDone = await index.pass();
    const { values } = await metrics.textsIndexed.get();
    const runs = await countRuns(database, sessionId);
    return { texts: values[0]?.value ?? 0, runs, isLeft: !isDone && !signal.aborted };
  } finally {
    signal.removeEventListener("abort", stop);
    await index.stop();
  }
}
