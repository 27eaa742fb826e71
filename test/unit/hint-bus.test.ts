/**
 * Announcements between instances, over a transport in memory whose connections the test opens and breaks.
 */
import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { createHintBus, type HintBus, type WakeUps } from "../../src/live/hints/hint-bus.ts";
import { ASK_INTERVAL_MS, REFRESH_MS, REPLY_LIMIT_MS } from "../../src/live/hints/peers.ts";
import { Subscriptions } from "../../src/live/hints/subscriptions.ts";
import type { Message, Receiver, Transport } from "../../src/live/hints/transport.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { ListenerConnection } from "../../src/store/listen.ts";
import { ManualTimers, settled, SlowTable } from "../support/slow-table.ts";
import { describeUnitContract } from "../support/unit-contract.ts";
import { instancesHeard } from "../support/wake-ups.ts";

const STEADY_MS = 10_000;

class MemoryConnection implements ListenerConnection {
  readonly lost: Promise<unknown>;
  readonly lose: (cause: unknown) => void;
  readonly hear: (text: string) => void;
  closed = false;

  constructor({ topics, onMessage }: Receiver) {
    this.topics = new Set(topics);
    ({ promise: this.lost, resolve: this.lose } = Promise.withResolvers<unknown>());
    this.hear = onMessage;
  }

  readonly topics: Set<string>;

  async subscribe(topics: readonly string[]): Promise<void> {
    for (const topic of topics) this.topics.add(topic);
  }

  async unsubscribe(topics: readonly string[]): Promise<void> {
    for (const topic of topics) this.topics.delete(topic);
  }

  async close(): Promise<void> {
    this.lose(new Error("closed"));
    await settled();
    this.closed = true;
  }
}

class MemoryTransport implements Transport {
  readonly connections: MemoryConnection[] = [];
  /** Announcements. */
  readonly sent: string[] = [];
  /** What it sends about itself, each with its topic. */
  readonly notes: Message[] = [];
  /** While set, no connection opens. */
  failure: Error | undefined;
  /** While set, opening waits until it resolves. */
  slow: Promise<void> | undefined;
  tries = 0;

  async open(receiver: Receiver): Promise<ListenerConnection> {
    this.tries += 1;
    await this.slow;
    if (this.failure !== undefined) throw this.failure;
    const connection = new MemoryConnection(receiver);
    this.connections.push(connection);
    return connection;
  }

  async send(messages: readonly Message[]): Promise<void> {
    for (const message of messages) {
      if (message.text.startsWith("1 ")) this.sent.push(message.text);
      else this.notes.push(message);
    }
  }

  get connection(): MemoryConnection {
    const connection = this.connections.at(-1);
    if (connection === undefined) throw new Error("no connection was opened");
    return connection;
  }
}

class TestBus {
  readonly timers = new ManualTimers();
  readonly transport = new MemoryTransport();
  readonly table = new SlowTable();
  readonly subscriptions = new Subscriptions();
  readonly metrics = createMetrics();
  readonly logged: string[] = [];
  nowMs = 0;
  /** The calls of `live`, in words. */
  readonly heard: string[] = [];
  readonly bus: HintBus;

  constructor() {
    const wakeUps: WakeUps = {
      onHint: (id, { messageSeq, eventSeq, deleted }) =>
        this.heard.push(`${id} ${messageSeq} ${eventSeq}${deleted ? " deleted" : ""}`),
      onCancel: () => this.heard.push("cancel"),
      onMissed: () => this.heard.push("missed"),
      onLost: () => this.heard.push("lost"),
      onRestored: () => this.heard.push("regained"),
    };
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    const log = createLogTo({ write });
    const { subscriptions, metrics } = this;
    const parts = { instance: randomUUID(), wakeUps, subscriptions, log, metrics };
    const clock = { ...systemClock, monotonicMs: () => this.nowMs };
    this.bus = createHintBus({ ...parts, clock, timers: this.timers }, this.transport);
  }

  /** The name of the instance, from the text that it sends. */
  async name(): Promise<string> {
    this.bus.announceCommit([this.table.event("s")]);
    await settled();
    return this.transport.sent.at(-1)?.split(" ")[1] ?? "";
  }

