import type { SecureContextOptions } from "node:tls";
import type { Clock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import { Repeating } from "../base/repeating.ts";
import type { Log } from "../observability/log.ts";
import type { TransportMetrics } from "../observability/transport-metrics.ts";
import { type ReadTls, readTls, signOf, type TlsFiles } from "./tls-files.ts";

export interface TlsMaterialParts {
  readonly log: Log;
  readonly metrics: Pick<TransportMetrics, "tlsReloads" | "tlsExpiry">;
  readonly clock: Clock;
}

export interface TlsMaterialOptions {
  /** The interval between two looks at the files. */
  readonly pollMs: number;
}

const POLL_MS = 1_000;

/**
 * The served certificate, and the authorities of client certificates. The files are polled, because
 * Kubernetes changes a link two levels above them, and no file watch reports that:
 *
 *   start ── read ──► as it was ── another file ──► unsettled ── a look later still that one ──► read
 *              │          ▲                             │ changed again ↺                         │
 *              ▼          └── taken: the listeners are called; refused: the old one stays ────────┘
 *            refused: the start fails
 *
 * A certificate and its key are two files and are never written at the same moment, so a change
 * needs a second look.
 */
export class TlsMaterial implements Unit {
  readonly #parts: TlsMaterialParts;
  readonly #files: TlsFiles;
  readonly #pollMs: number;
  readonly #listeners: (() => void)[] = [];
  readonly #looks = new Repeating(() => this.#look());
  #taken = "";
  #seen = "";
  #context: SecureContextOptions | undefined;

  constructor(
    parts: TlsMaterialParts,
    files: TlsFiles,
    { pollMs }: TlsMaterialOptions = { pollMs: POLL_MS },
  ) {
    this.#parts = parts;
    this.#files = files;
    this.#pollMs = pollMs;
  }

  /** The certificate for new connections. */
  get secureContextOptions(): SecureContextOptions {
    if (this.#context === undefined) throw new Error("TLS is not started");
    return this.#context;
  }

  get asksClients(): boolean {
    return this.#files.clientCaFile !== undefined;
  }

  /** Called after each change, once the new certificate is in use. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  async start(): Promise<void> {
    // Taken before the files are read: a write during the read then counts as another change at the
    // next look.
    this.#taken = await signOf(this.#files);
    this.#seen = this.#taken;
    this.#take(await readTls(this.#files));
    this.#looks.start(this.#pollMs);
  }

  stop(): Promise<void> {
    return this.#looks.stop();
  }

  async #look(): Promise<void> {
    const sign = await signOf(this.#files);
    const isSettled = sign === this.#seen;
    this.#seen = sign;
    if (!isSettled || sign === this.#taken) return;
    this.#taken = sign;
    const { log, metrics } = this.#parts;
    try {
      this.#take(await readTls(this.#files));
      for (const tell of this.#listeners) tell();
      metrics.tlsReloads.inc({ outcome: "changed" });
      log.info({}, "TLS certificate taken");
    } catch (error) {
      metrics.tlsReloads.inc({ outcome: "failed" });
      log.error({ err: ServiceError.from(error) }, "TLS certificate refused, the old one stays");
    }
  }

  #take({ context, notBefore, notAfter }: ReadTls): void {
    const { log, metrics, clock } = this.#parts;
    this.#context = context;
    metrics.tlsExpiry.set({ file: "TLS_CERT_FILE" }, notAfter.getTime() / 1_000);
    const nowMs = Number(clock.nowMicros() / 1_000n);
    if (notBefore.getTime() <= nowMs && nowMs <= notAfter.getTime()) return;
    log.warn({ notBefore, notAfter }, "the TLS certificate is not valid now");
  }
}
