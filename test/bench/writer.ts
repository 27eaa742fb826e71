/**
 * What a session writer costs the agent that it is in: how long a call of `event` takes, and how late
 * the agent's next turn is because of what the writer does in between. The service is there, stands
 * still, or is not there at all. Beside it the same loop with an agent that only prints its events and
 * keeps them: what other processes of the machine and the collector of garbage do to a call is in both.
 */
import { setImmediate, setTimeout as delay } from "node:timers/promises";
import { createSessionWriter } from "../../src/runner/writer/writer.ts";
import type { SessionWriter } from "../../src/runner/writer/types.ts";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, rounded } from "./figures.ts";
import { startLedger } from "./servers.ts";

const TOKENS = 20_000;
const TOKENS_QUICK = 500;
/** Tokens in a row; then a pause of a millisecond, so that these are at most ten thousand a second. */
const BURST = 10;
/** A state of about 86 KiB. */
const SNAPSHOT_ITEMS = 1_000;
const SNAPSHOTS = 50;
/** What the issue allows a call. */
const CALL_MS_MAX = 1;
/** No service listens there. */
const NOWHERE = "127.0.0.1:9";

export async function benchWriter(bench: Bench): Promise<Findings> {
  const tokens = bench.options.calls ?? (bench.options.quick ? TOKENS_QUICK : TOKENS);
  const ledger = await startLedger(bench);
  const { address } = ledger;
  await measured(bench, { tokens, writer: writerOf(address) }); // Warms up.
  const alone = await measured(bench, { tokens, writer: undefined });
  const there = await measured(bench, { tokens, writer: writerOf(address) });
  process.kill(ledger.pid, "SIGSTOP");
  let standsStill: Findings;
  try {
    standsStill = await measured(bench, { tokens, writer: writerOf(address) });
  } finally {
    process.kill(ledger.pid, "SIGCONT"); // Or nobody could stop it.
  }
  const notThere = await measured(bench, { tokens, writer: writerOf(NOWHERE) });
  await ledger.stop();
  const load = { tokens, snapshots: SNAPSHOTS, snapshotKiB: rounded(snapshotKiB()) };
  return { load, alone, there, standsStill, notThere };
}

function writerOf(address: string): SessionWriter {
  return createSessionWriter({ address, sessionId: `bench-${crypto.randomUUID()}` });
}

async function measured(
  bench: Bench,
  { tokens, writer }: { readonly tokens: number; readonly writer: SessionWriter | undefined },
): Promise<Findings> {
  const calls = new Took();
  const turns = new Took();
  const kept: string[] = [];
  const say = async (event: object): Promise<void> => {
    calls.begin();
    if (writer === undefined) kept.push(JSON.stringify(event));
    else writer.event(event);
    calls.end();
    turns.begin();
    await setImmediate();
    turns.end();
  };
  const messageId = "bench";
  await say({ type: "RUN_STARTED", threadId: "bench", runId: "bench" });
  await say({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
  for (let at = 0; at < tokens; at += 1) {
    bench.signal.throwIfAborted();
    await say({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: `token ${at} ` });
    if (at % BURST === BURST - 1) await delay(1);
  }
  await say({ type: "TEXT_MESSAGE_END", messageId });
  const figures = { call: calls.findings, turn: turns.findings };
  const snapshots = writer === undefined ? {} : { snapshotCall: await snapshotCalls(writer) };
  const closed = await writer?.close({ timeoutMs: 100 });
  bench.progress(`calls: ${JSON.stringify(figures.call)}`);
  return { ...figures, ...snapshots, ...(closed && { leftAtTheEnd: closed.events }) };
}

class Took {
  readonly #tookMs: number[] = [];
  #beganMs = 0;

  begin(): void {
    this.#beganMs = performance.now();
  }

  end(): void {
    this.#tookMs.push(performance.now() - this.#beganMs);
  }

  get findings(): Findings {
    const over = this.#tookMs.filter((ms) => ms > CALL_MS_MAX).length;
    return { count: this.#tookMs.length, ...latencyOf(this.#tookMs), overLimit: over };
  }
}

/** Most of such a call is JSON.stringify, which `printed` has alone. */
async function snapshotCalls(writer: SessionWriter): Promise<Findings> {
  const calls = new Took();
  const prints = new Took();
  for (let at = 0; at < SNAPSHOTS; at += 1) {
    const event = { type: "STATE_SNAPSHOT", snapshot: snapshot() };
    prints.begin();
    JSON.stringify(event);
    prints.end();
    calls.begin();
    writer.event(event);
    calls.end();
    await setImmediate();
  }
  return { call: calls.findings, printed: prints.findings };
}

function snapshot(): object {
  return Array.from({ length: SNAPSHOT_ITEMS }, (_, id) => ({
    id,
    title: `item ${id} of the state of an agent`,
    done: id % 2 === 0,
    tags: ["one", "two"],
  }));
}

function snapshotKiB(): number {
  return JSON.stringify(snapshot()).length / 1_024;
}
