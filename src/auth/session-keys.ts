/**
 * The keys that sign session tokens. All instances on one database share them.
 *
 *   made, in the table ── KEY_AHEAD_MS ──► signs, being the newest that is so old ──► the next one signs
 *          │ every instance reads it within READ_MS, and verifies by it          │ its last token ends
 *          └─ there is no older one: it signs at once                            ▼
 *                                                                             deleted
 *   asked to sign, or READ_MS passed: the newest is rotateAfterMs old ──► read again ──► another made one
 *                                                                              └──► make one, write it
 *   a token names an unknown key ──► read again, once in COOL_DOWN_MS
 *   READ_MS passed ──► read again: the key of a deleted row is not valid any more
 *
 * A key is made long before it signs because of COOL_DOWN_MS. Anyone can keep the cool-down active
 * with tokens that name unknown keys, and until its end the other instances would not find a key
 * that signs at once. Only a key without an older one signs at once.
 *
 * A key made by a clock far ahead of ours does not sign and never counts as the newest. Otherwise
 * it would stay the newest for years, and no other key would be made. Its tokens are verified until
 * the last of them ends.
 *
 * When two instances make a key at the same time, both keys are valid. The first key is made when
 * the first token is issued: a service that issues no token has no key.
 */
import type { CryptoKey, JWK } from "jose";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import type { Unit } from "../base/unit.ts";
import { Repeating } from "../base/repeating.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface StoredTokenKey {
  readonly id: string;
  /** An Ed25519 private key. */
  readonly privateJwk: string;
  readonly createdAtMicros: bigint;
}

/** The store of the keys; src/store/token-keys.ts. */
export interface TokenKeyStore {
  /** The newest key comes first. */
  readKeys(limit: { readonly keysMax: number }): Promise<readonly StoredTokenKey[]>;
  addKey(key: StoredTokenKey): Promise<void>;
  removeKeysMadeBefore(createdAtMicros: bigint): Promise<void>;
  /** Removes the given keys whose creation is in the future by the database's clock too. */
  removeKeysOfTheFuture(ids: readonly string[]): Promise<void>;
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
  /** The interval at which the keys are read again; undefined: only on demand. */
  readonly readMs: number | undefined;
}

/** A key of the table; the object itself is its identity. */
export interface SessionKey {
  readonly id: string;
  readonly privateJwk: string;
  readonly createdAtMs: number;
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

export const SESSION_KEYS_READ_MS = 30_000;
/** Anyone can send a token that names an unknown key. */
const COOL_DOWN_MS = 1_000;
/** The allowed clock difference of two instances, plus the time for signing during a rotation. */
const MARGIN_MS = 60_000;
/**
 * The time that a key is in the table before it signs. By then every instance has read it, even
 * when one read failed, and when the clock of the key's maker is ahead.
 */
export const KEY_AHEAD_MS = 2 * SESSION_KEYS_READ_MS + MARGIN_MS;
/** The limit of keys in one read, which is never reached because of the next constant. */
const KEYS_MAX = 2_000;
/**
 * For any time between two keys, a token's longest life has at most this number of
 * rotations.
 */
const ROTATIONS_KEPT_MAX = 500;

export class SessionKeys implements Unit {
  readonly #parts: SessionKeysParts;
  readonly #options: SessionKeysOptions;
  readonly #ticks = new Repeating(() => this.#tick());
  /** Keyed by id, the newest first. */
  #keys: ReadonlyMap<string, SessionKey> = new Map();
  #inForce: ReadonlySet<object> = new Set();
  #reading: Promise<void> | undefined;
  #making: Promise<SessionKey> | undefined;
  #triedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: SessionKeysParts, options: SessionKeysOptions) {
    this.#parts = parts;
    const { ttlMaxMs, rotateAfterMs } = options;
    const atLeastMs = Math.ceil(ttlMaxMs / ROTATIONS_KEPT_MAX);
    this.#options = { ...options, rotateAfterMs: Math.max(rotateAfterMs, atLeastMs) };
  }

