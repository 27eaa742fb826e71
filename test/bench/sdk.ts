/**
 * What the SDK costs the process of an agent: CPU of an event through middleware, derivation and
 * writer, how long the agent's `yield` takes, and the memory while the service stands still. Beside it
 * the same agent whose events are only printed.
 */
import { PerformanceObserver } from "node:perf_hooks";
import { setImmediate } from "node:timers/promises";
import * as api from "@opentelemetry/api";
import { capabilitiesOf, PlatformBridge } from "../../src/sdk/bridge.ts";
import type { AgentEvent, RunInput } from "../../src/sdk/bridge.ts";
import { createRunner } from "../../src/sdk/loop.ts";
import type { Middleware } from "../../src/sdk/middleware/middleware.ts";
import { platformMiddleware } from "../../src/sdk/middleware/index.ts";
import { redaction } from "../../src/sdk/middleware/redaction.ts";
import { tracing } from "../../src/sdk/middleware/tracing.ts";
import { createLedgerClient, ledger } from "../../src/runner/client.ts";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, rounded } from "./figures.ts";
import { startLedger } from "./servers.ts";

const TOKENS = 100_000;
const TOKENS_QUICK = 500;
/** Tokens in one turn of the event loop. */
const BURST = 10;
/** Tokens that do not fit into the spool: about 250 bytes each. */
const TOKENS_AWAY = 600_000;
const SPOOL_MIB = 64;
/** What the issue allows a call. */
const CALL_MS_MAX = 1;
const MIB = 1_048_576;
const SECRET = { API_KEY: "a-secret-of-the-pod-0123456789" };

export async function benchSdk(bench: Bench): Promise<Findings> {
  const { quick, calls } = bench.options;
  const tokens = calls ?? (quick ? TOKENS_QUICK : TOKENS);
  const service = await startLedger(bench);
  const { address } = service;
  await runOf(bench, { address, tokens: quick ? TOKENS_QUICK : TOKENS }); // Warms up.
  const alone = await printed(bench, tokens);
  const there = await runOf(bench, { address, tokens });
  const middleware = platformMiddleware({
    redaction: redaction({ environment: SECRET, variables: Object.keys(SECRET) }),
    tracing: tracing(api),
  });
  const through = await runOf(bench, { address, tokens, middleware });
  const away = await runOf(bench, {
    address,
    middleware,
    tokens: quick ? TOKENS_QUICK : TOKENS_AWAY,
    atStart: () => process.kill(service.pid, "SIGSTOP"),
    atEnd: () => process.kill(service.pid, "SIGCONT"), // Or nobody could stop it.
  });
  await service.stop();
  return { load: { tokens, burst: BURST, spoolMiB: SPOOL_MIB }, alone, there, through, away };
}

interface Run {
  readonly address: string;
  readonly tokens: number;
  /** Default: none. */
  readonly middleware?: readonly Middleware[];
  readonly atStart?: () => void;
  readonly atEnd?: () => void;
}

async function runOf(bench: Bench, run: Run): Promise<Findings> {
  const sessionId = `bench-${crypto.randomUUID()}`;
  const client = createLedgerClient({ address: run.address });
  await client.call(ledger.pushSessionMessage, { sessionId, eventType: "user", payload: "go" });
  client.close();
  const bridge = new BenchBridge(bench, run);
  const spool = { bytesMax: SPOOL_MIB * MIB };
  const { middleware = [] } = run;
  const runner = createRunner(bridge, { address: run.address, sessionId, spool, middleware });
  const ended = runner.run();
  try {
    const findings = await bridge.measured;
    bench.progress(JSON.stringify(findings));
    return findings;
  } finally {
    await runner.stop();
    await ended;
  }
}

class BenchBridge extends PlatformBridge {
  readonly measured: Promise<Findings>;
  #tell: (findings: Findings) => void = () => undefined;
  readonly #bench: Bench;
  readonly #run: Run;

