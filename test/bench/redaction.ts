/**
 * What redaction costs: raw events a second from JSON to rows, on one thread and without a database, as
 * a push stream takes them, with redaction off and on; and how much JSON is gone through a second where
 * every string of it is looked at, as with unary pushes and snapshots. Seconds are of CPU time.
 */
import { BUILT_IN } from "../../src/redaction/patterns.ts";
import { createRedactor, type Redactor } from "../../src/redaction/redactor.ts";
import { RedactedStream } from "../support/redacted-stream.ts";
import type { Stream } from "../support/streams.ts";
import type { Bench, Findings } from "./bench.ts";
import { type Corpus, readCorpus, textStreams } from "./corpus.ts";
import { median, ratioOf } from "./figures.ts";

const EVENTS_PER_ROUND = 60_000;
const EVENTS_PER_ROUND_QUICK = 2_000;
const WARM_ROUNDS = 2;
/** Fixed, whatever --rounds says: these rounds are short, and so are disturbances. */
const ROUNDS = 7;
const MEBIBYTE = 1024 * 1024;

export async function benchRedaction(bench: Bench): Promise<Findings> {
  const found = (): void => undefined;
  const secrets = BUILT_IN;
  const patterns = createRedactor({ secrets, keys: [] }, found);
  const names = createRedactor({ secrets, keys: ["password", "apiKey"] }, found);
  const corpus = readCorpus(bench.options);
  const findings: Record<string, Findings> = {};
  for (const [of, { name, streams }] of Object.entries({ corpus, texts: textStreams(corpus) })) {
    findings[of] = {
      name,
      ...(await intakeOf(bench, { name, streams }, { patterns, names })),
      ...(await wholeOf(bench, streams, { patterns, names })),
    };
  }
  return findings;
}

interface Redactors {
  readonly patterns: Redactor;
  readonly names: Redactor;
}

/** Each round has all three one after the other, because what slows the machine slows all of a round. */
async function intakeOf(
  bench: Bench,
  { name, streams }: Corpus,
  { patterns, names }: Redactors,
): Promise<Findings> {
  const events = streams.reduce((sum, stream) => sum + stream.events.length, 0);
  const times = timesOf(bench, events);
  const perSecond = { off: [] as number[], on: [] as number[], withKeys: [] as number[] };
  const ways = { off: undefined, on: patterns, withKeys: names };
  for (let round = -WARM_ROUNDS; round < ROUNDS; round += 1) {
    for (const way of ["off", "on", "withKeys"] as const) {
      const began = process.cpuUsage();
      for (let time = 0; time < times; time += 1) takeAll(streams, ways[way]);
      const seconds = secondsSince(began);
      if (round >= 0) perSecond[way].push(Math.round((times * events) / seconds));
      bench.signal.throwIfAborted();
      await new Promise(setImmediate); // A signal is only seen between two turns of the loop.
    }
  }
  const { off, on, withKeys } = perSecond;
  bench.progress(
    `${name}: ${median(off)} raw events/s; redacted ${median(on)}, ${median(withKeys)}`,
  );
  return {
    events,
    eventsPerSecond: {
      off: { median: median(off), rounds: off },
      on: { median: median(on), rounds: on },
      withKeys: { median: median(withKeys), rounds: withKeys },
    },
    onOverOff: ratioOf(on, off),
    withKeysOverOff: ratioOf(withKeys, off),
  };
}

function takeAll(streams: readonly Stream[], redactor: Redactor | undefined): void {
  for (const { events } of streams) {
    const stream = new RedactedStream(redactor);
    for (const { payload } of events) stream.push(payload);
    stream.rows.close("end");
  }
}

async function wholeOf(
  bench: Bench,
  streams: readonly Stream[],
  redactors: Redactors,
): Promise<Findings> {
  const payloads = streams.flatMap(({ events }) => events.map(({ payload }) => payload));
  const bytes = payloads.reduce((sum, payload) => sum + Buffer.byteLength(payload), 0);
  const times = timesOf(bench, payloads.length);
  const speedOf = async (work: (payload: string) => unknown): Promise<number> => {
    const rounds: number[] = [];
    for (let round = -WARM_ROUNDS; round < ROUNDS; round += 1) {
      const began = process.cpuUsage();
      for (let time = 0; time < times; time += 1) for (const payload of payloads) work(payload);
      const seconds = secondsSince(began);
      if (round >= 0) rounds.push(Math.round((times * bytes) / MEBIBYTE / seconds));
      bench.signal.throwIfAborted();
      await new Promise(setImmediate);
    }
    return median(rounds);
  };
  const parse = await speedOf((payload): unknown => JSON.parse(payload));
  const patterns = await speedOf((payload) => redactors.patterns.payload(payload));
  const names = await speedOf((payload) => redactors.names.payload(payload));
  bench.progress(`MiB/s of JSON: parsed ${parse}, redacted ${patterns}, with keys ${names}`);
  return { mebibytesPerSecond: { jsonParse: parse, patterns, withKeys: names } };
}

/** The collector of garbage on other threads included. */
function secondsSince(began: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1_000_000;
}

function timesOf({ options }: Bench, events: number): number {
  return Math.ceil((options.quick ? EVENTS_PER_ROUND_QUICK : EVENTS_PER_ROUND) / events);
}
