/**
 * Instances that announce to each other only what is watched, over a transport in memory. It counts the
 * deliveries, each of which is work for PostgreSQL and for an instance.
 */
import { describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { createHintBus, type HintBus, type WakeUps } from "../../src/live/hints/hint-bus.ts";
import { PEER_TTL_MS, REFRESH_MS, REPLY_LIMIT_MS } from "../../src/live/hints/peers.ts";
import { SHARDS, shardOf, Subscriptions } from "../../src/live/hints/subscriptions.ts";
import { channelName, type Receiver, type Transport } from "../../src/live/hints/transport.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { ListenerConnection } from "../../src/store/listen.ts";
import { ManualTimers, settled, SlowTable } from "../support/slow-table.ts";
import { instancesHeard } from "../support/wake-ups.ts";

interface Line extends Receiver {
  readonly instance: string;
  readonly open: Set<string>;
}

class Network {
  readonly timers = new ManualTimers();
  readonly lines = new Set<Line>();
  nowMs = 0;
  /** Announcements, each of one shard. */
  sent = 0;
  /** Announcements that an instance got from another one. */
  deliveries = 0;
  /** Texts of instances about themselves, one for each receiver. */
  notes = 0;

  transportOf(
    instance: string,
  ): Transport & { readonly lose: (cause: Error) => void; readonly kill: () => void } {
    let lose = (_cause: Error): void => undefined;
    let isDead = false;
    return {
      lose: (cause) => lose(cause),
      kill: () => {
        isDead = true;
        lose(new Error("killed"));
      },
      open: async (receiver) => {
        if (isDead) throw new Error("killed");
        const line = {
          ...receiver,
          instance,
          open: new Set([...receiver.topics, "peers", instance]),
        };
        this.lines.add(line);
        const lost = Promise.withResolvers<unknown>();
        lose = (cause) => {
          this.lines.delete(line);
          lost.resolve(cause);
        };
        const connection: ListenerConnection = {
          lost: lost.promise,
          subscribe: async (topics) => topics.forEach((topic) => line.open.add(topic)),
          unsubscribe: async (topics) => topics.forEach((topic) => line.open.delete(topic)),
          close: async () => lose(new Error("closed")),
        };
        return connection;
      },
      send: async (messages) => {
        if (isDead) throw new Error("killed");
        for (const { topic, text } of messages) {
          if (text.startsWith("1 ")) this.sent += 1;
          for (const line of this.lines) {
            if (!line.open.has(topic)) continue;
            if (!text.startsWith("1 ")) this.notes += 1;
            else if (line.instance !== instance) this.deliveries += 1;
            line.onMessage(text);
          }
        }
      },
    };
  }

  async pass(delayMsMax: number): Promise<void> {
    for (const timer of this.timers.pending.filter(({ delayMs }) => delayMs <= delayMsMax))
      timer.fire();
    for (let turn = 0; turn < 10; turn += 1) await settled();
  }

  /** Until all questions are answered. */
  async known(): Promise<void> {
    for (let turn = 0; turn < 3; turn += 1) await this.pass(REPLY_LIMIT_MS);
  }
}

class Instance {
  readonly subscriptions = new Subscriptions();
  readonly calls: string[] = [];
  readonly transport: ReturnType<Network["transportOf"]>;
  readonly metrics = createMetrics();
  readonly bus: HintBus;
  readonly #table = new SlowTable();

  constructor(network: Network, name: string) {
    this.transport = network.transportOf(name);
    const wakeUps: WakeUps = {
      onHint: (sessionId) => this.calls.push(sessionId),
      onCancel: () => this.calls.push("cancel"),
      onMissed: () => this.calls.push("lookup"),
      onLost: () => undefined,
      onRestored: () => undefined,
    };
    const { subscriptions, metrics } = this;
    const log = createLogTo({ write: () => undefined }, "silent");
    const clock = { ...systemClock, monotonicMs: () => network.nowMs };
    const { timers } = network;
    const parts = { instance: name, wakeUps, subscriptions, log, metrics, clock, timers };
    this.bus = createHintBus(parts, this.transport);
  }

  commit(sessionId: string): void {
    this.bus.announceCommit([this.#table.event(sessionId)]);
  }

  /** The calls since the last question. */
  get news(): readonly string[] {
    return this.calls.splice(0);
  }
}

async function started(count: number): Promise<[Network, ...Instance[]]> {
  const network = new Network();
  const instances = Array.from({ length: count }, (_, at) => new Instance(network, `i${at}`));
  for (const { bus } of instances) await bus.start();
  await network.known();
  for (const { calls } of instances) calls.splice(0);
  return [network, ...instances];
}

const pair = async () => {
  const [network, one, other] = await started(2);
  if (one === undefined || other === undefined) throw new Error("two were started");
  return { network, one, other };
};

describe("an instance", () => {
  test("announces nothing while no other one watches", async () => {
    const { network, one } = await pair();
    one.subscriptions.add("s");
    await network.known();
    one.commit("s");
    await network.known();
    expect(network.sent).toBe(0);
  });

  test("announces what another one watches, which looks up what was committed before", async () => {
    const { network, one, other } = await pair();
    other.subscriptions.add("s");
    await network.pass(0);
    expect(other.news).toEqual(["lookup"]);
    one.commit("s");
    await network.pass(0);
    expect([other.news, one.news]).toEqual([["s"], []]);
    one.commit("other");
    await network.known();
    expect([shardOf("other") === shardOf("s"), other.news]).toEqual([false, []]);
  });

  // Bug: a reply and a question took different connections, and the older one came last.
  test("ignores an older text that comes after a newer one", async () => {
    const { network, one, other } = await pair();
    const [line] = [...network.lines].filter(({ instance }) => instance === "i0");
    other.subscriptions.add("s");
    await network.pass(0);
    line?.onMessage("2 i1 1 0");
    line?.onMessage("3 i1 2 0 1");
    one.commit("s");
    await network.pass(0);
    expect(other.news).toContain("s");
  });

  test("makes one whose answer comes late look up what was not announced to it", async () => {
    const { network, one, other } = await pair();
    const away = [...network.lines].filter(({ instance }) => instance === "i1");
    other.subscriptions.add("s");
    for (const line of away) network.lines.delete(line);
    await network.known();
    const late = new Instance(network, "late");
    await late.bus.start();
    await network.known(); // Its question did not reach the other one.
    late.commit("s");
    for (const line of away) network.lines.add(line);
    expect([one.news, other.news]).toEqual([[], ["lookup"]]);
    await network.pass(REFRESH_MS);
    expect(other.news).toEqual(["lookup"]);
    late.commit("s");
    await network.known();
    expect(other.news).toEqual(["s"]);
  });

  test("announces everything to one that watches all", async () => {
    const { network, one, other } = await pair();
    other.subscriptions.add();
    await network.known();
    const ids = Array.from({ length: 200 }, (_, at) => `s${at}`);
    expect(new Set(ids.map(shardOf)).size).toBeGreaterThan(SHARDS / 2);
    one.commit("first");
    for (const id of ids) one.commit(id);
    await network.known();
    expect(other.news).toEqual(expect.arrayContaining(["first", ...ids]));
  });

  test("announces everything before it knows the others, and after its connection is lost", async () => {
    const { network, one, other } = await pair();
    const late = new Instance(network, "late");
    await late.bus.start();
    late.commit("s");
    one.transport.lose(new Error("cut"));
    await settled();
    expect(other.news).toEqual([]);
    other.subscriptions.add("s");
    await network.pass(0);
    late.commit("s");
    one.commit("s");
    await network.pass(100);
    expect(other.news.filter((call) => call === "s").length).toBeGreaterThanOrEqual(2);
  });

  test("keeps a shard without watches for a while, and then leaves it", async () => {
    const { network, one, other } = await pair();
    other.subscriptions.add("s");
    await network.known();
    other.subscriptions.remove("s");
    await network.pass(REFRESH_MS);
    one.commit("s");
    await network.known();
    expect(network.deliveries).toBe(1);
    await network.pass(REFRESH_MS);
    await network.pass(REFRESH_MS);
    one.commit("s");
    await network.known();
    expect(network.deliveries).toBe(1);
  });

  test("does not wait longer for one that has died, and forgets it after a minute", async () => {
    const { network, one, other } = await pair();
    const count = () => instancesHeard(one.metrics);
    other.transport.kill();
    one.subscriptions.add("s");
    await network.pass(0);
    expect(one.news).toEqual([]);
    await network.pass(REPLY_LIMIT_MS);
    expect([one.news, await count()]).toEqual([["lookup"], 1]);
    network.nowMs = PEER_TTL_MS;
    await network.pass(REFRESH_MS);
    expect(await count()).toBe(0);
  });

  test("says goodbye, and is not counted any more", async () => {
    const { network, one, other } = await pair();
    const count = () => instancesHeard(one.metrics);
    expect(await count()).toBe(1);
    await other.bus.stop();
    expect(await count()).toBe(0);
    await one.bus.stop();
    expect(network.timers.pending).toEqual([]);
  });

  test("announces a cancel to all others", async () => {
    const [network, one, ...others] = await started(3);
    one?.bus.announceCancel();
    await network.pass(0);
    expect([one, ...others].map((instance) => instance?.news)).toEqual([
      [],
      ["cancel"],
      ["cancel"],
    ]);
  });
});

test.each([2, 8, 32])("with %i instances the deliveries are those to watchers", async (count) => {
  const [network, ...instances] = await started(count);
  const watched = Array.from({ length: 16 }, (_, at) => `watched-${at}`);
  for (const [at, id] of watched.entries()) instances[at % count]?.subscriptions.add(id);
  await network.known();
  const ids = [...watched, ...Array.from({ length: 48 }, (_, at) => `other-${at}`)];
  let wanted = 0;
  for (const [at, id] of ids.entries()) {
    const from = instances[(at + 1) % count];
    from?.commit(id);
    await network.pass(10);
    const wants = ({ subscriptions }: Instance) => subscriptions.shards.includes(shardOf(id));
    wanted += instances.filter((one) => one !== from && wants(one)).length;
  }
  expect(network.deliveries).toBe(wanted);
  process.stdout.write(
    `hints: ${count} instances, ${ids.length} commits, 16 watches: ${wanted} deliveries, ${ids.length * (count - 1)} to everybody\n`,
  );
});

test("a channel fits PostgreSQL's names, and no schema has those of another one", () => {
  const instance = "0d3b41fe-8f7b-4a3e-b1c5-3a3f5e0f8a11";
  const schemas = [undefined, "x".repeat(48), `${"x".repeat(47)}y`];
  const names = schemas.flatMap((schema) =>
    ["7", "peers", instance].map((topic) => channelName(topic, schema)),
  );
  expect(new Set(names).size).toBe(9);
  for (const name of names) expect(name).toMatch(/^[a-z_0-9]{1,63}$/);
});
