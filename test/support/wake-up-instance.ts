/** The wake-ups of one instance: all calls of its `live`, in words. */
import { randomUUID } from "node:crypto";
import { systemClock } from "../../src/base/clock.ts";
import type { Carrier } from "../../src/live/hints/carrier.ts";
import { createExchange, type Exchange, type WakeUps } from "../../src/live/hints/exchange.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { SlowTable } from "./slow-table.ts";
import { eventually } from "./eventually.ts";

export class WakeUpInstance implements AsyncDisposable {
  readonly exchange: Exchange;
  readonly logged: string[] = [];
  readonly #adapter: string;
  readonly #heard: string[] = [];
  readonly #table = new SlowTable();
  readonly #metrics = createMetrics();

  constructor(carrier: Carrier) {
    const wakeUps: WakeUps = {
      hinted: (id, { messageSeq, eventSeq, deleted }) =>
        this.#heard.push(`${id} ${messageSeq} ${eventSeq}${deleted ? " deleted" : ""}`),
      missed: () => this.#heard.push("missed"),
      lost: () => this.#heard.push("lost"),
      regained: () => this.#heard.push("regained"),
    };
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    const log = createLogTo({ write });
    this.#adapter = carrier.name;
    this.exchange = createExchange(
      { instance: randomUUID(), wakeUps, log, metrics: this.#metrics, clock: systemClock },
      carrier,
    );
  }

  static async started(carrier: Carrier): Promise<WakeUpInstance> {
    const instance = new WakeUpInstance(carrier);
    await instance.exchange.start();
    return instance;
  }

  commit(sessionId: string): void {
    this.exchange.committed([this.#table.event(sessionId)]);
  }

  /** All calls since the last question; waits until there are that many. */
  async hears(count: number): Promise<readonly string[]> {
    await eventually(() => {
      if (this.#heard.length < count) throw new Error(`heard only ${this.#heard.join(", ")}`);
    });
    return this.#heard.splice(0);
  }

  async isConnected(): Promise<boolean> {
    const connected = `session_ledger_wake_ups_connected{adapter="${this.#adapter}"} 1`;
    return (await this.#metrics.text()).includes(connected);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.exchange.stop();
  }
}
