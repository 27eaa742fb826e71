/**
 * Tokens for one session, which the service itself issues and verifies, and the keys that sign them.
 *
 * The `typ` in the header only chooses the verifier, which has its own keys and its own issuer.
 * The session is the whole scope: it never changes its project. All instances on one database share
 * the keys. Two keys exist, the current and the previous one:
 *
 *   made ── KEY_AHEAD_MS ──► current: it signs ── rotateAfterMs ──► previous ── the next one has signed
 *     │                                                                          for one life of a token
 *     └─ it is the only one: it signs at once                                              ▼
 *                                                                                       deleted
 *   asked to sign, or READ_MS passed: the newest is rotateAfterMs old ──► read again ──► make one
 *   a token names an unknown key ──► read again, once in COOL_DOWN_MS
 *   READ_MS passed ──► read again: the key of a deleted row is not valid any more
 *
 * A new key waits before it signs, because anyone can keep the cool-down active with tokens that
 * name unknown keys, and another instance would not find the key until its end. Ages are those of
 * the database's clock. If two instances make a key at once, both are valid, and the newer one
 * signs. A service that issues no token has no key.
 */
import { randomUUID } from "node:crypto";
import type { CryptoKey, JWK, JWTPayload } from "jose";
import { z } from "zod";
import { type Clock, msOf } from "@session-ledger/base/clock";
import { Interval } from "../base/interval.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import {
  RefusedToken,
  type TokenVerifier,
  verifiedBy,
  type VerifiedToken,
} from "./refused-token.ts";

/** The roles of a session token; `admin` is reserved for the issuers of tokens. */
export const SESSION_TOKEN_ROLES = ["runner", "viewer", "editor"] as const;
export type SessionTokenRole = (typeof SESSION_TOKEN_ROLES)[number];

/** RFC 8725, section 3.11: a type of their own, so that no other verifier accepts them. */
export const SESSION_TOKEN_TYPE = "session-ledger+jwt";
const ISSUER = "session-ledger";
const ALGORITHM = "EdDSA";

interface StoredTokenKey {
  readonly id: string;
  /** An Ed25519 private key. */
  readonly privateJwk: string;
}

export interface TokenKeyStore {
  /** The newest key comes first. */
  readKeys(): Promise<readonly (StoredTokenKey & { readonly ageMs: number })[]>;
  addKey(key: StoredTokenKey): Promise<void>;
  removeKeys(ids: readonly string[]): Promise<void>;
}

interface SessionTokenParts {
  readonly store: TokenKeyStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

interface SessionTokenOptions {
  readonly ttlMaxMs: number;
  /** False: the keys are read only on demand. */
  readonly readsRegularly: boolean;
}

/** A key of the table; the object itself is its identity. */
interface SessionKey extends StoredTokenKey {
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

interface AgedKey {
  readonly key: SessionKey;
  /** The time of its creation on the monotonic clock of this process. */
  readonly madeMs: number;
}

const READ_MS = 30_000;
/** Anyone can send a token that names an unknown key. */
const COOL_DOWN_MS = 1_000;
/** For a signature that takes long, and for clocks that differ. */
const MARGIN_MS = 60_000;
/** By then every instance has read the key, even if two reads failed. */
export const KEY_AHEAD_MS = 4 * READ_MS;
export const ROTATE_AFTER_MS = 24 * 3_600_000;

export class SessionTokens implements Unit, TokenVerifier {
  readonly #parts: SessionTokenParts;
  readonly #options: SessionTokenOptions;
  readonly #ticks = new Interval(() => this.#tick());
  /** The newest first. */
  #keys: readonly AgedKey[] = [];
  #reading: Promise<void> | undefined;
  #rotating: Promise<void> | undefined;
  #triedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: SessionTokenParts, options: SessionTokenOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  async start(): Promise<void> {
    if (!this.#options.readsRegularly) return;
    await this.#read();
    this.#ticks.start(READ_MS);
  }

