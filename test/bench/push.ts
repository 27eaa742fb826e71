/**
 * Unary pushes under load: the service against the same server without storage and against one commit
 * a push, in the same run. Every server gets its turn in every round, and the order is reversed in
 * every second one, so that what changes with time on the machine falls on all of them.
 */
import type { Bench, Findings } from "./bench.ts";
import { medians, type Ratio, ratioOf } from "./figures.ts";
import type { Amount } from "./h2load.ts";
import { type LoadFigures, runLoad } from "./load.ts";
import {
  startGoNoop,
  startLedger,
  startNoop,
  startReplica,
  startRowByRow,
  type Target,
} from "./servers.ts";
import { SHAPES, type ShapeName } from "./shapes.ts";

const WARM_SECONDS = 3;

type ServerName = "service" | "workers2" | "noop" | "goNoop" | "rowByRow";
type Turn = `${ServerName}/${ShapeName}`;

const TURNS = [
  ["goNoop", "sessions64"],
  ["noop", "sessions64"],
  ["service", "sessions64"],
  ["service", "sessions8"],
  ["service", "hotSession"],
  ["rowByRow", "sessions64"],
  ["noop", "connections64"],
  ["service", "connections64"],
  ["workers2", "connections64"],
  ["service", "runs"],
  ["service", "keyed"],
] as const satisfies readonly (readonly [ServerName, ShapeName])[];

const RATIOS: Readonly<Record<string, readonly [Turn, Turn]>> = {
  "service / no-op, 64 sessions": ["service/sessions64", "noop/sessions64"],
  "no-op / no-op of grpc-go, 64 sessions": ["noop/sessions64", "goNoop/sessions64"],
  "service / no-op of grpc-go, 64 sessions": ["service/sessions64", "goNoop/sessions64"],
  "service / no-op, 64 connections": ["service/connections64", "noop/connections64"],
  "two workers / one process, 64 connections": ["workers2/connections64", "service/connections64"],
  "one hot session / 64 sessions": ["service/hotSession", "service/sessions64"],
  "8 sessions / 64 sessions": ["service/sessions8", "service/sessions64"],
  "group commit / row by row": ["service/sessions64", "rowByRow/sessions64"],
  "runs / text": ["service/runs", "service/sessions64"],
  "keyed, about half repeated / 8 sessions": ["service/keyed", "service/sessions8"],
};

export async function benchPush(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const servers: Readonly<Record<ServerName, Target | undefined>> = {
    service: ledger,
    workers2: { ...(await startReplica(bench, ledger, { WORKERS: "2" })), hasWorkers: true },
    noop: await startNoop(bench),
    goNoop: await startGoNoop(bench),
    rowByRow: await startRowByRow(bench, ledger),
  };
  const amount = pushAmount(bench);
  const warm = bench.options.quick ? { calls: 128 } : { seconds: WARM_SECONDS };
  for (const target of Object.values(servers).filter((one) => one !== undefined)) {
    bench.progress(`warming up: ${target.name}`);
    await runLoad(bench, target, { shape: SHAPES.sessions64, amount: warm });
  }
  const figures = new Map<string, LoadFigures[]>();
  for (let round = 0; round < bench.options.rounds; round += 1) {
    for (const [server, shape] of round % 2 === 0 ? TURNS : TURNS.toReversed()) {
      const turn: Turn = `${server}/${shape}`;
      const target = servers[server];
      if (target === undefined) continue;
      const found = await runLoad(bench, target, { shape: SHAPES[shape], amount });
      figures.set(turn, [...(figures.get(turn) ?? []), found]);
      bench.progress(
        `round ${round + 1}, ${turn}: ${Math.round(found.callsPerSecond)} calls/s, p99 ${found.p99Ms} ms`,
      );
    }
  }
  const speeds = (turn: Turn): readonly number[] =>
    (figures.get(turn) ?? []).map(({ callsPerSecond }) => callsPerSecond);
  return {
    load: { ...amount, rounds: bench.options.rounds, payloadBytes: 600, shapes: SHAPES },
    ratios: Object.fromEntries(
      Object.entries(RATIOS)
        .filter(([, turns]) => turns.every((turn) => figures.has(turn)))
        .map(([name, [over, under]]): [string, Ratio] => [
          name,
          ratioOf(speeds(over), speeds(under)),
        ]),
    ),
    figures: Object.fromEntries(
      Array.from(figures, ([turn, rounds]) => [turn, { median: medians(rounds), rounds }]),
    ),
  };
}

export function pushAmount({ options }: Bench): Amount {
  if (options.calls !== undefined) return { calls: options.calls };
  return { seconds: options.seconds ?? (options.quick ? 1 : 10) };
}
