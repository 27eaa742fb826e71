/**
 * Announcements between instances, over a carrier in memory whose lines the test opens and breaks.
 */
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import type { Carrier, Line } from "../../src/live/hints/carrier.ts";
import { createExchange, type Exchange, type WakeUps } from "../../src/live/hints/exchange.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { ManualTimers, settled, SlowTable } from "../support/slow-table.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const STEADY_MS = 10_000;

class MemoryLine implements Line {
  readonly lost: Promise<unknown>;
  readonly lose: (cause: unknown) => void;
  readonly hear: (text: string) => void;
  closed = false;

  constructor(received: (text: string) => void) {
    ({ promise: this.lost, resolve: this.lose } = Promise.withResolvers<unknown>());
    this.hear = received;
  }

  async close(): Promise<void> {
    this.lose(new Error("closed"));
    await settled();
    this.closed = true;
  }
}

class MemoryCarrier implements Carrier {
  readonly name = "nats";
  readonly lines: MemoryLine[] = [];
  readonly sent: string[] = [];
  /** While set, no line opens. */
  failure: Error | undefined;
  /** While set, opening waits until it resolves. */
  slow: Promise<void> | undefined;
  tries = 0;

  async open(received: (text: string) => void): Promise<Line> {
    this.tries += 1;
    await this.slow;
    if (this.failure !== undefined) throw this.failure;
    const line = new MemoryLine(received);
    this.lines.push(line);
    return line;
  }

  async send(text: string): Promise<void> {
    this.sent.push(text);
  }

  get line(): MemoryLine {
    const line = this.lines.at(-1);
    if (line === undefined) throw new Error("no line was opened");
    return line;
  }
}

class Exchanging {
  readonly timers = new ManualTimers();
  readonly carrier = new MemoryCarrier();
  readonly table = new SlowTable();
  readonly metrics = createMetrics();
  readonly logged: string[] = [];
  nowMs = 0;
  /** The calls of `live`, in words. */
  readonly heard: string[] = [];
  readonly exchange: Exchange;

  constructor() {
    const wakeUps: WakeUps = {
      hinted: (id, { messageSeq, eventSeq, deleted }) =>
        this.heard.push(`${id} ${messageSeq} ${eventSeq}${deleted ? " deleted" : ""}`),
      missed: () => this.heard.push("missed"),
      lost: () => this.heard.push("lost"),
      regained: () => this.heard.push("regained"),
    };
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    const log = createLogTo({ write });
    const parts = { instance: randomUUID(), wakeUps, log, metrics: this.metrics };
    const clock = { ...systemClock, monotonicMs: () => this.nowMs };
    this.exchange = createExchange({ ...parts, clock, timers: this.timers }, this.carrier);
  }

  /** The name of the instance, from the text that it sends. */
  async name(): Promise<string> {
    this.exchange.committed([this.table.event("s")]);
    await settled();
    return this.carrier.sent.at(-1)?.split(" ")[1] ?? "";
  }

  async fire(delayMsMax: number): Promise<void> {
    const due = this.timers.pending.filter(({ delayMs }) => delayMs <= delayMsMax);
    for (const timer of due) timer.fire();
    await settled();
  }

  async metric(name: string): Promise<readonly string[]> {
    const lines = (await this.metrics.text()).split("\n");
    return lines.filter((line) => line.startsWith(`session_ledger_${name}{`));
  }
}

describe("a received announcement", () => {
  test("of another instance is a hint for each of its sessions", async () => {
    const exchanging = await started();
    const { carrier, heard } = exchanging;
    carrier.line.hear("1 you s/1/2 t/0/5/d");
    expect(heard).toEqual(["regained", "s 1 2", "t 0 5 deleted"]);
    await exchanging.stop();
  });

  test("of this instance is ignored", async () => {
    const exchanging = await started();
    const me = await exchanging.name();
    exchanging.carrier.line.hear(`1 ${me} s/1/2`);
    exchanging.carrier.line.hear(`1 ${me} *`);
    expect(exchanging.heard).toEqual(["regained"]);
    expect(await exchanging.metric("wake_ups_total")).toEqual([
      'session_ledger_wake_ups_total{adapter="nats",direction="sent"} 1',
    ]);
    await exchanging.stop();
  });

  test("that is unreadable or a `*` causes one lookup of all watched sessions an interval", async () => {
    const exchanging = await started();
    const { carrier, heard } = exchanging;
    for (const text of ["1 you *", "what?", "2 you s", ""]) carrier.line.hear(text);
    expect(heard).toEqual(["regained", "missed"]);
    await settled();
    await exchanging.fire(50);
    expect(heard).toEqual(["regained", "missed", "missed"]);
    await exchanging.fire(50);
    expect(heard).toHaveLength(3);
    await exchanging.stop();
  });
});

test("another instance counts as heard for a minute after its last announcement", async () => {
  const exchanging = await started();
  const { carrier, metrics } = exchanging;
  const heard = async () => (await metrics.instancesHeard.get()).values.map(({ value }) => value);
  expect(await heard()).toEqual([0]);
  const me = await exchanging.name();
  for (const text of [`1 ${me} *`, "what?", "1 you s/1/2", "1 they *", "1 you *"])
    carrier.line.hear(text);
  expect(await heard()).toEqual([2]);
  exchanging.nowMs = 59_999;
  carrier.line.hear("1 you *");
  expect(await heard()).toEqual([2]);
  exchanging.nowMs = 60_000;
  expect(await heard()).toEqual([1]);
  exchanging.nowMs = 120_000;
  expect(await heard()).toEqual([0]);
  await exchanging.stop();
});

