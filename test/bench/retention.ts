/**
 * Retention of a ledger of many old sessions, each one run of six rows: sessions erased a second beside pushes
 * at a steady pace, the times of those pushes, and a second pass that finds nothing.
 */
import { createDatabase } from "../../src/store/database.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, rounded } from "./figures.ts";
import { pushPaced } from "./paced.ts";
import { type Ledger, startLedger } from "./servers.ts";

const SESSIONS = 1_000_000;
const QUICK = 1_000;
const FILLED_AT_ONCE = 50_000;
const PUSHES_PER_SECOND = 200;
const SECONDS = 5;
const AFTER_MS = 30 * 86_400_000;

export async function benchRetention(bench: Bench): Promise<Findings> {
  const { quick, calls, seconds = quick ? 1 : SECONDS } = bench.options;
  const ledger = await startLedger(bench);
  const sessions = calls ?? (quick ? QUICK : SESSIONS);
  await fill(bench, ledger, sessions);
  const limits = { connectionsMax: 1, statementTimeoutMs: 60_000, lockTimeoutMs: 5_000 };
  const database = createDatabase({
    url: () => ledger.databaseUrl,
    ...limits,
    hasFixedPlans: true,
  });
  await database.start();
  bench.undo.defer(() => database.stop());
  const pass = async () => {
    const beganMs = performance.now();
    const options = { afterMs: AFTER_MS, sessionId: undefined, dryRun: false };
    const summary = await retentionPass({ database }, { ...options, signal: bench.signal });
    const took = (performance.now() - beganMs) / 1_000;
    const erased = summary?.sessionsErased ?? 0;
    const rows = (summary?.events ?? 0) + (summary?.messages ?? 0);
    return { sessions: erased, rows, seconds: rounded(took), perSecond: rounded(erased / took) };
  };
  const push = () =>
    pushPaced(bench, {
      address: ledger.address,
      sessionIds: Array.from({ length: 64 }, (_, n) => `young-${n}`),
      rows: PUSHES_PER_SECOND * seconds,
      rowsPerSecond: PUSHES_PER_SECOND,
    });
  await push();
  const alone = latencyOf(await push());
  bench.progress(`erasing ${sessions} sessions`);
  const besideMs: number[] = [];
  const passed = new AbortController();
  const passing = pass().finally(() => passed.abort());
  while (!passed.signal.aborted) besideMs.push(...(await push()));
  const first = await passing;
  return {
    load: { sessions, rowsOfASession: 6, pushesPerSecond: PUSHES_PER_SECOND },
    first,
    second: await pass(),
    push: { alone, "beside the pass": latencyOf(besideMs) },
  };
}

/** A question, an answer, and a run of four events, all 40 days old. */
async function fill(bench: Bench, { sql: run }: Ledger, sessions: number): Promise<void> {
  bench.progress(`storing ${sessions} sessions`);
  const text = "The quick brown fox jumps over the lazy dog. ".repeat(8);
  for (let from = 0; from < sessions; from += FILLED_AT_ONCE) {
    bench.signal.throwIfAborted();
    const until = Math.min(sessions, from + FILLED_AT_ONCE) - 1;
    await run`
      insert into session_messages (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'old-' || n, seq, gen_random_uuid(), case seq when 1 then 'user' else 'assistant' end, ${text},
        now() - interval '41 days', now() - interval '41 days'
      from generate_series(${from}::int, ${until}::int) n, generate_series(1, 2) seq`;
    await run`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at, completed_at,
        event_count, run_id, conformant)
      select 'old-' || n, seq, gen_random_uuid(), (array['RUN_STARTED', 'TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT',
        'RUN_FINISHED'])[seq], ${text}, now() - interval '40 days', now() - interval '40 days',
        now() - interval '40 days', 1, 'r', true
      from generate_series(${from}::int, ${until}::int) n, generate_series(1, 4) seq`;
    await run`
      insert into sessions (id, created_at, updated_at, message_seq, event_seq, last_activity_at, active_at, row_count,
        payload_bytes)
      select 'old-' || n, now() - interval '41 days', now(), 2, 4, now() - interval '40 days',
        now() - interval '40 days', 6, 6 * ${text.length}::int + 4
      from generate_series(${from}::int, ${until}::int) n`;
  }
  await run`vacuum analyze session_events, session_messages, sessions`;
}
