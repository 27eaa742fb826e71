/**
 * How many raw events a second one thread merges, and takes apart again:
 *
 *   compress, expand     payload texts in, rows with an encoded index out, or the other way round
 *   …Parsed              and every event's payload is read by JSON.parse
 *   compressValidated    and every event is read, spelled right and validated before, as a pushed one
 *                        is; push streams do less, because a fragment like the one before needs none of it
 */
import { splitEvent } from "@session-ledger/agui/split-event";
import { Compressor, type IncomingEvent } from "@session-ledger/compressor/compressor";
import { expand, type ExpandableRow } from "@session-ledger/compressor/expand";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import type { Stream, StreamEvent } from "../support/streams.ts";
import type { Bench } from "./bench.ts";
import { median } from "./figures.ts";

const EVENTS_PER_ROUND = 300_000;
const EVENTS_PER_ROUND_QUICK = 3_000;
const WARM_ROUNDS = 2;
/** Fixed, whatever --rounds says: these rounds are short, and so are disturbances. */
const ROUNDS = 7;
/** 2026-01-01T00:00:00Z. */
const CREATED_AT_MICROS = 1_767_225_600_000_000n;

/** Raw events a second. */
export interface Speed {
  readonly median: number;
  readonly rounds: readonly number[];
  /** CPU time of the process, including the garbage collector on other threads. */
  readonly medianOfCpuTime: number;
}

export interface Speeds {
  readonly compress: Speed;
  readonly compressParsed: Speed;
  readonly compressValidated: Speed;
  readonly expand: Speed;
  readonly expandParsed: Speed;
}

interface Prepared {
  readonly events: readonly IncomingEvent[];
  readonly rows: readonly ExpandableRow[];
}

export async function measureSpeeds(bench: Bench, streams: readonly Stream[]): Promise<Speeds> {
  const prepared = streams.map(({ events }) => preparedOf(events));
  const rounds = (work: (stream: Prepared) => void): Promise<Speed> =>
    eventsPerSecond(bench, prepared, work);
  return {
    compress: await rounds(({ events }) => mergeAll(events)),
    compressParsed: await rounds(({ events }) => mergeAll(parsedOf(events))),
    compressValidated: await rounds(({ events }) => mergeAll(acceptedOf(events))),
    expand: await rounds(({ rows }) => takeApart(rows, ({ payload }) => flatten(payload))),
    expandParsed: await rounds(({ rows }) => takeApart(rows, ({ payload }) => parse(payload))),
  };
}

function preparedOf(streamEvents: readonly StreamEvent[]): Prepared {
  const events = streamEvents.map((event) => ({ ...event, createdAtMicros: CREATED_AT_MICROS }));
  const rows: ExpandableRow[] = [];
  let seq = 1n;
  mergeAll(events, (row) => {
    rows.push({ ...row, seq });
    seq += BigInt(row.eventCount);
  });
  return { events, rows };
}

/** As they would be stored: one flat text, and the index encoded. */
function mergeAll(
  events: Iterable<IncomingEvent>,
  store: (row: Omit<ExpandableRow, "seq">) => void = () => undefined,
): void {
  const compressor = new Compressor();
  const keep = (row: ReturnType<typeof compressor.flush>): void => {
    if (row === undefined) return;
    flatten(row.payload);
    const { eventType, payload, eventCount, createdAtMicros, fragments } = row;
    const index = fragments === undefined ? undefined : encodeFragments(fragments);
    store({ eventType, payload, eventCount, createdAtMicros, fragments: index });
  };
  for (const event of events) for (const row of compressor.push(event, 0)) keep(row);
  keep(compressor.flush());
}

function* parsedOf(events: readonly IncomingEvent[]): Generator<IncomingEvent> {
  for (const event of events) {
    parse(event.payload);
    yield event;
  }
}

function parse(payload: string): unknown {
  return JSON.parse(payload);
}

function* acceptedOf(events: readonly IncomingEvent[]): Generator<IncomingEvent> {
  for (const event of events) yield* accept(event);
}

/** The rows of an event after the checks of the service; none if it is refused. */
function accept({ eventType, payload, createdAtMicros }: IncomingEvent): readonly IncomingEvent[] {
  const times = { createdAtMicros, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, hasFragments: false, ...times };
  const accepted = splitEvent(push, { mode: "strict", nowMicros: createdAtMicros });
  return accepted.ok ? accepted.rows : [];
}

function takeApart(rows: readonly ExpandableRow[], use: (event: IncomingEvent) => unknown): void {
  for (const row of rows) for (const event of expand(row)) use(event);
}

/** V8 joins the pieces of a text when it is read; sending and storing read it. */
function flatten(text: string): number {
  return text.charCodeAt(text.length - 1);
}

async function eventsPerSecond(
  bench: Bench,
  prepared: readonly Prepared[],
  work: (stream: Prepared) => void,
): Promise<Speed> {
  const events = prepared.reduce((sum, stream) => sum + stream.events.length, 0);
  const perRound = bench.options.quick ? EVENTS_PER_ROUND_QUICK : EVENTS_PER_ROUND;
  const times = Math.ceil(perRound / events);
  const rounds: number[] = [];
  const ofCpuTime: number[] = [];
  for (let round = -WARM_ROUNDS; round < ROUNDS; round += 1) {
    bench.signal.throwIfAborted();
    const beganMs = performance.now();
    const cpuBegan = process.cpuUsage();
    for (let time = 0; time < times; time += 1) for (const stream of prepared) work(stream);
    const seconds = (performance.now() - beganMs) / 1_000;
    const cpu = process.cpuUsage(cpuBegan);
    if (round >= 0) {
      rounds.push(Math.round((times * events) / seconds));
      ofCpuTime.push(Math.round((times * events * 1_000_000) / (cpu.user + cpu.system)));
    }
    await new Promise(setImmediate); // A signal is only seen between two turns of the loop.
  }
  return { median: median(rounds), rounds, medianOfCpuTime: median(ofCpuTime) };
}
