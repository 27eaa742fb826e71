/**
 * The cost of TLS, a static token and rate limits for a unary push, compared with the same service
 * without them. Both run on one PostgreSQL, in turn in every round, in reversed order in every second
 * one, and do not wake each other.
 */
import type { Bench, Findings } from "./bench.ts";
import { medians, type Ratio, ratioOf } from "./figures.ts";
import { type LoadFigures, runLoad } from "./load.ts";
import { pushAmount } from "./push.ts";
import { type Ledger, startLedger, startReplica, type Target } from "./servers.ts";
import { SHAPES, type ShapeName } from "./shapes.ts";
import { certificateFiles, createAuthority } from "../support/certificates.ts";

const WARM_SECONDS = 3;
const TOKEN = "bench-token-that-is-long-enough-0123456789";
/** The target of the issue: the least share of the speed without them. */
const GOAL = 0.8;

const DOORS = ["open", "closed"] as const;
type Door = (typeof DOORS)[number];
const LOADS = ["sessions64", "connections64"] as const satisfies readonly ShapeName[];
type Turn = `${Door}/${(typeof LOADS)[number]}`;

export async function benchDoors(bench: Bench): Promise<Findings> {
  const servers = await startBoth(bench);
  const amount = pushAmount(bench);
  const warm = bench.options.quick ? { calls: 500 } : { seconds: WARM_SECONDS };
  for (const door of DOORS) {
    bench.progress(`warming up: ${door}`);
    await runLoad(bench, servers[door], { shape: SHAPES.sessions64, amount: warm });
  }
  const turns = LOADS.flatMap((load) => DOORS.map((door) => ({ door, load })));
  const figures = new Map<Turn, LoadFigures[]>();
  for (let round = 0; round < bench.options.rounds; round += 1) {
    for (const { door, load } of round % 2 === 0 ? turns : turns.toReversed()) {
      const turn: Turn = `${door}/${load}`;
      const found = await runLoad(bench, servers[door], { shape: SHAPES[load], amount });
      if (found.notCounted > 0) throw new Error(`${found.notCounted} pushes were refused: ${turn}`);
      figures.set(turn, [...(figures.get(turn) ?? []), found]);
      bench.progress(
        `round ${round + 1}, ${turn}: ${Math.round(found.callsPerSecond)} calls/s, p99 ${found.p99Ms} ms`,
      );
    }
  }
  const speeds = (turn: Turn): readonly number[] =>
    (figures.get(turn) ?? []).map(({ callsPerSecond }) => callsPerSecond);
  const ratios = LOADS.map((load) => {
    const ratio: Ratio = ratioOf(speeds(`closed/${load}`), speeds(`open/${load}`));
    const goal = { goal: GOAL, isReached: ratio.median >= GOAL };
    return [`TLS, token and limits / without, ${load}`, { ...goal, ...ratio }];
  });
  return {
    load: { ...amount, rounds: bench.options.rounds, payloadBytes: 600, shapes: LOADS },
    ratios: Object.fromEntries(ratios),
    figures: Object.fromEntries(
      Array.from(figures, ([turn, rounds]) => [turn, { median: medians(rounds), rounds }]),
    ),
  };
}

async function startBoth(bench: Bench): Promise<Readonly<Record<Door, Target>>> {
  const ledger = await startLedger(bench, { env: { WAKE_UPS: "poll" } });
  const closed = await startClosed(bench, ledger);
  const open = await startReplica(bench, ledger, { WAKE_UPS: "poll" });
  return { open, closed };
}

/** A replica with TLS, a token and limits. */
export async function startClosed(
  bench: Bench,
  ledger: Ledger,
  checkout?: string,
): Promise<Target> {
  const authority = await createAuthority();
  const { certFile, keyFile } = await certificateFiles(await authority.server(), authority);
  const tokens = { tokens: [{ id: "bench", token: TOKEN, roles: ["runner"] }] };
  const env = {
    WAKE_UPS: "poll",
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    AUTH_TOKENS: JSON.stringify(tokens),
    // Checked for each push, and above the speed of one machine.
    PRINCIPAL_MESSAGES_PER_SECOND: "1000000",
    PRINCIPAL_BYTES_PER_SECOND: "10000000000",
    SESSION_MESSAGES_PER_SECOND: "1000000",
    SESSION_BYTES_PER_SECOND: "10000000000",
  };
  const closed = await startReplica(bench, ledger, env, checkout);
  return { ...closed, door: { authority: authority.certificate, token: TOKEN } };
}
