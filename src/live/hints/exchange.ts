/**
 * Exchanges news of commits with the other instances.
 *
 *   ingest, deletions ──► Announcer ──► carrier ══► the other instances
 *   WakeUps (live) ◄── decoded, own ones left out ◄── KeptLine ◄══ the other instances
 *
 * The exchange tells `live` when the line is lost and when it is back; meanwhile the poll finds the
 * news. Without a carrier (WAKE_UPS=poll) this exchange does nothing.
 */
import { BoundedMap } from "../../base/bounded-map.ts";
import type { Clock } from "../../base/clock.ts";
import { Paced } from "../../base/paced.ts";
import type { Unit } from "../../base/unit.ts";
import type { Log } from "../../observability/log.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { SessionHead, StoredRow } from "../../store/rows.ts";
import { Announcer, decodeAnnouncement } from "./announcer.ts";
import type { Carrier } from "./carrier.ts";
import { KeptLine } from "./kept-line.ts";
import { systemTimers, type Timers } from "../../base/timers.ts";

export interface Exchange extends Unit {
  /** Announces rows that are on disk. Never throws, never waits. */
  committed(rows: readonly StoredRow[]): void;
  /** Announces a deletion that is on disk. */
  deleted(sessionId: string): void;
  /** Announces another change of a session, which is on disk. */
  changed(sessionId: string): void;
}

interface ExchangeParts {
  /** The name that its announcements have. */
  readonly instance: string;
  readonly wakeUps: WakeUps;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "wakeUps" | "wakeUpsConnected" | "countHeard">;
  readonly clock: Clock;
  readonly timers?: Timers;
}

export function createExchange(parts: ExchangeParts, carrier: Carrier | undefined): Exchange {
  return carrier === undefined ? SILENT : new CarriedExchange(parts, carrier);
}

const SILENT: Exchange = {
  committed: () => undefined,
  deleted: () => undefined,
  changed: () => undefined,
  start: () => Promise.resolve(),
  stop: () => Promise.resolve(),
};

/**
 * A `*` costs one query for all watched sessions, and under load every other instance may send
 * many.
 */
const MISSED_INTERVAL_MS = 50;

const HEARD_MS = 60_000;
/** Instances that started again have another name, and are forgotten after HEARD_MS. */
const HEARD_MAX = 1_000;

class CarriedExchange implements Exchange {
  readonly #parts: ExchangeParts;
  readonly #adapter: Carrier["name"];
  readonly #announcer: Announcer;
  readonly #line: KeptLine;
  readonly #missed: Paced;
  /** The time of the last announcement of each instance. */
  readonly #heardMs = new BoundedMap<string, number>(HEARD_MAX);
  /** `undefined` before the first success or failure. */
  #isConnected: boolean | undefined;

  constructor(parts: ExchangeParts, carrier: Carrier) {
    const { instance, log, metrics, wakeUps, timers = systemTimers } = parts;
    this.#parts = parts;
    metrics.countHeard(() => this.#countHeard());
    this.#adapter = carrier.name;
    const labels = { adapter: carrier.name, direction: "sent" };
    this.#announcer = new Announcer({
      from: instance,
      send: (text) => carrier.send(text),
      sent: () => metrics.wakeUps.inc(labels),
      timers,
      log,
    });
    this.#missed = new Paced(timers, {
      intervalMs: MISSED_INTERVAL_MS,
      act: () => {
        wakeUps.missed();
        return 0;
      },
    });
    const events = {
      received: (text: string) => this.#received(text),
      connected: () => this.#turned(true),
      lost: (cause: unknown) => this.#turned(false, cause),
    };
    this.#line = new KeptLine({ carrier, events, timers });
  }

  async start(): Promise<void> {
    this.#parts.metrics.wakeUpsConnected.set({ adapter: this.#adapter }, 0);
    await this.#line.start();
  }

  async stop(): Promise<void> {
    // The last commits are still announced, and NATS needs the line for that.
    await this.#announcer.stop();
    await this.#line.stop();
    await this.#missed.stop();
    this.#parts.metrics.wakeUpsConnected.set({ adapter: this.#adapter }, 0);
  }

  committed(rows: readonly StoredRow[]): void {
    this.#announcer.committed(rows);
  }

  deleted(sessionId: string): void {
    this.#announcer.deleted(sessionId);
  }

  changed(sessionId: string): void {
    this.#announcer.changed(sessionId);
  }

  #received(text: string): void {
    const { from, sessions } = decodeAnnouncement(text);
    const { instance, metrics, wakeUps, clock } = this.#parts;
    if (from === instance) return;
    metrics.wakeUps.inc({ adapter: this.#adapter, direction: "received" });
    if (from !== "") this.#heardMs.set(from, clock.monotonicMs());
    if (sessions === "any") this.#missed.ask();
    else for (const [sessionId, head] of sessions) wakeUps.hinted(sessionId, head);
  }

  #countHeard(): number {
    const sinceMs = this.#parts.clock.monotonicMs() - HEARD_MS;
    return [...this.#heardMs.values()].filter((heardMs) => heardMs > sinceMs).length;
  }

  /** Logs a loss once per outage, however many tries the reconnect takes. */
  #turned(isConnected: boolean, cause?: unknown): void {
    if (isConnected === this.#isConnected) return;
    this.#isConnected = isConnected;
    const { log, metrics, wakeUps } = this.#parts;
    const adapter = this.#adapter;
    metrics.wakeUpsConnected.set({ adapter }, isConnected ? 1 : 0);
    if (isConnected) {
      log.info({ adapter }, "wake_ups_connected");
      wakeUps.regained();
    } else {
      log.warn({ adapter, err: cause }, "wake_ups_lost");
      wakeUps.lost();
    }
  }
}

/**
 * The port through which the service hears that another replica has committed. Every source of such
 * news calls this port. All calls are hints: a hint that is late, repeated, out of order, lost or
 * wrong costs time and no row. The poll of heads is one such source, built in as the backstop.
 */
export interface WakeUps {
  /**
   * A hint that a session stands at least at `head`; 0 means "not stated". A hinted deletion is
   * looked up in the table first. A hint for a session without watchers costs one look-up in
   * memory.
   */
  hinted(sessionId: string, head: SessionHead): void;
  /** Hints may have been lost: all watched sessions are looked up at once. */
  missed(): void;
  /** Hints have stopped, since an unknown time: until `regained`, only the poll finds news. */
  lost(): void;
  /** Hints arrive again; all watched sessions are looked up, as by `missed`. */
  regained(): void;
}
