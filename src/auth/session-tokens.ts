/**
 * Tokens for one session, which the service itself issues and verifies, and the keys that sign them.
 *
 * The `typ` in the header distinguishes them from an OIDC issuer's tokens. It only chooses the
 * verifier: each verifier uses its own keys and its own issuer. OIDC_ISSUER is a URL, so it never
 * equals the issuer name used here. The session is the whole scope. A session never changes its
 * project, so a project claim would decide nothing.
 *
 * All instances on one database share the keys.
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
import { randomUUID } from "node:crypto";
import type { CryptoKey, JWK, JWTPayload } from "jose";
import { z } from "zod";
import { type Clock, msOf } from "../base/clock.ts";
import { Repeating } from "../base/repeating.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { RefusedToken, refusedBy, type TokenVerifier, type Verified } from "./refused-token.ts";

/** The roles of a session token; `admin` is reserved for the issuers of tokens. */
export const SESSION_TOKEN_ROLES = ["runner", "viewer", "editor"] as const;
export type SessionTokenRole = (typeof SESSION_TOKEN_ROLES)[number];

interface IssuedToken {
  /** The `jti`, for the audit record, which must not contain the token. */
  readonly id: string;
  readonly token: string;
  readonly expiresAtMs: number;
}

/** RFC 8725, section 3.11: a type of their own, so that no other verifier accepts them. */
export const SESSION_TOKEN_TYPE = "session-ledger+jwt";
const ISSUER = "session-ledger";
const ALGORITHM = "EdDSA";

interface StoredTokenKey {
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

interface Parts {
  readonly store: TokenKeyStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

interface Options {
  readonly ttlMaxMs: number;
  readonly rotateAfterMs: number;
  /** False: the keys are read only on demand. */
  readonly readsRegularly: boolean;
}

/** A key of the table; the object itself is its identity. */
interface SessionKey {
  readonly id: string;
  readonly privateJwk: string;
  readonly createdAtMs: number;
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

const READ_MS = 30_000;
/** Anyone can send a token that names an unknown key. */
const COOL_DOWN_MS = 1_000;
/** The allowed clock difference of two instances, plus the time for signing during a rotation. */
const MARGIN_MS = 60_000;
/**
 * The time that a key is in the table before it signs. By then every instance has read it, even
 * when one read failed, and when the clock of the key's maker is ahead.
 */
export const KEY_AHEAD_MS = 2 * READ_MS + MARGIN_MS;
/** A token's longest life has at most this number of rotations. */
const ROTATIONS_KEPT_MAX = 500;

export class SessionTokens implements Unit, TokenVerifier {
  readonly #parts: Parts;
  readonly #options: Options;
  readonly #ticks = new Repeating(() => this.#tick());
  /** Keyed by id, the newest first. */
  #keys: ReadonlyMap<string, SessionKey> = new Map();
  #inForce: ReadonlySet<object> = new Set();
  #reading: Promise<void> | undefined;
  #making: Promise<SessionKey> | undefined;
  #triedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: Parts, options: Options) {
    this.#parts = parts;
    const { ttlMaxMs, rotateAfterMs } = options;
    const atLeastMs = Math.ceil(ttlMaxMs / ROTATIONS_KEPT_MAX);
    this.#options = { ...options, rotateAfterMs: Math.max(rotateAfterMs, atLeastMs) };
  }

  async start(): Promise<void> {
    if (!this.#options.readsRegularly) return;
    await this.#read();
    this.#ticks.start(READ_MS);
  }

  async stop(): Promise<void> {
    await Promise.allSettled([this.#ticks.stop(), this.#reading, this.#making]);
  }

  trusts(key: object): boolean {
    return this.#inForce.has(key);
  }

  /** The caller must check that the session exists. */
  async issue(of: {
    readonly sessionId: string;
    readonly role: SessionTokenRole;
    readonly ttlMs: number;
  }): Promise<IssuedToken> {
    const { sessionId, role, ttlMs } = of;
    const { SignJWT } = await import("jose");
    const key = this.#current() ?? (await this.#renewed());
    const nowMs = this.#nowMs();
    // Whole seconds, as some readers expect, and never less than requested.
    const expiresAtS = Math.ceil((nowMs + ttlMs) / 1_000);
    const id = randomUUID();
    const token = await new SignJWT({ sid: sessionId, role })
      .setProtectedHeader({ alg: ALGORITHM, typ: SESSION_TOKEN_TYPE, kid: key.id })
      .setIssuer(ISSUER)
      .setSubject(`session:${sessionId}:${role}`)
      .setIssuedAt(Math.floor(nowMs / 1_000))
      .setExpirationTime(expiresAtS)
      .setJti(id)
      .sign(key.privateKey);
    return { id, token, expiresAtMs: expiresAtS * 1_000 };
  }

  async verify(token: string): Promise<Verified> {
    const signedWith: { key?: SessionKey } = {};
    try {
      const { jwtVerify } = await import("jose");
      const { payload } = await jwtVerify(
        token,
        async ({ kid = "" }) => {
          signedWith.key = await this.#find(kid);
          return signedWith.key.publicKey;
        },
        {
          issuer: ISSUER,
          typ: SESSION_TOKEN_TYPE,
          algorithms: [ALGORITHM],
          requiredClaims: ["sub", "sid", "role", "exp"],
          // No tolerance: the clocks are ours, and the answer stated the end.
          currentDate: new Date(this.#nowMs()),
        },
      );
      return { principal: principalOf(payload), key: signedWith.key ?? {} };
    } catch (error) {
      throw refusedBy(error);
    }
  }

  async #find(id: string): Promise<SessionKey> {
    const waitedMs = this.#parts.clock.monotonicMs() - this.#triedMs;
    const mayRead = this.#reading !== undefined || waitedMs >= COOL_DOWN_MS;
    if (!this.#keys.has(id) && mayRead) await this.#read();
    const key = this.#keys.get(id);
    if (key === undefined) throw new RefusedToken("unknown_key");
    return key;
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
    const { id, privateJwk, createdAtMs } = made;
    await store.addKey({ id, privateJwk, createdAtMicros: BigInt(createdAtMs) * 1_000n });
    log.info({ keyId: id }, "key for session tokens made");
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
      const rows = await store.readKeys({ keysMax: 4 * ROTATIONS_KEPT_MAX });
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
    return msOf(this.#parts.clock.nowMicros());
  }
}

/** Of the keys that jose can import, only this kind. */
const schema = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  d: z.string(),
});

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
    createdAtMs: msOf(createdAtMicros),
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

const claims = z.object({
  sub: z.string(),
  sid: z.string().min(1),
  role: z.enum(SESSION_TOKEN_ROLES),
  exp: z.number(),
});

function principalOf(payload: JWTPayload): Verified["principal"] {
  const parsed = claims.safeParse(payload);
  if (!parsed.success) throw new RefusedToken("claims");
  const { sub, sid, role, exp } = parsed.data;
  return {
    id: sub,
    kind: "session",
    roles: [role],
    projectId: undefined,
    sessionId: sid,
    expiresAtMs: exp * 1_000,
  };
}
