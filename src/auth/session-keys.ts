/**
 * The keys that sign session tokens, which all instances on one database share.
 *
 *   made, in the table ── KEY_AHEAD_MS ──► signs, being the newest that is so old ──► the next one signs
 *          │ every instance reads it within READ_MS, and verifies by it          │ its last token ends
 *          └─ there is no older one: it signs at once                            ▼
 *                                                                             deleted
 *   asked to sign, or READ_MS passed: the newest is rotateAfterMs old ──► read again ──► another made one
 *                                                                              └──► make one, write it
 *   a token names a key that is not here ──► read again, once in COOL_DOWN_MS
 *   READ_MS passed ──► read again: a row that somebody deleted is out of force then
 *
 * A key is made so long before it signs because of the COOL_DOWN: anybody can keep it running by tokens
 * that name keys nobody has, and a key that signed as soon as it was made would be looked for in vain
 * until it is over. The first key of all is such a one; nobody waits for it to be read.
 *
 * A key that a clock far ahead of ours has made does not sign and is never the newest. Otherwise it
 * would stay the newest for years, and no other key would be made. Its tokens are verified until the
 * last of them ends.
 *
 * When two instances make one at the same time there are two, and both are good. Keys are made when the
 * first token is issued: a service that issues none has none.
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

/** Where the keys are kept; src/store/token-keys.ts. */
export interface TokenKeyStore {
  /** The newest first. */
  readKeys(limit: { readonly keysMax: number }): Promise<readonly StoredTokenKey[]>;
  addKey(key: StoredTokenKey): Promise<void>;
  removeKeysMadeBefore(createdAtMicros: bigint): Promise<void>;
  /** Those of them that by the clock of the database, too, were made in the future. */
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
/**
 * How long a key is in the table before it signs: every instance has read it, also when one reading in
 * between failed, and when the clock of its maker is ahead.
 */
export const KEY_AHEAD_MS = 2 * SESSION_KEYS_READ_MS + MARGIN_MS;
/** Keys that are read; a limit that is never met, because of the next. */
const KEYS_MAX = 2_000;
/** However short SESSION_TOKEN_ROTATE_AFTER is, a token's longest life holds so many rotations at most. */
const ROTATIONS_KEPT_MAX = 500;

export class SessionKeys implements Unit {
  readonly #parts: SessionKeysParts;
  readonly #options: SessionKeysOptions;
  readonly #ticks = new Repeating(() => this.#tick());
  /** By id, the newest first. */
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

  /** Undefined: nobody has it, as far as can be told now. */
  async find(id: string): Promise<SessionKey | undefined> {
    const known = this.#keys.get(id);
    if (known !== undefined) return known;
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    if (this.#reading !== undefined || waitedMs >= COOL_DOWN_MS) await this.#read();
    return this.#keys.get(id);
  }

  /** The one to sign with. */
  async signer(): Promise<SessionKey> {
    return this.#current() ?? this.#renewed();
  }

  /** Undefined: there is none, or the newest is so old that the next one has to be made. */
  #current(): SessionKey | undefined {
    const [newest] = this.#made();
    const isDue = newest === undefined || this.#ageMs(newest) >= this.#options.rotateAfterMs;
    return isDue ? undefined : this.#signing();
  }

  /** Of keys that are all too young the oldest, which most have read. */
  #signing(): SessionKey | undefined {
    const keys = this.#made();
    return keys.find((key) => this.#ageMs(key) >= KEY_AHEAD_MS) ?? keys.at(-1);
  }

  /** The newest first, without those of the future. */
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
    await this.#reading?.catch(() => undefined); // It may have begun before the key was there.
    this.#inForce = new Set([...this.#inForce, made]);
    this.#keys = new Map([[made.id, made], ...this.#keys]);
    await this.#removeOld();
    return this.#signing() ?? made;
  }

  /** Of those before a key that signs for so long no token is alive. */
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

  /** Undefined: it cannot be read, which is no reason to do without the others. */
  async #imported(row: StoredTokenKey): Promise<SessionKey | undefined> {
    try {
      return await keyOf(row);
    } catch {
      this.#parts.log.error({ keyId: row.id }, "key for session tokens cannot be read");
      return undefined;
    }
  }

  /** Also while nobody asks for a token, so that no key is in force for longer than was promised. */
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