  async stop(): Promise<void> {
    await Promise.allSettled([this.#ticks.stop(), this.#reading, this.#rotating]);
  }

  trusts(key: object): boolean {
    return this.#keys.some((one) => one.key === key);
  }

  /**
   * The caller must check that the session exists. `id` is the `jti`, for the audit record, which must
   * not contain the token.
   */
  async issue(of: {
    readonly sessionId: string;
    readonly role: SessionTokenRole;
    readonly ttlMs: number;
  }): Promise<{ readonly id: string; readonly token: string; readonly expiresAtMs: number }> {
    const { sessionId, role, ttlMs } = of;
    const { SignJWT } = await import("jose");
    if (this.#isDue()) await this.#rotate();
    const key = this.#signing();
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

  verify(token: string): Promise<VerifiedToken> {
    const options = {
      issuer: ISSUER,
      typ: SESSION_TOKEN_TYPE,
      algorithms: [ALGORITHM],
      requiredClaims: ["sub", "sid", "role", "exp"],
      // No tolerance: the clocks are ours, and the answer stated the end.
      currentDate: new Date(this.#nowMs()),
    };
    return verifiedBy(token, ({ kid = "" }) => this.#find(kid), options, principalOf);
  }

  async #find(id: string) {
    const waitedMs = this.#nowMonotonicMs() - this.#triedMs;
    const mayRead = this.#reading !== undefined || waitedMs >= COOL_DOWN_MS;
    if (this.#keyOf(id) === undefined && mayRead) await this.#read();
    const key = this.#keyOf(id);
    if (key === undefined) throw new RefusedToken("unknown_key");
    return { key, cryptoKey: key.publicKey };
  }

  #keyOf(id: string): SessionKey | undefined {
    return this.#keys.find(({ key }) => key.id === id)?.key;
  }

  /** If all keys are too young, the oldest, which most instances have read. */
  #signing(): SessionKey {
    const current = this.#keys.find((one) => this.#ageMs(one) >= KEY_AHEAD_MS) ?? this.#keys.at(-1);
    if (current === undefined) throw new Error("no key for session tokens exists");
    return current.key;
  }

  /** All tokens of a key have ended when its successor is so old. */
  get #overlapMs(): number {
    return KEY_AHEAD_MS + this.#options.ttlMaxMs + MARGIN_MS;
  }

  /** True if another key must be made. Not before the previous one has ended: two keys are the limit. */
  #isDue(): boolean {
    const [newest] = this.#keys;
    const rotateAfterMs = Math.max(ROTATE_AFTER_MS, this.#overlapMs);
    return newest === undefined || this.#ageMs(newest) >= rotateAfterMs;
  }

  #rotate(): Promise<void> {
    this.#rotating ??= this.#rotateNow().finally(() => {
      this.#rotating = undefined;
    });
    return this.#rotating;
  }

  async #rotateNow(): Promise<void> {
    await this.#read();
    if (!this.#isDue()) return;
    await this.#removeEnded();
    const { store, log } = this.#parts;
    const key = await newKey();
    await store.addKey(key);
    log.info({ keyId: key.id }, "key for session tokens made");
    // A running read may have started before the key was written.
    await this.#reading?.catch(() => undefined);
    await this.#read();
  }

  async #removeEnded(): Promise<void> {
    const successor = this.#keys.findIndex((one) => this.#ageMs(one) >= this.#overlapMs);
    const ended = successor === -1 ? [] : this.#keys.slice(successor + 1);
    if (ended.length === 0) return;
    try {
      await this.#parts.store.removeKeys(ended.map(({ key }) => key.id));
    } catch (error) {
      this.#parts.log.warn({ err: error }, "old keys for session tokens not removed");
    }
  }

  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const { store, metrics } = this.#parts;
    this.#triedMs = this.#nowMonotonicMs();
    try {
      const rows = await store.readKeys();
      const keys: AgedKey[] = [];
      for (const row of rows) {
        const existing = this.#keyOf(row.id);
        const key = existing?.privateJwk === row.privateJwk ? existing : await this.#imported(row);
        if (key !== undefined) keys.push({ key, madeMs: this.#nowMonotonicMs() - row.ageMs });
      }
      const isSame = keys.length === this.#keys.length && keys.every(({ key }) => this.trusts(key));
      this.#keys = keys;
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
      if (this.#ticks.isStopped || this.#keys.length === 0) return;
      if (this.#isDue()) await this.#rotate();
      else await this.#removeEnded();
    } catch (error) {
      this.#parts.log.warn({ err: error }, "keys for session tokens not read");
    }
  }

  #ageMs({ madeMs }: AgedKey): number {
    return this.#nowMonotonicMs() - madeMs;
  }

  #nowMonotonicMs(): number {
    return this.#parts.clock.monotonicMs();
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

async function newKey(): Promise<StoredTokenKey> {
  const { calculateJwkThumbprint, exportJWK, generateKeyPair } = await import("jose");
  const { privateKey } = await generateKeyPair(ALGORITHM, { extractable: true });
  const jwk = await exportJWK(privateKey);
  return { id: await calculateJwkThumbprint(jwk), privateJwk: JSON.stringify(jwk) };
}

async function keyOf({ id, privateJwk }: StoredTokenKey): Promise<SessionKey> {
  const { d, ...publicJwk } = schema.parse(JSON.parse(privateJwk));
  return {
    id,
    privateJwk,
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

function principalOf(payload: JWTPayload): VerifiedToken["principal"] {
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
