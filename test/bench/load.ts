/**
 * Load on a server and its result. A call counts when it was answered and its row is in the table,
 * because h2load counts a failed call as HTTP 200 like any other; each run writes to its own sessions, so
 * every row in their tables is of this run.
 */
import { credentials } from "@grpc/grpc-js";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench } from "./bench.ts";
import { bodyOf } from "./bodies.ts";
import { type Latency, latencyOf, rounded } from "./figures.ts";
import { type Amount, runH2load } from "./h2load.ts";
import type { Target } from "./servers.ts";
import type { Shape } from "./shapes.ts";
import { cpuMsOf } from "./usage.ts";

export interface LoadFigures extends Latency {
  readonly callsPerSecond: number;
  readonly seconds: number;
  /** How much of them all connections were at work, see h2load-log.ts. */
  readonly together: number;
  /** HTTP 200. */
  readonly answered: number;
  /** Anything else, failed streams too. */
  readonly not200: number;
  /** Rows in the table; NaN, which JSON shows as null, where nothing is stored. */
  readonly rows: number;
  /** Pushes that were answered with the row of an earlier one. */
  readonly repeated: number;
  /** Answered, and neither in the table nor repeated: refused. */
  readonly notCounted: number;
  readonly sessions: number;
  readonly serverCpuMicrosPerCall: number;
  readonly postgresCpuMicrosPerCall: number;
}

let runs = 0;

export async function runLoad(
  bench: Bench,
  target: Target,
  options: { readonly shape: Shape; readonly amount: Amount },
): Promise<LoadFigures> {
  const { shape, amount } = options;
  runs += 1;
  const run = String(runs);
  const bodies = Array.from({ length: shape.connections }, (_, connection) =>
    bodyOf(shape, { run, connection }),
  );
  const sessionIds = [...new Set(bodies.flatMap((body) => body.sessionIds))];
  await tryOnce(target, shape);

  const before = await standOf(target, []);
  const load = await runH2load(bench, { ...target, ...shape, bodies, amount });
  const after = await standOf(target, sessionIds);

  const repeated = after.repeated - before.repeated;
  const stored = after.rows + repeated;
  const counted = Number.isNaN(stored) ? load.answered : Math.min(load.answered, stored);
  const perCall = (ms: number): number => rounded((ms * 1_000) / counted);
  return {
    callsPerSecond: rounded((load.answeredPerSecond * counted) / load.answered),
    ...latencyOf(load.tookMs),
    seconds: rounded(load.seconds),
    together: rounded(load.together),
    answered: load.answered,
    not200: load.otherwise,
    rows: after.rows,
    repeated,
    notCounted: load.answered - counted,
    sessions: after.sessions,
    serverCpuMicrosPerCall: perCall(after.serverCpuMs - before.serverCpuMs),
    postgresCpuMicrosPerCall: perCall(after.postgresCpuMs - before.postgresCpuMs),
  };
}

async function standOf(target: Target, sessionIds: readonly string[]) {
  const { pid, witness, hasWorkers = false } = target;
  // The times first: counting rows is work for PostgreSQL too.
  const serverCpuMs = await cpuMsOf(pid, { children: hasWorkers });
  if (witness === undefined) {
    const none = Number.NaN;
    return { serverCpuMs, postgresCpuMs: none, rows: none, repeated: none, sessions: none };
  }
  return {
    serverCpuMs,
    postgresCpuMs: await cpuMsOf(witness.postmasterPid, { children: true }),
    repeated: await witness.deduplicated(),
    rows: await witness.rowsOf(sessionIds),
    sessions: await witness.sessionsAmong(sessionIds),
  };
}

const TRY_LIMIT_MS = 10_000;

/** Shows that the server takes this body, which h2load cannot tell of one that stores nothing. */
async function tryOnce({ address, door }: Target, shape: Shape): Promise<void> {
  const channel =
    door === undefined
      ? credentials.createInsecure()
      : credentials.createSsl(Buffer.from(door.authority));
  const metadata: Record<string, string> =
    door === undefined ? {} : { authorization: `Bearer ${door.token}` };
  const client = new RpcClient(address, {}, channel);
  try {
    const { message } = bodyOf(shape, { run: `try-${runs}`, connection: 0 });
    await client.unaryBytes(SessionService.method.pushSessionEvent, message, {
      deadlineMs: TRY_LIMIT_MS,
      metadata,
    });
  } finally {
    client.close();
  }
}
