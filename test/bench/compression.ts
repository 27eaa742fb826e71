/**
 * What compression saves, and what it costs: the table of rows and bytes beside upstream's rules, the
 * speed of one thread, and the size of the table in PostgreSQL.
 */
import type { Bench, Findings } from "./bench.ts";
import { measureSpeeds, type Speed, type Speeds } from "./compression-speed.ts";
import {
  type Arrival,
  ARRIVALS,
  compressionLines,
  type Line,
  printedTable,
  type Ratios,
  ratiosOf,
  sumOf,
} from "./compression-table.ts";
import { type Corpus, readCorpus, textStreams } from "./corpus.ts";
import type { Stream } from "../support/streams.ts";
import { DOTNET, rawEventStreams } from "./raw-event-streams.ts";
import { measureTable } from "./table-size.ts";

interface Goal {
  readonly goal: number;
  readonly measured: number;
  readonly isReached: boolean;
}

/** Of the table, for the sample of recorded streams; of the speed, raw events a second. */
const GOALS = {
  rows: 2.05,
  bytes: 1.12,
  rawRows: 10,
  rawBytes: 4,
  indexShare: 0.2,
  timedIndexShare: 0.4,
  perSecond: 1_000_000,
  parsedPerSecond: 400_000,
} as const;

export async function benchCompression(bench: Bench): Promise<Findings> {
  const corpus = readCorpus(bench.options);
  const tables: Record<string, Findings> = {};
  for (const [name, arrival] of Object.entries(ARRIVALS)) {
    bench.progress(`${name}; × is raw over compressed:`);
    tables[name] = tableOf(bench, corpus, arrival);
  }
  const texts = textStreams(corpus);
  const raw = rawEventStreams(texts.streams, corpus.streams);
  for (const [name, arrival] of Object.entries(ARRIVALS)) {
    bench.progress(`${name}, with a rawEvent in each fragment:`);
    tables[`${name}, rawEvent`] = rawTableOf(bench, raw, arrival);
  }
  return {
    corpus: sizeOf(corpus),
    tables,
    speed: {
      corpus: await speedOf(bench, corpus),
      text: { corpus: sizeOf(texts), ...(await speedOf(bench, texts)) },
      rawEvent: await speedOf(bench, { name: "rawEvent", streams: raw }),
    },
    table: await measureTable(bench, corpus.streams),
  };
}

function tableOf(bench: Bench, { streams }: Corpus, arrival: Arrival): Findings {
  const lines = compressionLines(streams, arrival);
  const total = sumOf("total", lines);
  for (const line of printedTable(lines, total)) bench.progress(line);
  return {
    goals: tableGoals(lines, { total, arrival }),
    total: { ...total, ratios: ratiosOf(total) },
    agents: lines.map((line) => ({ ...line, ratios: ratiosOf(line) })),
  };
}

function rawTableOf(bench: Bench, streams: readonly Stream[], arrival: Arrival): Findings {
  const lines = compressionLines(streams, arrival);
  for (const line of printedTable(lines, sumOf("total", lines))) bench.progress(line);
  const agents = lines.map((line) => ({ ...line, ratios: ratiosOf(line) }));
  if (arrival !== ARRIVALS.whole) return { agents };
  // How many fragments a text has is the model's matter; the goal is for texts of many.
  const dotnet = agents.filter(({ agent }) => agent.startsWith(DOTNET));
  const most = (of: (ratios: Ratios) => number): number =>
    Math.max(...dotnet.map(({ ratios }) => of(ratios)));
  const goals = {
    "rows, of the texts with the most fragments": atLeast(
      GOALS.rawRows,
      most(({ rows }) => rows),
    ),
    "bytes, of the same": atLeast(
      GOALS.rawBytes,
      most(({ bytes }) => bytes),
    ),
  };
  return { goals, agents };
}

function tableGoals(
  lines: readonly Line[],
  { total, arrival }: { readonly total: Line; readonly arrival: Arrival },
): Findings {
  const { rows, bytes, indexShare, timedIndexShare } = ratiosOf(total);
  const shares = {
    "index without times, of the merged rows' bytes": atMost(GOALS.indexShare, indexShare),
    "index with times, of the merged rows' bytes": atMost(GOALS.timedIndexShare, timedIndexShare),
  };
  if (arrival !== ARRIVALS.whole) return shares;
  const behind = lines.filter((line) => line.ours.rows > line.upstream.rows);
  return {
    "rows in total": atLeast(GOALS.rows, rows),
    "bytes in total": atLeast(GOALS.bytes, bytes),
    "agents with more rows than by upstream's rules": behind.map(({ agent }) => agent),
    ...shares,
  };
}

async function speedOf(bench: Bench, { name, streams }: Corpus): Promise<Findings> {
  bench.progress(`speed: ${name}`);
  const speeds: Speeds = await measureSpeeds(bench, streams);
  const goals = {
    compress: atLeast(GOALS.perSecond, speeds.compress.median),
    compressParsed: atLeast(GOALS.parsedPerSecond, speeds.compressParsed.median),
    expand: atLeast(GOALS.perSecond, speeds.expand.median),
    expandParsed: atLeast(GOALS.parsedPerSecond, speeds.expandParsed.median),
  };
  for (const [what, { median, medianOfCpuTime }] of Object.entries<Speed>({ ...speeds })) {
    bench.progress(`${what}: ${median} raw events/s, ${medianOfCpuTime} a second of CPU time`);
  }
  return { goals, eventsPerSecond: speeds };
}

function atLeast(goal: number, measured: number): Goal {
  return { goal, measured, isReached: measured >= goal };
}

/** Undefined, which JSON leaves out, where there is nothing of the kind. */
function atMost(goal: number, measured: number): Goal | undefined {
  return Number.isNaN(measured) ? undefined : { goal, measured, isReached: measured <= goal };
}

function sizeOf({ name, streams }: Corpus): Findings {
  const events = streams.flatMap((stream) => stream.events);
  const bytes = events.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
  return { name, streams: streams.length, events: events.length, bytes };
}
