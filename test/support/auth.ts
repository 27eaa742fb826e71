/** An authenticator whose clock, log, metrics and keys the test controls. */
import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { createAudit } from "../../src/auth/authorizer.ts";
import { Authenticator } from "../../src/auth/authenticator.ts";
import type { Principal } from "../../src/auth/principal.ts";
import { RefusedToken } from "../../src/auth/refused-token.ts";
import type { TokenKeyStore } from "../../src/auth/session-tokens.ts";
import type { Clock } from "@session-ledger/base/clock";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { LogRecord } from "./rpc-fixture.ts";

/** 2026-06-01T00:00:00Z, in seconds. */
export const NOW_S = 1_780_272_000;
export const ISSUER = "https://issuer.example/realms/ledger";
export const AUDIENCE = "session-ledger";

type AuthOptions = ConstructorParameters<typeof Authenticator>[1];
type StoredTokenKey = Parameters<TokenKeyStore["addKey"]>[0] & { readonly madeMs: number };

export interface HandClock extends Clock {
  advance(ms: number): void;
}

export function handClock(): HandClock {
  let passedMs = 0;
  return {
    nowMicros: () => BigInt(NOW_S * 1_000 + passedMs) * 1_000n,
    monotonicMs: () => passedMs,
    advance: (ms) => {
      passedMs += ms;
    },
  };
}

/** The key table of the database, in memory, with the clock of the test; several services may share one. */
export function keyStore(clock: Clock = handClock()): TokenKeyStore & {
  readonly rows: StoredTokenKey[];
  reads: number;
} {
  const rows: StoredTokenKey[] = [];
  return {
    rows,
    reads: 0,
    async readKeys() {
      this.reads += 1;
      const newest = rows.toSorted((a, b) => b.madeMs - a.madeMs);
      return newest.map((row) => ({ ...row, ageMs: clock.monotonicMs() - row.madeMs }));
    },
    async addKey(key) {
      rows.push({ ...key, madeMs: clock.monotonicMs() });
    },
    async removeKeys(ids) {
      rows.splice(0, rows.length, ...rows.filter(({ id }) => !ids.includes(id)));
    },
  };
}

export const NO_AUTH: AuthOptions = {
  authTokens: undefined,
  authTokensFile: undefined,
  oidcIssuer: undefined,
  oidcAudience: undefined,
  oidcJwksUrl: undefined,
  oidcJwksFile: undefined,
  oidcAlgorithms: ["RS256", "PS256", "ES256", "EdDSA"],
  oidcRolesClaim: "roles",
  oidcProjectClaim: "project",
  sessionTokenTtlMaxMs: 24 * 3_600_000,
};

export interface AuthFixture extends AsyncDisposable {
  readonly authenticator: Authenticator;
  readonly clock: HandClock;
  readonly records: readonly LogRecord[];
  metricsText(): Promise<string>;
  /** The principal of a call with this token. */
  ask(token: string): Promise<Principal>;
  /** The reason of the refusal, in our words. */
  refusalOf(token: string): Promise<string>;
}

export interface AuthGiven {
  readonly options?: Partial<AuthOptions>;
  readonly keys?: TokenKeyStore;
  readonly clock?: HandClock;
}

export async function startAuth(given: AuthGiven = {}): Promise<AuthFixture> {
  const records: LogRecord[] = [];
  const log = createLogTo({ write: (line) => records.push(JSON.parse(line)) });
  const metrics = createMetrics();
  const { clock = handClock() } = given;
  const { keys = keyStore(clock) } = given;
  const audit = createAudit({ log, metrics, clock });
  const authenticator = new Authenticator(
    { log, metrics, clock, audit, keys },
    { ...NO_AUTH, ...given.options },
    { filePollMs: 5 },
  );
  await authenticator.start();
  const ask = async (token: string): Promise<Principal> =>
    authenticator.authenticate([`Bearer ${token}`]);
  return {
    authenticator,
    clock,
    records,
    metricsText: () => metrics.text(),
    ask,
    refusalOf: (token) => refusalOf(() => ask(token)),
    [Symbol.asyncDispose]: () => authenticator.stop(),
  };
}

/** Our word for the fault of a token, or the reason of a refusal for another cause. */
export async function refusalOf(ask: () => Promise<unknown>): Promise<string> {
  try {
    await ask();
  } catch (error) {
    if (error instanceof RefusedToken) return error.refusal;
    if (error instanceof Error && "reason" in error) return String(error.reason);
    throw error;
  }
  return "none";
}

/** An issuer with its own keys and with valid tokens, except for the given changes. */
export class TestIssuer {
  readonly #keys = new Map<string, { readonly alg: string; readonly privateKey: CryptoKey }>();
  readonly #jwks: object[] = [];

  static async create(kid = "one", alg = "ES256"): Promise<TestIssuer> {
    const issuer = new TestIssuer();
    await issuer.addKey(kid, alg);
    return issuer;
  }

  async addKey(kid: string, alg = "ES256"): Promise<CryptoKey> {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
    this.#keys.set(kid, { alg, privateKey });
    this.#jwks.push({ ...(await exportJWK(publicKey)), kid });
    return publicKey;
  }

  removeKey(kid: string): void {
    const index = this.#jwks.findIndex((jwk) => "kid" in jwk && jwk.kid === kid);
    this.#jwks.splice(index, 1);
  }

  /** The published key set. */
  get jwks(): string {
    return JSON.stringify({ keys: this.#jwks });
  }

  /** An undefined claim is left out. */
  async token(
    claims: Readonly<Record<string, unknown>> = {},
    header: { readonly kid?: string; readonly [name: string]: unknown } = {},
  ): Promise<string> {
    const { kid = "one", ...more } = header;
    const key = this.#keys.get(kid);
    if (key === undefined) throw new Error(`no key ${kid}`);
    const payload: JWTPayload = {
      iss: ISSUER,
      aud: AUDIENCE,
      sub: "ada",
      iat: NOW_S,
      exp: NOW_S + 300,
      roles: ["editor"],
      ...claims,
    };
    return new SignJWT(payload)
      .setProtectedHeader({ alg: key.alg, kid, ...more })
      .sign(key.privateKey);
  }
}