  async fire(delayMsMax: number): Promise<void> {
    const due = this.timers.pending.filter(({ delayMs }) => delayMs <= delayMsMax);
    for (const timer of due) timer.fire();
    await settled();
  }

  /** The pause before the next connection: the only timer between those of questions and of refreshes. */
  get retryDelayMs(): number {
    const others = [ASK_INTERVAL_MS, REPLY_LIMIT_MS, REFRESH_MS, STEADY_MS];
    return this.timers.pending.find(({ delayMs }) => !others.includes(delayMs))?.delayMs ?? 0;
  }

  async metric(name: string): Promise<readonly string[]> {
    const lines = (await this.metrics.text()).split("\n");
    return lines.filter((line) => /^session_ledger_(\w+)/.exec(line)?.[1] === name);
  }
}

describe("a received announcement", () => {
  test("of another instance is a hint for each of its sessions", async () => {
    const testBus = await started();
    const { transport, heard } = testBus;
    transport.connection.hear("1 you s/1/2 t/0/5/d");
    expect(heard).toEqual(["regained", "s 1 2", "t 0 5 deleted"]);
    await testBus.stop();
  });

  test("of this instance is ignored", async () => {
    const testBus = await started();
    const me = await testBus.name();
    testBus.transport.connection.hear(`1 ${me} s/1/2`);
    testBus.transport.connection.hear(`1 ${me} *`);
    expect(testBus.heard).toEqual(["regained"]);
    expect(await testBus.metric("wake_ups_total")).toEqual([
      'session_ledger_wake_ups_total{direction="sent"} 1',
    ]);
    await testBus.stop();
  });

  test("that is unreadable or a `*` causes one lookup of all watched sessions an interval", async () => {
    const testBus = await started();
    const { transport, heard } = testBus;
    for (const text of ["1 you *", "what?", "2 you s", ""]) transport.connection.hear(text);
    expect(heard).toEqual(["regained", "missed"]);
    await settled();
    await testBus.fire(50);
    expect(heard).toEqual(["regained", "missed", "missed"]);
    await testBus.fire(50);
    expect(heard).toHaveLength(3);
    await testBus.stop();
  });
});

test("another instance counts as heard for a minute after its last text about itself", async () => {
  const testBus = await started();
  const { transport, metrics } = testBus;
  const count = () => instancesHeard(metrics);
  expect(await count()).toBe(0);
  const me = await testBus.name();
  for (const text of [`2 ${me} 1 0`, "what?", "2 you 1 0", "2 they 1 1 7", "3 you 2 ff 1"])
    transport.connection.hear(text);
  expect(await count()).toBe(2);
  testBus.nowMs = 59_999;
  transport.connection.hear("2 you 3 0");
  expect(await count()).toBe(2);
  testBus.nowMs = 60_000;
  expect(await count()).toBe(1);
  testBus.nowMs = 120_000;
  expect(await count()).toBe(0);
  await testBus.stop();
});

describe("a lost connection", () => {
  test("is reported once an outage and opened again with growing pauses", async () => {
    const testBus = await started();
    const { transport, heard, logged } = testBus;
    transport.failure = new Error("down");
    transport.connection.lose(new Error("cut"));
    await settled();
    await settled();
    expect(transport.connections[0]?.closed).toBe(true);
    expect(await testBus.metric("wake_ups_connected")).toEqual([connected(0)]);
    const delays: number[] = [];
    for (let tries = 0; tries < 10; tries += 1) {
      delays.push(testBus.retryDelayMs);
      await testBus.fire(5_000);
    }
    expect(delays[0]).toBeLessThanOrEqual(100);
    expect(delays[9]).toBeGreaterThanOrEqual(500);
    expect(Math.max(...delays)).toBeLessThanOrEqual(1_000); // A new primary is found within 2 s.
    expect(transport.tries).toBe(11);
    transport.failure = undefined;
    await testBus.fire(5_000);
    expect(heard.filter((call) => call !== "missed")).toEqual(["regained", "lost", "regained"]);
    expect(logged).toEqual(["wake_ups_connected", "wake_ups_lost", "wake_ups_connected"]);
    expect(await testBus.metric("wake_ups_connected")).toEqual([connected(1)]);
    await testBus.stop();
  });

  test("is opened again at once only after it was open for a while", async () => {
    const testBus = await started();
    const { transport } = testBus;
    const delays: number[] = [];
    for (let losses = 0; losses < 8; losses += 1) {
      if (losses === 7) await testBus.fire(STEADY_MS);
      transport.connection.lose(new Error("cut"));
      await settled();
      await settled();
      delays.push(testBus.retryDelayMs);
      await testBus.fire(5_000);
    }
    expect(delays[6]).toBeGreaterThanOrEqual(500);
    expect(delays[7]).toBeLessThanOrEqual(100);
    await testBus.stop();
  });
});

