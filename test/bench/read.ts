/**
 * Reading a long session page by page: rows a second against the same pages by postgres.js alone, the
 * memory of the service while it goes on, and a filter that matches 1 % of the rows.
 *
 * The numbers of the rows are known, so a timed pass asks for its pages without decoding the one
 * before: it is the service that is measured, and not the decoder of this client. A first pass decodes
 * every row and checks it; the timed ones must then receive the same bytes. `replay` is one watch from 0,
 * and the same pages on a raw connection.
 */
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { median, medians, ratioOf, rounded } from "./figures.ts";
import { type FilledSession, fillSession } from "./filled-session.ts";
import { bytesOfPages, checkPages, filteredPages, PAGE_ROWS, sqlPages } from "./pages.ts";
import { type Replay, REPLAYS } from "./replay.ts";
import { startLedger } from "./servers.ts";
import { memoryOf } from "./usage.ts";

const ROWS = 100_000;
const ROWS_QUICK = 5_000;
const PASSES = 10;
const PASSES_QUICK = 2;

export async function benchRead(bench: Bench): Promise<Findings> {
  const { quick, calls } = bench.options;
  const ledger = await startLedger(bench);
  const rows = calls ?? (quick ? ROWS_QUICK : ROWS);
  bench.progress(`storing ${rows} rows`);
  const session = await fillSession(bench, ledger, { rows });
  const client = new RpcClient(ledger.address);
  bench.undo.defer(() => client.close());

  const bytes = await checkPages(bench, client, session);
  await sqlPages(bench, ledger.sql, session);
  const residentMiB = [await residentOf(ledger.pid)];
  const passes = { service: new Array<number>(), sql: new Array<number>() };
  const replays: Record<keyof typeof REPLAYS, Replay[]> = { watch: [], pages: [] };
  for (let pass = 0; pass < (quick ? PASSES_QUICK : PASSES); pass += 1) {
    const service = await timed(() => bytesOfPages(bench, client, session));
    if (service.value !== bytes) throw new Error("a page came back other than at first");
    const sql = await timed(() => sqlPages(bench, ledger.sql, session));
    if (sql.value !== rows) throw new Error(`SQL read ${sql.value} of ${rows} rows`);
    passes.service.push(rows / service.seconds);
    passes.sql.push(rows / sql.seconds);
    replays.watch.push(await REPLAYS.watch(bench, ledger, session));
    replays.pages.push(await REPLAYS.pages(bench, ledger, session));
    residentMiB.push(await residentOf(ledger.pid));
    bench.progress(
      `pass ${pass + 1}: ${Math.round(rows / service.seconds)} rows/s, SQL ${Math.round(rows / sql.seconds)}`,
    );
  }
  return {
    load: { rows, pageRows: PAGE_ROWS, payloadBytes: 600, passes: passes.service.length, bytes },
    rowsPerSecond: {
      service: rounded(median(passes.service)),
      sql: rounded(median(passes.sql)),
      rounds: { service: passes.service.map(rounded), sql: passes.sql.map(rounded) },
    },
    ratios: {
      "service / raw SQL": ratioOf(passes.service, passes.sql),
      "one watch from 0 / raw SQL": ratioOf(speedsOf(replays.watch), passes.sql),
      "pages on a raw connection / raw SQL": ratioOf(speedsOf(replays.pages), passes.sql),
    },
    replay: { watch: figuresOf(replays.watch), pages: figuresOf(replays.pages) },
    residentMiB,
    filtered: await benchFiltered(bench, client, session),
  };
}

function speedsOf(replays: readonly Replay[]): readonly number[] {
  return replays.map(({ rowsPerSecond }) => rowsPerSecond);
}

function figuresOf(replays: readonly Replay[]): Findings {
  return { ...medians(replays.map(flatOf)), rounds: replays };
}

function flatOf({ cpuMicrosPerRow: { service, postgres }, ...rest }: Replay) {
  return { ...rest, serviceCpuMicros: service, postgresCpuMicros: postgres };
}

/** Both halves of the session: in the later one a page has to look past rows that do not match. */
async function benchFiltered(
  bench: Bench,
  client: RpcClient,
  session: FilledSession,
): Promise<Findings> {
  const earlier = { createdBefore: session.middleMicros };
  const later = { createdAfter: session.middleMicros };
  for (const half of [earlier, later]) await filteredPages(bench, client, session, half);
  const found = new Map<string, Findings[]>();
  for (let round = 0; round < bench.options.rounds; round += 1) {
    for (const [name, half] of Object.entries({ earlier, later })) {
      const pages = await filteredPages(bench, client, session, half);
      found.set(name, [...(found.get(name) ?? []), { ...pages }]);
    }
  }
  return Object.fromEntries(found);
}

async function residentOf(pid: number): Promise<number> {
  return rounded((await memoryOf(pid)).residentMiB);
}

async function timed<T>(act: () => Promise<T>): Promise<{ value: T; seconds: number }> {
  const beganMs = performance.now();
  const value = await act();
  return { value, seconds: (performance.now() - beganMs) / 1_000 };
}