  async start(): Promise<void> {
    if (this.#options.readMs === undefined) return;
    await this.#read();
    this.#ticks.start(this.#options.readMs);
  }

  async stop(): Promise<void> {
    await Promise.allSettled([this.#ticks.stop(), this.#reading, this.#making]);
  }

  trusts(key: object): boolean {
    return this.#inForce.has(key);
  }

  /** Undefined: no known key has this id. */
  async find(id: string): Promise<SessionKey | undefined> {
    const known = this.#keys.get(id);
    if (known !== undefined) return known;
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    if (this.#reading !== undefined || waitedMs >= COOL_DOWN_MS) await this.#read();
    return this.#keys.get(id);
  }

  /** The key to sign with. */
  async signer(): Promise<SessionKey> {
    return this.#current() ?? this.#renewed();
  }

  /** Undefined: there is no key, or the newest is so old that the next one must be made. */
  #current(): SessionKey | undefined {
    const [newest] = this.#made();
    const isDue = newest === undefined || this.#ageMs(newest) >= this.#options.rotateAfterMs;
    return isDue ? undefined : this.#signing();
  }

  /** When all keys are too young, the oldest, which most instances have read. */
  #signing(): SessionKey | undefined {
    const keys = this.#made();
    return keys.find((key) => this.#ageMs(key) >= KEY_AHEAD_MS) ?? keys.at(-1);
  }

  /** The newest first, without keys from the future. */
  #made(): readonly SessionKey[] {
    return [...this.#keys.values()].filter((key) => !this.#isOfTheFuture(key));
  }

  #isOfTheFuture(key: SessionKey): boolean {
    return this.#ageMs(key) < -MARGIN_MS;
  }

  #renewed(): Promise<SessionKey> {
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  async #make(): Promise<SessionKey> {
    await this.#read();
    const current = this.#current();
    if (current !== undefined) return current;
    const { store, log } = this.#parts;
    const made = await newKey(this.#nowMs());
    await store.addKey(stored(made));
    log.info({ keyId: made.id }, "key for session tokens made");
    // A running read may have begun before the key was written.
    await this.#reading?.catch(() => undefined);
    this.#inForce = new Set([...this.#inForce, made]);
    this.#keys = new Map([[made.id, made], ...this.#keys]);
    await this.#removeOld();
    return this.#signing() ?? made;
  }

  /** All tokens of earlier keys have ended when a later key has signed for this long. */
  async #removeOld(): Promise<void> {
    const { store, log } = this.#parts;
    const overMs = KEY_AHEAD_MS + this.#options.ttlMaxMs + MARGIN_MS;
    const made = this.#made();
    const successor = made.find((key) => this.#ageMs(key) >= overMs);
    if (successor === undefined) return;
    const future = [...this.#keys.values()].filter((key) => this.#isOfTheFuture(key));
    try {
      if (successor !== made.at(-1))
        await store.removeKeysMadeBefore(BigInt(successor.createdAtMs) * 1_000n);
      if (future.length > 0) await store.removeKeysOfTheFuture(future.map(({ id }) => id));
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

  /** Undefined: the key cannot be read; the other keys are still used. */
  async #imported(row: StoredTokenKey): Promise<SessionKey | undefined> {
    try {
      return await keyOf(row);
    } catch {
      this.#parts.log.error({ keyId: row.id }, "key for session tokens cannot be read");
      return undefined;
    }
  }

  /** Also runs when no token is requested, so that no key is in force for longer than promised. */
  async #tick(): Promise<void> {
    try {
      await this.#read();
      if (this.#ticks.isStopped || this.#keys.size === 0) return;
      if (this.#current() === undefined) await this.#renewed();
      else await this.#removeOld();
    } catch (error) {
      this.#parts.log.warn({ err: error }, "keys for session tokens not read");
    }
  }

  #ageMs({ createdAtMs }: SessionKey): number {
    return this.#nowMs() - createdAtMs;
  }

  #nowMs(): number {
    return Number(this.#parts.clock.nowMicros() / 1_000n);
  }
}

/** Of the keys that jose can import, only this kind. */
const schema = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  d: z.string(),
});
const ALGORITHM = "EdDSA";

async function newKey(createdAtMs: number): Promise<SessionKey> {
  const { calculateJwkThumbprint, exportJWK, generateKeyPair } = await import("jose");
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
  const { importJWK } = await import("jose");
  const key = await importJWK(jwk, ALGORITHM);
  if (key instanceof Uint8Array) throw new TypeError("a secret, and no key");
  return key;
}

function stored({ id, privateJwk, createdAtMs }: SessionKey): StoredTokenKey {
  return { id, privateJwk, createdAtMicros: BigInt(createdAtMs) * 1_000n };
}