describe("a start", () => {
  test("succeeds without a connection, and keeps trying", async () => {
    const testBus = new TestBus();
    testBus.transport.failure = new Error("down");
    await testBus.bus.start();
    expect(testBus.heard).toEqual(["lost"]);
    testBus.transport.failure = undefined;
    await testBus.fire(100);
    expect(testBus.heard).toEqual(["lost", "regained"]);
    await testBus.bus.stop();
  });
});

describe("a stop", () => {
  test("closes a connection that is being opened, and reports nothing about it", async () => {
    const testBus = new TestBus();
    const opening = Promise.withResolvers<void>();
    testBus.transport.slow = opening.promise;
    const starting = testBus.bus.start();
    const stopping = testBus.bus.stop();
    await settled(); // The last news is sent by now, and no more is received.
    opening.resolve();
    await Promise.all([starting, stopping]);
    expect(testBus.transport.connection.closed).toBe(true);
    expect(testBus.heard).toEqual([]);
  });

  test("ends the wait for the next try", async () => {
    const testBus = new TestBus();
    testBus.transport.failure = new Error("down");
    await testBus.bus.start();
    await testBus.bus.stop();
    expect(testBus.timers.pending).toEqual([]);
    expect(testBus.transport.tries).toBe(1);
  });

  test("ends the receiving of announcements", async () => {
    const testBus = await started();
    const { transport, heard } = testBus;
    await testBus.stop();
    transport.connection.hear("1 you s/1/2");
    expect(heard).toEqual(["regained"]);
  });
});

test("an hint bus without a transport does nothing", async () => {
  const log = createLogTo({ write: () => undefined }, "silent");
  const timers = new ManualTimers();
  const wakeUps: WakeUps = {
    onHint: () => expect.unreachable(),
    onCancel: () => expect.unreachable(),
    onMissed: () => expect.unreachable(),
    onLost: () => expect.unreachable(),
    onRestored: () => expect.unreachable(),
  };
  const bus = createHintBus(
    {
      instance: "one",
      wakeUps,
      subscriptions: new Subscriptions(),
      log,
      metrics: createMetrics(),
      clock: systemClock,
      timers,
    },
    undefined,
  );
  await bus.start();
  bus.announceCommit([new SlowTable().event("s")]);
  bus.announceDelete("s");
  await bus.stop();
  expect(timers.pending).toEqual([]);
});

describeUnitContract("an hint bus", {
  create: () => {
    const testBus = new TestBus();
    return Object.assign(testBus.bus, { testBus });
  },
  isOfUse: async ({ testBus }) => {
    testBus.transport.connection.hear("1 you s/1/2");
    await testBus.name();
    return testBus.heard.includes("s 1 2") && testBus.transport.sent.length === 1;
  },
  remains: ({ testBus }) => [
    ...testBus.transport.connections.filter(({ closed }) => !closed).map(() => "a connection"),
    ...testBus.timers.pending.map(({ delayMs }) => `a timer of ${delayMs} ms`),
  ],
});

async function started(): Promise<TestBus & { readonly stop: () => Promise<void> }> {
  const testBus = new TestBus();
  await testBus.bus.start();
  return Object.assign(testBus, { stop: () => testBus.bus.stop() });
}

function connected(value: 0 | 1): string {
  return `session_ledger_wake_ups_connected ${value}`;
}