  constructor(bench: Bench, run: Run) {
    super();
    this.#bench = bench;
    this.#run = run;
    this.measured = new Promise((resolve) => (this.#tell = resolve));
  }

  createAdapter() {
    return { run: (input: RunInput) => this.#agent(input) };
  }

  capabilities() {
    return capabilitiesOf({ framework: "bench" });
  }

  async *#agent({ runId: messageId }: RunInput): AsyncGenerator<AgentEvent, void, undefined> {
    const { tokens, atStart, atEnd } = this.#run;
    const cost = new Cost(tokens);
    yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
    atStart?.();
    cost.begin();
    for (let at = 0; at < tokens; at += 1) {
      const event = tokenAt(at, messageId);
      cost.calls();
      yield event; // Back here, the event is with the writer.
      cost.called();
      if (at % BURST === BURST - 1) await cost.nextBurst();
      this.#bench.signal.throwIfAborted();
    }
    const findings = await cost.end();
    atEnd?.();
    yield { type: "TEXT_MESSAGE_END", messageId };
    this.#tell(findings);
  }
}

/** The same agent without the SDK. */
async function printed(bench: Bench, tokens: number): Promise<Findings> {
  const cost = new Cost(tokens);
  const kept: string[] = [];
  cost.begin();
  for (let at = 0; at < tokens; at += 1) {
    const event = tokenAt(at, "alone");
    cost.calls();
    kept.push(JSON.stringify(event));
    cost.called();
    if (at % BURST === BURST - 1) await cost.nextBurst();
    bench.signal.throwIfAborted();
  }
  const findings = await cost.end();
  bench.progress(`alone: ${JSON.stringify(findings)}`);
  return findings;
}

function tokenAt(at: number, messageId: string): AgentEvent {
  return { type: "TEXT_MESSAGE_CONTENT", messageId, delta: `token ${at} ` };
}

/** Of the calls between `begin` and `end`; CPU also of what happens in between, as sending. */
class Cost {
  readonly #tookMs: Float64Array;
  #count = 0;
  #calledMs = 0;
  #cpu = process.cpuUsage();
  #rssBytes = 0;
  #rssMaxBytes = 0;
  #burstCpuMs = 0;
  /** The calls over the limit: when, and the CPU of this thread in their burst. */
  readonly #slow: { readonly from: number; readonly to: number; readonly cpuMs: number }[] = [];
  readonly #pauses: { readonly startTime: number; readonly duration: number }[] = [];
  readonly #observer = new PerformanceObserver((list) => this.#pauses.push(...list.getEntries()));

  constructor(calls: number) {
    this.#tookMs = new Float64Array(calls);
  }

  begin(): void {
    this.#observer.observe({ entryTypes: ["gc"] });
    this.#burstCpuMs = threadCpuMs();
    this.#rssBytes = process.memoryUsage.rss();
    this.#cpu = process.cpuUsage();
  }

  calls(): void {
    this.#calledMs = performance.now();
  }

  called(): void {
    const to = performance.now();
    this.#tookMs[this.#count] = to - this.#calledMs;
    if (to - this.#calledMs > CALL_MS_MAX) {
      const cpuMs = threadCpuMs() - this.#burstCpuMs;
      this.#slow.push({ from: this.#calledMs, to, cpuMs });
    }
    this.#count += 1;
    if (this.#count % 10_000 === 0) {
      this.#rssMaxBytes = Math.max(this.#rssMaxBytes, process.memoryUsage.rss());
    }
  }

  async nextBurst(): Promise<void> {
    await setImmediate();
    this.#burstCpuMs = threadCpuMs();
  }

  async end(): Promise<Findings> {
    const { user, system } = process.cpuUsage(this.#cpu);
    await setImmediate(); // The last pauses are told in a later turn.
    await setImmediate();
    this.#observer.disconnect();
    const collected = this.#slow.filter(({ from, to }) =>
      this.#pauses.some((one) => one.startTime < to && one.startTime + one.duration > from),
    );
    // The machine gave the CPU to others, or to the threads of the collector.
    const waited = this.#slow.filter((one) => one.cpuMs < CALL_MS_MAX && !collected.includes(one));
    const rss = Math.max(this.#rssMaxBytes, process.memoryUsage.rss());
    return {
      cpuMicros: rounded((user + system) / this.#count),
      call: latencyOf(this.#tookMs),
      overLimit: this.#slow.length,
      overLimitOf: {
        collector: collected.length,
        otherProcesses: waited.length,
        rest: this.#slow.length - collected.length - waited.length,
      },
      // A process that is interrupted anywhere is interrupted in a call as often as it is in one.
      insideMs: rounded(this.#tookMs.reduce((sum, ms) => sum + ms, 0)),
      collectorPauses: this.#pauses.length,
      grownMiB: rounded((rss - this.#rssBytes) / MIB),
    };
  }
}

/** Without the threads of the collector and of the compiler. */
function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
