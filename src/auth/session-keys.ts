/**
 * The keys that sign session tokens, which all instances on one database share.
 *
 *   asked to sign ──► the newest is young ─────────────────────────────► it signs
 *                     it is rotateAfterMs old, or there is none ──► read again ──► another made one ──► it signs
 *                                                                             └──► make one, write it ──► it signs
 *   a token names a key that is not here ──► read again, once in COOL_DOWN_MS
 *   READ_MS passed ──► read again: a row that somebody deleted is out of force then
 *
 * A key verifies for as long as a token of its may live, rotateAfterMs + ttlMaxMs from its making; then it
 * is deleted. When two instances make one at the same time there are two, and both are good.
 *
 * Keys are made when the first token is issued: a service that issues none has none.
 */
import {
  calculateJwkThumbprint,
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
} from "jose";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import type { Unit } from "../base/lifecycle.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface StoredTokenKey {
  readonly id: string;
  /** An Ed25519 private key. */
  readonly privateJwk: string;
  readonly createdAtMicros: bigint;
}

/** Where the keys are kept; src/store/token-keys.ts. */
export interface TokenKeyStore {
  /** The newest first. */
  readKeys(limit: { readonly keysMax: number }): Promise<readonly StoredTokenKey[]>;
  addKey(key: StoredTokenKey): Promise<void>;
  removeKeysMadeBefore(createdAtMicros: bigint): Promise<void>;
}

export interface SessionKeysParts {
  readonly store: TokenKeyStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface SessionKeysOptions {
  readonly ttlMaxMs: number;
  readonly rotateAfterMs: number;
  /** How often the keys are read again; undefined: only when they are needed. */
  readonly readMs: number | undefined;
}

/** A key of the table; it stands for itself by its identity. */
export interface SessionKey {
  readonly id: string;
  readonly privateJwk: string;
  readonly createdAtMs: number;
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

export const SESSION_KEYS_READ_MS = 30_000;
/** Anybody can send a token that names a key nobody has. */
const COOL_DOWN_MS = 1_000;
/** Clocks of two instances may be so far apart, and a token be signed while its key is rotated. */
const MARGIN_MS = 60_000;
/** Keys that are read; a limit that is never met, because of the next. */
const KEYS_MAX = 2_000;
/** However short SESSION_TOKEN_ROTATE_AFTER is, a token's longest life holds so many rotations at most. */
const ROTATIONS_KEPT_MAX = 500;

export class SessionKeys implements Unit {
  readonly #parts: SessionKeysParts;
  readonly #options: SessionKeysOptions;
  /** By id, the newest first. */
  #keys: ReadonlyMap<string, SessionKey> = new Map();
  #inForce: ReadonlySet<object> = new Set();
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;
  #making: Promise<SessionKey> | undefined;
  #triedMs = Number.NEGATIVE_INFINITY;
  #isStopped = false;

  constructor(parts: SessionKeysParts, options: SessionKeysOptions) {
    this.#parts = parts;
    const { ttlMaxMs, rotateAfterMs } = options;
    const atLeastMs = Math.ceil(ttlMaxMs / ROTATIONS_KEPT_MAX);
    this.#options = { ...options, rotateAfterMs: Math.max(rotateAfterMs, atLeastMs) };
  }

