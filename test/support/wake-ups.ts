import { randomUUID } from "node:crypto";
import { systemClock } from "@session-ledger/base/clock";
import { createHintBus, type HintBus, type WakeUps } from "../../src/live/hints/hint-bus.ts";
import { Subscriptions } from "../../src/live/hints/subscriptions.ts";
import type { Transport } from "../../src/live/hints/transport.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import { SlowTable } from "./slow-table.ts";
import { eventually } from "./eventually.ts";

/** The wake-ups of one instance that watches all sessions: the calls of its `live`, in words, without lookups. */
export class WakeUpInstance implements AsyncDisposable {
  readonly hints: HintBus;
  readonly subscriptions = new Subscriptions();
  readonly logged: string[] = [];
  readonly #calls: string[] = [];
  readonly #table = new SlowTable();
  readonly #metrics = createMetrics();

  constructor(transportOf: (instance: string) => Transport) {
    const instance = randomUUID();
    this.subscriptions.add();
    const wakeUps: WakeUps = {
      onHint: (id, { messageSeq, eventSeq, deleted }) =>
        this.#calls.push(`${id} ${messageSeq} ${eventSeq}${deleted ? " deleted" : ""}`),
      onCancel: () => this.#calls.push("cancel"),
      onMissed: () => undefined,
      onLost: () => this.#calls.push("lost"),
      onRestored: () => this.#calls.push("regained"),
    };
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    const log = createLogTo({ write });
    this.hints = createHintBus(
      {
        instance,
        wakeUps,
        subscriptions: this.subscriptions,
        log,
        metrics: this.#metrics,
        clock: systemClock,
      },
      transportOf(instance),
    );
  }

  static async started(transportOf: (instance: string) => Transport): Promise<WakeUpInstance> {
    const instance = new WakeUpInstance(transportOf);
    await instance.hints.start();
    return instance;
  }

  commit(sessionId: string): void {
    this.hints.announceCommit([this.#table.event(sessionId)]);
  }

  /** All calls since the last question; waits until there are that many. */
  async hears(count: number): Promise<readonly string[]> {
    await eventually(() => {
      if (this.#calls.length < count) throw new Error(`only ${this.#calls.join(", ")}`);
    });
    return this.#calls.splice(0);
  }

  async isConnected(): Promise<boolean> {
    return (await this.#metrics.text()).includes("\nsession_ledger_wake_ups_connected 1\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.hints.stop();
  }
}

/** The number that a scrape would have. */
export async function instancesHeard(metrics: Metrics): Promise<number | undefined> {
  const all = await metrics.json();
  const metric = all.find(({ name }) => name === "session_ledger_instances_heard");
  return metric?.values[0]?.value;
}
