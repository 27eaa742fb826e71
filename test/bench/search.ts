/**
 * Search over a million texts: the time of a first page, over HTTP, for questions of every kind, beside a
 * request that reads nothing. And what the index costs pushes: services on one PostgreSQL, by turns with
 * and without it.
 *
 * `--parts find,push`; `--calls` texts of the table of `find`.
 */
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, medians, ratioOf } from "./figures.ts";
import { type LoadFigures, runLoad } from "./load.ts";
import { pushAmount } from "./push.ts";
import { type Ledger, startLedger, startReplica } from "./servers.ts";
import { SHAPES } from "./shapes.ts";

const TEXTS = 1_000_000;
const TEXTS_QUICK = 5_000;
const BATCH = 50_000;
const SESSIONS = 1_000;
const ASKED = 60;
const PARTS = ["find", "push"] as const;
const GOAL_MS = 100;
const GOAL_PUSH = 0.97;

export async function benchSearch(bench: Bench): Promise<Findings> {
  const { parts = PARTS } = bench.options;
  const ledger = await startLedger(bench, { env: { SEARCH_LANGUAGE: "english" } });
  return {
    ...(parts.includes("find") && { find: await finding(bench, ledger) }),
    ...(parts.includes("push") && { push: await pushing(bench, ledger) }),
  };
}

async function finding(bench: Bench, ledger: Ledger): Promise<Findings> {
  const { quick, calls } = bench.options;
  const texts = calls ?? (quick ? TEXTS_QUICK : TEXTS);
  await fill(bench, ledger, texts);
  // The words w0, w1, … have falling frequencies; three of four texts have w0.
  const questions: Readonly<Record<string, (at: number) => string>> = {
    "a rare word": (at) => `q=w${40_000 + at * 17}`,
    "two words": (at) => `q=w${100 + at}+w${2_000 + at}`,
    "a phrase": (at) => `q=%22w${at}+w${at + 1}%22`,
    "a common word": (at) => `q=w${at % 5}`,
    "a common word of a project": (at) => `q=w${at % 5}&project=p${at % 20}`,
    "a common word of a session": (at) => `q=w${at % 5}&session=s${at}`,
    "a common word of a role": (at) => `q=w${at % 5}&role=tool`,
    "the best of a common word": (at) => `q=w${at % 5}&order=best`,
    "a common word and a rare one": (at) => `q=w${at % 5}+w${30_000 + at * 13}`,
    "a word that is nowhere": (at) => `q=nowhere${at}`,
  };
  const found: Record<string, unknown> = {};
  for (const [kind, path] of Object.entries(questions)) {
    found[kind] = latencyOf(await asking(bench, ledger, (at) => `/search?${path(at)}`));
    bench.progress(`${kind}: ${JSON.stringify(found[kind])}`);
  }
  const nothing = latencyOf(await asking(bench, ledger, () => "/caller"));
  const [size] = await ledger.sql`
    select pg_total_relation_size('session_texts') as bytes, pg_table_size('session_texts') as table`;
  return { texts, goalMs: GOAL_MS, found, baseline: { nothing }, size };
}

async function asking(
  bench: Bench,
  { httpAddress }: Ledger,
  pathOf: (at: number) => string,
): Promise<readonly number[]> {
  const tookMs: number[] = [];
  for (let at = 0; at < ASKED; at += 1) {
    bench.signal.throwIfAborted();
    const beganMs = performance.now();
    const answer = await fetch(`http://${httpAddress}/api/ambient/v1${pathOf(at)}`);
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`${pathOf(at)}: ${answer.status}`);
    if (at > 0) tookMs.push(performance.now() - beganMs); // The first one warms up.
  }
  return tookMs;
}

/** Texts of sixty words, with the marks of the index; written to the table itself. */
async function fill(bench: Bench, { sql }: Ledger, texts: number): Promise<void> {
  await sql`set statement_timeout = 0`;
  await sql`
    insert into sessions (id, project_id, created_at, updated_at)
    select 's' || n, 'p' || n % 20, now(), now() from generate_series(0, ${SESSIONS - 1}::int) n`;
  for (let from = 0; from < texts; from += BATCH) {
    bench.signal.throwIfAborted();
    await sql`
      insert into session_texts (session_id, digest, part, stream, seq, event_type, created_at, role, text, words)
      select 's' || n % 1000, md5(n::text)::uuid, 0, 'messages', n, 'user',
        timestamptz '2026-01-01' + interval '1 second' * n, role, t,
        to_tsvector('english', t) || array_to_tsvector(array[E'\x01ss' || n % 1000, E'\x01pp' || n % 20, E'\x01r' || role])
      from generate_series(${from}::int, ${Math.min(texts, from + BATCH) - 1}::int) n,
        lateral (select string_agg('w' || (power(random(), 4) * 60000)::int, ' ') as t
          from generate_series(1, 60) where n is not null) f,
        lateral (select (array['user', 'assistant', 'tool'])[1 + n % 3] as role) r`;
    bench.progress(`${Math.min(texts, from + BATCH)} texts`);
  }
  await sql`vacuum analyze session_texts`;
  await sql`analyze sessions`;
}

async function pushing(bench: Bench, ledger: Ledger): Promise<Findings> {
  const amount = pushAmount(bench);
  // The first service stays there, as in a deployment, and leaves the index to the measured one.
  await ledger.sql`
    insert into leases values ('search', 'nobody', now() + interval '1 day')
    on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until`;
  const all: Record<"on" | "off", LoadFigures[]> = { on: [], off: [] };
  for (let round = 0; round < bench.options.rounds; round += 1) {
    for (const search of round % 2 === 0 ? (["off", "on"] as const) : (["on", "off"] as const)) {
      if (search === "on") await ledger.sql`delete from leases`;
      const replica = await startReplica(bench, ledger, { SEARCH: search });
      const figures = await runLoad(bench, replica, { shape: SHAPES.runs, amount });
      all[search].push(figures);
      await replica.stop();
      await ledger.sql`
        insert into leases values ('search', 'nobody', now() + interval '1 day')
        on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until`;
      bench.progress(
        `round ${round + 1}, SEARCH=${search}: ${Math.round(figures.callsPerSecond)} calls/s`,
      );
    }
  }
  const speeds = (of: "on" | "off") => all[of].map(({ callsPerSecond }) => callsPerSecond);
  const [indexed] = await ledger.sql`select count(*)::int as texts from session_texts`;
  return {
    load: amount,
    "with the index / without": { goal: GOAL_PUSH, ...ratioOf(speeds("on"), speeds("off")) },
    figures: { on: medians(all.on), off: medians(all.off) },
    indexed,
  };
}
