/**
 * Push streams under load: the service, which validates, merges and commits, against a plain grpc-js
 * server that decodes and acknowledges the same frames; and against unary pushes of the same events.
 * Every one has its turn in every round, in reversed order in every second one.
 */
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { pushCorpus, readCorpus } from "./corpus.ts";
import { medians, type Ratio, ratioOf } from "./figures.ts";
import type { PushLoad } from "./push-load.ts";
import { type Ledger, startLedger, startNoopPush, type Target } from "./servers.ts";
import { runStreamLoad, type StreamFigures } from "./stream-load.ts";

const CONNECTIONS = 4;
/** Of each connection. */
const STREAMS = 4;
/** Unary pushes of a session go one after the other, and 64 in flight are the load of `push`. */
const UNARY_IN_FLIGHT = 16;
const SESSION_EVENTS = 10_000;
const SESSION_EVENTS_QUICK = 300;
const WARM_SECONDS = 3;
const TRY_LIMIT_MS = 10_000;

type ServerName = "service" | "noop" | "lazyNoop";
type Turn = `${ServerName}/${"1" | "50" | "unary"}`;

const TURNS = [
  ["noop", 1],
  ["lazyNoop", 1],
  ["service", 1],
  ["noop", 50],
  ["service", 50],
  ["service", "unary"],
] as const satisfies readonly (readonly [ServerName, PushLoad["eventsPerFrame"]])[];

const RATIOS: Readonly<
  Record<string, { readonly of: readonly [Turn, Turn]; readonly goal: number }>
> = {
  "service / no-op, one event a frame": { of: ["service/1", "noop/1"], goal: 0.6 },
  "service / no-op, 50 events a frame": { of: ["service/50", "noop/50"], goal: 0.2 },
  "50 events a frame / unary": { of: ["service/50", "service/unary"], goal: 8 },
};

export async function benchStream(bench: Bench): Promise<Findings> {
  readCorpus(bench.options); // Where the generators look for it too.
  const ledger = await startLedger(bench);
  const windowBytes = await tryOnce(ledger);
  const servers: Readonly<Record<ServerName, Target>> = {
    service: ledger,
    noop: await startNoopPush(bench, { windowBytes, pace: "eager" }),
    lazyNoop: await startNoopPush(bench, { windowBytes, pace: "lazy" }),
  };
  const figures = new Map<Turn, StreamFigures[]>();
  for (let round = bench.options.quick ? 1 : 0; round <= bench.options.rounds; round += 1) {
    for (const [server, eventsPerFrame] of round % 2 === 0 ? TURNS : TURNS.toReversed()) {
      const isWarmUp = round === 0;
      const turn: Turn = `${server}/${eventsPerFrame}`;
      const load = streamLoad(bench, { eventsPerFrame, isWarmUp });
      const found = await runStreamLoad(bench, servers[server], load);
      bench.progress(`round ${round}, ${turn}: ${printed(found)}`);
      if (!isWarmUp) figures.set(turn, [...(figures.get(turn) ?? []), found]);
    }
  }
  const speeds = (turn: Turn): readonly number[] =>
    (figures.get(turn) ?? []).map(({ eventsPerSecond }) => eventsPerSecond);
  const ratios = Object.entries(RATIOS).map(
    ([
      name,
      {
        of: [over, under],
        goal,
      },
    ]) => {
      const ratio: Ratio = ratioOf(speeds(over), speeds(under));
      return [name, { goal, isReached: ratio.median >= goal, ...ratio }];
    },
  );
  return {
    load: { ...describeLoad(bench), windowBytes },
    ratios: Object.fromEntries(ratios),
    figures: Object.fromEntries(
      Array.from(figures, ([turn, rounds]) => [turn, { median: medians(rounds), rounds }]),
    ),
  };
}

export function streamLoad(
  { options }: Bench,
  turn: { readonly eventsPerFrame: PushLoad["eventsPerFrame"]; readonly isWarmUp: boolean },
): Omit<PushLoad, "address" | "run"> {
  const { eventsPerFrame, isWarmUp } = turn;
  const seconds = isWarmUp ? WARM_SECONDS : (options.seconds ?? 10);
  return {
    eventsPerFrame,
    connections: CONNECTIONS,
    lanesEach: eventsPerFrame === "unary" ? UNARY_IN_FLIGHT : STREAMS,
    sessionEvents: options.quick ? SESSION_EVENTS_QUICK : SESSION_EVENTS,
    ...(options.quick || options.calls !== undefined
      ? { events: options.calls ?? 3_000 }
      : { seconds }),
  };
}

/** What the load is made of. */
function describeLoad(bench: Bench): Findings {
  const { name, streams } = pushCorpus();
  const events = streams.flatMap((stream) => stream.events);
  const bytes = events.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
  return {
    ...streamLoad(bench, { eventsPerFrame: 1, isWarmUp: false }),
    eventsPerFrame: [1, 50],
    unaryInFlight: CONNECTIONS * UNARY_IN_FLIGHT,
    rounds: bench.options.rounds,
    corpus: name,
    agents: [...new Set(streams.map(({ agent }) => agent))],
    payloadBytesMean: Math.round(bytes / events.length),
  };
}

/** Whether the service takes a push stream at all, told as a gRPC client would be; its window. */
async function tryOnce({ address }: Ledger): Promise<number> {
  const client = new RpcClient(address);
  const stream = client.bidiStream(SessionService.method.pushSessionEvents, {
    deadlineMs: TRY_LIMIT_MS,
  });
  try {
    stream.send({ frame: { case: "open", value: { sessionId: "bench-try" } } });
    for await (const { frame } of stream) {
      if (frame.case === "opened") return Number(frame.value.maxUnacknowledgedBytes);
    }
    throw new Error("the service does not open a push stream");
  } finally {
    client.close();
  }
}

function printed(found: StreamFigures): string {
  const { eventsPerSecond, rowsPerSecond, serverCpu, postgresCpu, generatorCpu } = found;
  const rate = `${Math.round(eventsPerSecond)} events/s, ${Math.round(rowsPerSecond)} rows/s`;
  const cores = [serverCpu, postgresCpu, generatorCpu].map((cpu) => cpu.toFixed(2)).join(" ");
  return `${rate}; cores of server, PostgreSQL, generator: ${cores}`;
}