  async start(): Promise<void> {
    if (this.#options.readMs === undefined) return;
    await this.#read();
    this.#wait(this.#options.readMs);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await Promise.allSettled([this.#reading, this.#making]);
  }

  trusts(key: object): boolean {
    return this.#inForce.has(key);
  }

  /** Undefined: nobody has it, as far as can be told now. */
  async find(id: string): Promise<SessionKey | undefined> {
    const known = this.#keys.get(id);
    if (known !== undefined) return known;
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    if (this.#reading !== undefined || waitedMs >= COOL_DOWN_MS) await this.#read();
    return this.#keys.get(id);
  }

  /** The one to sign with. */
  async newest(): Promise<SessionKey> {
    const young = this.#young();
    if (young !== undefined) return young;
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  #young(): SessionKey | undefined {
    const [newest] = this.#keys.values();
    const youngMs = this.#nowMs() - this.#options.rotateAfterMs;
    return newest !== undefined && newest.createdAtMs > youngMs ? newest : undefined;
  }

  async #make(): Promise<SessionKey> {
    await this.#read();
    const young = this.#young();
    if (young !== undefined) return young;
    const { store, log } = this.#parts;
    const made = await newKey(this.#nowMs());
    await store.addKey(stored(made));
    log.info({ keyId: made.id }, "key for session tokens made");
    await this.#reading?.catch(() => undefined); // It may have begun before the key was there.
    this.#inForce = new Set([...this.#inForce, made]);
    this.#keys = new Map([[made.id, made], ...this.#keys]);
    await this.#removeOld();
    return made;
  }

  /** What is left over is removed with the next key that is made. */
  async #removeOld(): Promise<void> {
    const { store, log } = this.#parts;
    const { ttlMaxMs, rotateAfterMs } = this.#options;
    const keptMs = rotateAfterMs + ttlMaxMs + MARGIN_MS;
    try {
      await store.removeKeysMadeBefore(BigInt(this.#nowMs() - keptMs) * 1_000n);
    } catch (error) {
      log.warn({ err: error }, "old keys for session tokens not removed");
    }
  }

  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const { store, clock, metrics } = this.#parts;
    this.#triedMs = clock.monotonicMs();
    try {
      const rows = await store.readKeys({ keysMax: KEYS_MAX });
      const keys = new Map<string, SessionKey>();
      for (const row of rows) {
        const known = this.#keys.get(row.id);
        const isSame = known?.privateJwk === row.privateJwk;
        const key = isSame ? known : await this.#imported(row);
        if (key !== undefined) keys.set(row.id, key);
      }
      const inForce = new Set<object>(keys.values());
      const isSame =
        inForce.size === this.#inForce.size && [...inForce].every((key) => this.#inForce.has(key));
      this.#keys = keys;
      this.#inForce = inForce;
      metrics.keyRefreshes.inc({ keys: "session", outcome: isSame ? "same" : "changed" });
    } catch (error) {
      metrics.keyRefreshes.inc({ keys: "session", outcome: "failed" });
      throw error;
    }
  }

  /** Undefined: it cannot be read, which is no reason to do without the others. */
  async #imported(row: StoredTokenKey): Promise<SessionKey | undefined> {
    try {
      return await keyOf(row);
    } catch {
      this.#parts.log.error({ keyId: row.id }, "key for session tokens cannot be read");
      return undefined;
    }
  }

  #wait(readMs: number): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#read()
        .catch((error: unknown) => {
          this.#parts.log.warn({ err: error }, "keys for session tokens not read");
        })
        .finally(() => this.#wait(readMs));
    }, readMs);
  }

  #nowMs(): number {
    return Number(this.#parts.clock.nowMicros() / 1_000n);
  }
}

/** Of what jose can import, only this. */
const schema = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  d: z.string(),
});
const ALGORITHM = "EdDSA";

async function newKey(createdAtMs: number): Promise<SessionKey> {
  const { publicKey, privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
  const jwk = await exportJWK(privateKey);
  const id = await calculateJwkThumbprint(jwk);
  return { id, privateJwk: JSON.stringify(jwk), createdAtMs, publicKey, privateKey };
}

async function keyOf({ id, privateJwk, createdAtMicros }: StoredTokenKey): Promise<SessionKey> {
  const { d, ...publicJwk } = schema.parse(JSON.parse(privateJwk));
  return {
    id,
    privateJwk,
    createdAtMs: Number(createdAtMicros / 1_000n),
    publicKey: await imported(publicJwk),
    privateKey: await imported({ ...publicJwk, d }),
  };
}

async function imported(jwk: JWK): Promise<CryptoKey> {
  const key = await importJWK(jwk, ALGORITHM);
  if (key instanceof Uint8Array) throw new TypeError("a secret, and no key");
  return key;
}

function stored({ id, privateJwk, createdAtMs }: SessionKey): StoredTokenKey {
  return { id, privateJwk, createdAtMicros: BigInt(createdAtMs) * 1_000n };
}
