/**
 * Keeps the keys of an issuer in step with a URL.
 *
 *   start ──► read ── taken ──► fresh ── REFRESH_MS later, or a token names an unknown key
 *              ▲ │                ▲         │                       (once in COOL_DOWN_MS)
 *              │ └─ failed ──► again, RETRY_MS later; the known keys stay valid …
 *              └──────────────────┴─────────┘
 *                             … for STALE_MS since they were last read: then they are dropped, because
 *                             a key that was withdrawn meanwhile must not stay valid
 *
 * A service whose issuer is unreachable still starts and is ready: its other tokens work.
 */
import type { Clock } from "../base/clock.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { fetchText } from "./fetch-text.ts";
import type { Jwks } from "./jwks.ts";

export interface JwksUrlParts {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly jwks: Jwks;
}

export interface JwksUrlLimits {
  readonly refreshMs: number;
  readonly retryMs: number;
  readonly coolDownMs: number;
  readonly staleMs: number;
  readonly fetchMs: number;
  readonly bytesMax: number;
}

export const JWKS_URL_LIMITS: JwksUrlLimits = {
  /** The longest time that a withdrawn key stays in force. */
  refreshMs: 300_000,
  retryMs: 15_000,
  /** Anyone can send a token that names an unknown key. */
  coolDownMs: 10_000,
  staleMs: 24 * 3_600_000,
  fetchMs: 5_000,
  bytesMax: 1_048_576,
};

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

export class JwksUrl implements Unit {
  readonly #parts: JwksUrlParts;
  readonly #url: string;
  readonly #limits: JwksUrlLimits;
  readonly #stopping = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;
  #readMs = Number.NEGATIVE_INFINITY;
  #triedMs = Number.NEGATIVE_INFINITY;
  #isFailing = false;

  constructor(parts: JwksUrlParts, url: string, limits: JwksUrlLimits = JWKS_URL_LIMITS) {
    this.#parts = parts;
    this.#url = url;
    this.#limits = limits;
  }

  async start(): Promise<void> {
    const { protocol, hostname } = new URL(this.#url);
    if (protocol === "http:" && !LOOPBACK.includes(hostname)) {
      this.#parts.log.warn({ url: this.#url }, "keys of the issuer come without TLS");
    }
    await this.#read();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    clearTimeout(this.#timer);
    await this.#reading;
  }

  /** A token names an unknown key. Resolves when further waiting cannot help. */
  async lookAgain(): Promise<void> {
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    if (this.#reading === undefined && waitedMs < this.#limits.coolDownMs) return;
    await this.#read();
  }

  /** Runs once at a time; never rejects. */
  #read(): Promise<void> {
    if (this.#stopping.signal.aborted) return Promise.resolve();
    clearTimeout(this.#timer);
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
      if (this.#stopping.signal.aborted) return;
      const { retryMs, refreshMs } = this.#limits;
      this.#timer = setTimeout(() => void this.#read(), this.#isFailing ? retryMs : refreshMs);
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const { clock, jwks, log, metrics } = this.#parts;
    const { fetchMs, bytesMax } = this.#limits;
    this.#triedMs = clock.monotonicMs();
    try {
      const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(fetchMs)]);
      const isChanged = jwks.take(await fetchText(this.#url, { signal, bytesMax }));
      this.#readMs = clock.monotonicMs();
      metrics.keyRefreshes.inc({ keys: "oidc", outcome: isChanged ? "changed" : "same" });
      if (isChanged || this.#isFailing) log.info({ url: this.#url }, "keys of the issuer read");
      this.#isFailing = false;
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      metrics.keyRefreshes.inc({ keys: "oidc", outcome: "failed" });
      // Logs only the first failure in a row; the counter has the others.
      if (!this.#isFailing)
        log.error({ url: this.#url, err: error }, "keys of the issuer not read");
      this.#isFailing = true;
      this.#dropStale();
    }
  }

  #dropStale(): void {
    const { clock, jwks, log } = this.#parts;
    if (jwks.isEmpty || clock.monotonicMs() - this.#readMs < this.#limits.staleMs) return;
    jwks.clear();
    log.error({ url: this.#url, staleMs: this.#limits.staleMs }, "keys of the issuer dropped");
  }
}