describe("a lost line", () => {
  test("is reported once an outage and opened again with growing pauses", async () => {
    const exchanging = await started();
    const { carrier, heard, logged } = exchanging;
    carrier.failure = new Error("down");
    carrier.line.lose(new Error("cut"));
    await settled();
    await settled();
    expect(carrier.lines[0]?.closed).toBe(true);
    expect(await exchanging.metric("wake_ups_connected")).toEqual([connected(0)]);
    const delays: number[] = [];
    for (let tries = 0; tries < 10; tries += 1) {
      delays.push(exchanging.timers.pending[0]?.delayMs ?? 0);
      await exchanging.fire(5_000);
    }
    expect(delays[0]).toBeLessThanOrEqual(100);
    expect(delays[9]).toBeGreaterThanOrEqual(2_500);
    expect(carrier.tries).toBe(11);
    carrier.failure = undefined;
    await exchanging.fire(5_000);
    expect(heard).toEqual(["regained", "lost", "regained"]);
    expect(logged).toEqual(["wake_ups_connected", "wake_ups_lost", "wake_ups_connected"]);
    expect(await exchanging.metric("wake_ups_connected")).toEqual([connected(1)]);
    await exchanging.stop();
  });

  test("is opened again at once only after it was open for a while", async () => {
    const exchanging = await started();
    const { carrier, timers } = exchanging;
    const delays: number[] = [];
    for (let losses = 0; losses < 8; losses += 1) {
      if (losses === 7) await exchanging.fire(STEADY_MS);
      carrier.line.lose(new Error("cut"));
      await settled();
      await settled();
      delays.push(timers.pending[0]?.delayMs ?? 0);
      await exchanging.fire(5_000);
    }
    expect(delays[6]).toBeGreaterThanOrEqual(2_500);
    expect(delays[7]).toBeLessThanOrEqual(100);
    await exchanging.stop();
  });
});

describe("a start", () => {
  test("succeeds without a line, and keeps trying", async () => {
    const exchanging = new Exchanging();
    exchanging.carrier.failure = new Error("down");
    await exchanging.exchange.start();
    expect(exchanging.heard).toEqual(["lost"]);
    exchanging.carrier.failure = undefined;
    await exchanging.fire(100);
    expect(exchanging.heard).toEqual(["lost", "regained"]);
    await exchanging.exchange.stop();
  });
});

describe("a stop", () => {
  test("closes a line that is being opened, and reports nothing about it", async () => {
    const exchanging = new Exchanging();
    const opening = Promise.withResolvers<void>();
    exchanging.carrier.slow = opening.promise;
    const starting = exchanging.exchange.start();
    const stopping = exchanging.exchange.stop();
    await settled(); // The last news is sent by now, and no more is received.
    opening.resolve();
    await Promise.all([starting, stopping]);
    expect(exchanging.carrier.line.closed).toBe(true);
    expect(exchanging.heard).toEqual([]);
  });

  test("ends the wait for the next try", async () => {
    const exchanging = new Exchanging();
    exchanging.carrier.failure = new Error("down");
    await exchanging.exchange.start();
    await exchanging.exchange.stop();
    expect(exchanging.timers.pending).toEqual([]);
    expect(exchanging.carrier.tries).toBe(1);
  });

  test("ends the receiving of announcements", async () => {
    const exchanging = await started();
    const { carrier, heard } = exchanging;
    await exchanging.stop();
    carrier.line.hear("1 you s/1/2");
    expect(heard).toEqual(["regained"]);
  });
});

test("an exchange without a carrier does nothing", async () => {
  const log = createLogTo({ write: () => undefined }, "silent");
  const timers = new ManualTimers();
  const wakeUps: WakeUps = {
    hinted: () => expect.unreachable(),
    missed: () => expect.unreachable(),
    lost: () => expect.unreachable(),
    regained: () => expect.unreachable(),
  };
  const exchange = createExchange(
    { instance: "one", wakeUps, log, metrics: createMetrics(), clock: systemClock, timers },
    undefined,
  );
  await exchange.start();
  exchange.committed([new SlowTable().event("s")]);
  exchange.deleted("s");
  await exchange.stop();
  expect(timers.pending).toEqual([]);
});

describeUnitContract("an exchange", {
  create: () => {
    const exchanging = new Exchanging();
    return Object.assign(exchanging.exchange, { exchanging });
  },
  isOfUse: async ({ exchanging }) => {
    exchanging.carrier.line.hear("1 you s/1/2");
    await exchanging.name();
    return exchanging.heard.includes("s 1 2") && exchanging.carrier.sent.length === 1;
  },
  remains: ({ exchanging }) => [
    ...exchanging.carrier.lines.filter(({ closed }) => !closed).map(() => "a line"),
    ...exchanging.timers.pending.map(({ delayMs }) => `a timer of ${delayMs} ms`),
  ],
});

async function started(): Promise<Exchanging & { readonly stop: () => Promise<void> }> {
  const exchanging = new Exchanging();
  await exchanging.exchange.start();
  return Object.assign(exchanging, { stop: () => exchanging.exchange.stop() });
}

function connected(value: 0 | 1): string {
  return `session_ledger_wake_ups_connected{adapter="nats"} ${value}`;
}
