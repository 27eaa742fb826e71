/**
 * Exchanges news of commits with the other instances.
 *
 *   ingest, deletions ──► Notifier ──► NOTIFY ══► the other instances
 *                            ▲ wanted by some?
 *                          Peers ◄────────┐
 *   WakeUps (live) ◄── decoded, own ones left out ◄── ReconnectingConnection ◄══ LISTEN
 *
 * The bus reports to `live` when the connection is lost and when it is restored. In between, the
 * poll finds the commits. Without a transport (LISTEN_DATABASE_URL=off) the bus does nothing.
 */
import type { Clock } from "@session-ledger/base/clock";
import { Throttle } from "../../base/throttle.ts";
import type { Unit } from "../../base/unit.ts";
import type { Log } from "../../observability/log.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { ListenerConnection } from "../../store/listen.ts";
import type { SessionHead, StoredRow } from "../../store/rows.ts";
import { decodeAnnouncement, Notifier } from "./notifier.ts";
import { Peers } from "./peers.ts";
import { ReconnectingConnection } from "./reconnecting-connection.ts";
import type { Subscriptions } from "./subscriptions.ts";
import { PEERS_TOPIC, type Transport } from "./transport.ts";
import { systemTimers, type Timers } from "@session-ledger/base/timers";

export interface HintBus extends Unit {
  /** Announces rows that are on disk. Never throws, never waits. */
  announceCommit(rows: readonly StoredRow[]): void;
  /** Announces a deletion that is on disk. */
  announceDelete(sessionId: string): void;
  /** Announces another change of a session, which is on disk. */
  announceChange(sessionId: string): void;
  /** Announces the cancel of a run to all instances: its push stream may be on any of them. */
  announceCancel(): void;
}

interface HintBusParts {
  /** The name that its announcements have. */
  readonly instance: string;
  readonly wakeUps: WakeUps;
  readonly subscriptions: Subscriptions;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "wakeUps" | "wakeUpsConnected" | "countInstances">;
  readonly clock: Clock;
  readonly timers?: Timers;
}

export function createHintBus(parts: HintBusParts, transport: Transport | undefined): HintBus {
  if (transport !== undefined) return new PostgresHintBus(parts, transport);
  parts.metrics.wakeUpsConnected.remove(); // Without a transport, no connection can be lost.
  return NO_HINT_BUS;
}

const NO_HINT_BUS: HintBus = {
  announceCommit: () => undefined,
  announceDelete: () => undefined,
  announceChange: () => undefined,
  announceCancel: () => undefined,
  start: () => Promise.resolve(),
  stop: () => Promise.resolve(),
};

/** A `*` costs a query for all watched sessions, and every other instance may send many. */
const MISSED_INTERVAL_MS = 50;

/** The text that announces a cancel, with the name of its instance behind it; peers.ts has the other forms. */
const CANCEL_FORM = "4";

class PostgresHintBus implements HintBus {
  readonly announceCommit: HintBus["announceCommit"];
  readonly announceDelete: HintBus["announceDelete"];
  readonly announceChange: HintBus["announceChange"];
  readonly #parts: HintBusParts;
  readonly #notifier: Notifier;
  readonly #peers: Peers;
  readonly #transport: Transport;
  readonly #connection: ReconnectingConnection;
  readonly #missed: Throttle;
  /** `undefined` before the first success or failure. */
  #isConnected: boolean | undefined;
  #isStopped = false;

