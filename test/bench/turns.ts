/**
 * What a claim costs, over what a push costs in the same round. Two pushes make a run: RUN_STARTED and
 * RUN_FINISHED. A claim and RUN_FINISHED make a turn, here of one message. So a claim costs what a turn
 * costs without half a run. And runners that wait: their memory and CPU.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { RpcClient } from "../support/grpc-client.ts";
import { claim, emit, finish, say } from "../support/turns.ts";
import type { Bench, Findings } from "./bench.ts";
import { type Ratio, ratioOf, rounded } from "./figures.ts";
import { type Ledger, startLedger } from "./servers.ts";
import { cpuMsOf, memoryOf } from "./usage.ts";

const SESSIONS = 64;
const CONNECTIONS = 8;
const TURNS = 100;
const PAYLOAD_BYTES = 600;
const WAITING = 1_000;
const WATCHED_SECONDS = 10;
const CLAIMS_OVER_PUSHES_MAX = 2;

interface Phase {
  /** Of one call, or one turn. */
  readonly wallMs: number;
  readonly serviceMs: number;
  readonly postgresMs: number;
}

export async function benchTurns(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const turns = bench.options.calls ?? (bench.options.quick ? 5 : TURNS);
  const clients = clientsOf(bench, ledger);
  const rounds: { readonly message: Phase; readonly push: Phase; readonly turn: Phase }[] = [];
  await round(bench, { ledger, clients, turns: Math.ceil(turns / 4) }); // Warms up.
  for (let at = 0; at < bench.options.rounds; at += 1) {
    const found = await round(bench, { ledger, clients, turns });
    rounds.push(found);
    bench.progress(
      `round ${at + 1}: push ${found.push.wallMs} ms, turn ${found.turn.wallMs} ms of ${SESSIONS} at once`,
    );
  }
  const claimOf = (field: keyof Phase): Ratio =>
    ratioOf(
      rounds.map(({ turn, push }) => turn[field] - push[field]),
      rounds.map(({ push }) => push[field]),
    );
  const goal = { goal: CLAIMS_OVER_PUSHES_MAX };
  return {
    load: { sessions: SESSIONS, connections: CONNECTIONS, turns, payloadBytes: PAYLOAD_BYTES },
    "claim / push": {
      time: { ...goal, ...claimOf("wallMs") },
      "CPU of the service": { ...goal, ...claimOf("serviceMs") },
      "CPU of PostgreSQL": { ...goal, ...claimOf("postgresMs") },
    },
    rounds,
    waiting: await waiting(bench),
  };
}

export function clientsOf({ undo }: Bench, { address }: Ledger): readonly RpcClient[] {
  const clients = Array.from({ length: CONNECTIONS }, () => new RpcClient(address));
  undo.defer(() => clients.forEach((client) => client.close()));
  return clients;
}

interface Load {
  readonly ledger: Ledger;
  readonly clients: readonly RpcClient[];
  readonly turns: number;
}

async function round(bench: Bench, load: Load) {
  const of = `bench-${randomUUID()}`;
  const message = await phase(bench, load, saying(of));
  const run = await phase(bench, load, async (client, lane, at) => {
    const [sessionId, runId] = [`${of}-${lane}-pushed`, `r${at}`];
    await emit(client, sessionId, { type: "RUN_STARTED", threadId: sessionId, runId });
    await finish(client, sessionId, runId);
  });
  const push: Phase = {
    wallMs: run.wallMs / 2,
    serviceMs: run.serviceMs / 2,
    postgresMs: run.postgresMs / 2,
  };
  return { message, push, turn: await phase(bench, load, taking(of)) };
}

/** A claim and the end of its run. */
export async function turnOf(bench: Bench, load: Load): Promise<Phase> {
  const of = `bench-${randomUUID()}`;
  await phase(bench, load, saying(of));
  return phase(bench, load, taking(of));
}

type Step = (client: RpcClient, lane: number, turn: number) => Promise<unknown>;

function saying(of: string): Step {
  const text = "x".repeat(PAYLOAD_BYTES);
  return (client, lane) => say(client, `${of}-${lane}`, text);
}

function taking(of: string): Step {
  return async (client, lane, at) => {
    const [sessionId, runId] = [`${of}-${lane}`, `r${at}`];
    const { messages } = await claim(client, { sessionId, runId, messagesMax: 1 });
    if (messages.length !== 1) throw new Error(`a turn has ${messages.length} messages`);
    await finish(client, sessionId, runId);
  };
}

/** Calls `step` for each turn of each session, one after the other in a session. */
async function phase(bench: Bench, { ledger, clients, turns }: Load, step: Step): Promise<Phase> {
  const before = await costsOf(ledger);
  const lanes = Array.from({ length: SESSIONS }, async (_, lane) => {
    const client = clients[lane % clients.length] ?? new RpcClient(ledger.address);
    for (let turn = 0; turn < turns; turn += 1) {
      bench.signal.throwIfAborted();
      await step(client, lane, turn);
    }
  });
  await Promise.all(lanes);
  const after = await costsOf(ledger);
  const each = (field: keyof Phase): number =>
    rounded((after[field] - before[field]) / (turns * SESSIONS));
  return {
    wallMs: each("wallMs"),
    serviceMs: each("serviceMs"),
    postgresMs: each("postgresMs"),
  };
}

async function costsOf({ pid, witness }: Ledger): Promise<Phase> {
  return {
    wallMs: performance.now(),
    serviceMs: await cpuMsOf(pid, { children: false }),
    postgresMs: await cpuMsOf(witness.postmasterPid, { children: true }),
  };
}

/** A service without load, and then with runners that wait, each in a session of its own. */
async function waiting(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const count = bench.options.quick ? 50 : WAITING;
  const seconds = bench.options.quick ? 1 : WATCHED_SECONDS;
  const cpuShare = async (): Promise<number> => {
    const before = await costsOf(ledger);
    await sleep(seconds * 1_000, undefined, { signal: bench.signal });
    const after = await costsOf(ledger);
    return rounded((after.serviceMs - before.serviceMs) / (after.wallMs - before.wallMs));
  };
  const clients = clientsOf(bench, ledger);
  // A service that has done no work yet grows by its first calls, whatever they are.
  await round(bench, { ledger, clients, turns: Math.ceil(count / SESSIONS) });
  await sleep(2_000, undefined, { signal: bench.signal });
  const cpuWithout = await cpuShare();
  const before = await memoryOf(ledger.pid);
  const of = `bench-${randomUUID()}`;
  const left = new AbortController();
  const claims = Array.from({ length: count }, (_, at) => {
    const client = clients[at % clients.length] ?? new RpcClient(ledger.address);
    const request = { sessionId: `${of}-${at}`, runId: "r", wait: { seconds: 60n } };
    return claim(client, request, { deadlineMs: 120_000, signal: left.signal }).catch(
      () => undefined,
    );
  });
  // Until the claims wait and the memory of their calls is free again.
  await sleep(2_000, undefined, { signal: bench.signal });
  const cpuWith = await cpuShare();
  const after = await memoryOf(ledger.pid);
  left.abort();
  await Promise.all(claims);
  return {
    runners: count,
    residentMiB: {
      without: rounded(before.residentMiB),
      with: rounded(after.residentMiB),
      more: rounded(after.residentMiB - before.residentMiB),
    },
    "share of a core": { without: cpuWithout, with: cpuWith },
  };
}