  constructor(parts: HintBusParts, transport: Transport) {
    const { instance, log, metrics, wakeUps, timers = systemTimers } = parts;
    this.#parts = parts;
    this.#transport = transport;
    const send = transport.send.bind(transport);
    this.#peers = new Peers({
      ...parts,
      timers,
      send,
      subscribe: (topics) => this.#listener.subscribe(topics),
      unsubscribe: (topics) => this.#listener.unsubscribe(topics),
      onKnown: () => this.#missed.request(),
    });
    metrics.countInstances(() => this.#peers.count);
    this.#notifier = new Notifier({
      from: instance,
      wants: (shard) => this.#peers.wants(shard),
      send,
      onSent: (texts) => metrics.wakeUps.inc({ direction: "sent" }, texts),
      timers,
      log,
    });
    this.announceCommit = this.#notifier.announceCommit.bind(this.#notifier);
    this.announceDelete = this.#notifier.announceDelete.bind(this.#notifier);
    this.announceChange = this.#notifier.announceChange.bind(this.#notifier);
    this.#missed = new Throttle(timers, {
      intervalMs: MISSED_INTERVAL_MS,
      act: () => {
        wakeUps.onMissed();
        return 0;
      },
    });
    this.#connection = new ReconnectingConnection({
      transport,
      timers,
      receiver: () => ({
        topics: this.#peers.topics(),
        onMessage: this.#onMessage.bind(this),
      }),
      onOpen: () => this.#setConnected(true),
      onLoss: (cause) => this.#setConnected(false, cause),
    });
  }

  async start(): Promise<void> {
    await this.#connection.start();
  }

  async stop(): Promise<void> {
    await this.#notifier.stop(); // The last commits are still announced.
    this.#isStopped = true;
    await this.#connection.stop();
    await this.#peers.stop();
    await this.#missed.stop();
    this.#parts.metrics.wakeUpsConnected.set(0);
  }

  announceCancel(): void {
    const text = `${CANCEL_FORM} ${this.#parts.instance}`;
    // A lost one is found by the next look for cancels.
    this.#transport.send([{ topic: PEERS_TOPIC, text }]).catch(() => undefined);
  }

  #onMessage(text: string): void {
    if (this.#isStopped) return;
    const { instance, metrics, wakeUps } = this.#parts;
    const [form, sender] = text.split(" ", 2);
    if (sender === instance) return;
    if (form === CANCEL_FORM) return wakeUps.onCancel();
    if (form === "2" || form === "3") return this.#peers.onText(text);
    const { sessions } = decodeAnnouncement(text);
    metrics.wakeUps.inc({ direction: "received" });
    if (sessions === "any") this.#missed.request();
    else for (const [sessionId, head] of sessions) wakeUps.onHint(sessionId, head);
  }

  get #listener(): ListenerConnection {
    const { current } = this.#connection;
    if (current === undefined) throw new Error("no connection for LISTEN is open");
    return current;
  }

  /** Logs a loss once per outage, however many tries the reconnect takes. */
  #setConnected(isConnected: boolean, cause?: unknown): void {
    if (isConnected === this.#isConnected) return;
    this.#isConnected = isConnected;
    const { log, metrics, wakeUps } = this.#parts;
    metrics.wakeUpsConnected.set(isConnected ? 1 : 0);
    if (isConnected) {
      log.info("wake_ups_connected");
      wakeUps.onRestored();
      this.#peers.onOpen();
    } else {
      this.#peers.onLoss();
      log.warn({ err: cause }, "wake_ups_lost");
      wakeUps.onLost();
    }
  }
}

/**
 * News of commits by other replicas. All calls are hints: one that is late, repeated, out of order,
 * lost or wrong costs time and no row. The poll of heads is the backstop.
 */
export interface WakeUps {
  /**
   * A session stands at least at `head`; 0: not stated. A hinted deletion is looked up in the
   * table. Without watchers a hint costs one look-up in memory.
   */
  onHint(sessionId: string, head: SessionHead): void;
  /** Another instance has taken a cancel. */
  onCancel(): void;
  /** Hints may have been lost: all watched sessions are looked up at once. */
  onMissed(): void;
  /** Hints have stopped, since an unknown time: until `regained`, only the poll finds news. */
  onLost(): void;
  /** Hints arrive again; all watched sessions are looked up, as by `missed`. */
  onRestored(): void;
}
