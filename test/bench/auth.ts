/**
 * How many calls a second one thread can tell the maker of:
 *
 *   static      a token of the file, one of a thousand in turn
 *   known       a signed token that was verified before, one of a thousand in turn
 *   refused     one bad token again and again
 *   verified…   a signed token, verified each time, by algorithm (RS256 with 2048 bits); as many at once
 *               as the service verifies, whose signatures are on other threads
 *
 * The ratios are of known over verified.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { createAudit } from "../../src/auth/authorizer.ts";
import { createAuthenticator, TOKEN_CACHE_LIMITS } from "../../src/auth/authenticator.ts";
import { IssuerKeys, OidcVerifier } from "../../src/auth/oidc.ts";
import { systemClock } from "../../src/base/clock.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { Bench, Findings } from "./bench.ts";
import { median, type Ratio, ratioOf } from "./figures.ts";

type Authenticator = ReturnType<typeof createAuthenticator>;

const ALGORITHMS = ["RS256", "ES256", "EdDSA"] as const;
const CALLERS = 1_000;
const WARM_ROUNDS = 2;
/** Fixed, whatever --rounds says: these rounds are short, and so are disturbances. */
const ROUNDS = 7;
const CALLS = { known: 200_000, verified: 8_000 };
const CALLS_QUICK = { known: 2_000, verified: 80 };
const ISSUER = "https://issuer.example";
const AUDIENCE = "session-ledger";

interface Rate {
  readonly median: number;
  readonly rounds: readonly number[];
}

interface Prepared {
  readonly authenticator: Authenticator;
  readonly verifier: OidcVerifier;
  /** By algorithm, with the number of callers. */
  readonly signed: Readonly<Record<string, readonly string[]>>;
  readonly statics: readonly string[];
}

export async function benchAuth(bench: Bench): Promise<Findings> {
  const { authenticator, verifier, signed, statics } = await prepare(bench);
  const calls = bench.options.quick ? CALLS_QUICK : CALLS;
  const ask = (tokens: readonly string[]) => {
    const values = tokens.map((token) => [`Bearer ${token}`]);
    return () => {
      for (let call = 0; call < calls.known; call += 1) {
        const value = values[call % values.length] ?? [];
        // A promise would mean that it was not known.
        if (authenticator.authenticate(value) instanceof Promise) throw new Error("not known");
      }
      return Promise.resolve(calls.known);
    };
  };
  const known = signed["RS256"] ?? [];
  await Promise.all(known.map(async (token) => authenticator.authenticate([`Bearer ${token}`])));
  const measured = {
    static: await rateOf(bench, ask(statics)),
    known: await rateOf(bench, ask(known)),
    refused: await rateOf(bench, refusing(authenticator, known[0] ?? "", calls.known)),
  };
  const verified: Record<string, Rate> = {};
  const ratios: Record<string, Ratio> = {};
  for (const algorithm of ALGORITHMS) {
    const tokens = signed[algorithm] ?? [];
    const rate = await rateOf(bench, () => verifyAll(verifier, tokens, calls.verified));
    verified[algorithm] = rate;
    ratios[algorithm] = ratioOf(measured.known.rounds, rate.rounds);
  }
  return { callers: CALLERS, ...measured, verified, knownOverVerified: ratios };
}

/** As many at once as in the service. */
async function verifyAll(
  verifier: OidcVerifier,
  tokens: readonly string[],
  calls: number,
): Promise<number> {
  const lanes = Array.from({ length: TOKEN_CACHE_LIMITS.checksMax }, async (_, lane) => {
    for (let call = lane; call < calls; call += TOKEN_CACHE_LIMITS.checksMax) {
      await verifier.verify(tokens[call % tokens.length] ?? "");
    }
  });
  await Promise.all(lanes);
  return calls;
}

/** A token with the signature of another one. */
function refusing(
  authenticator: Authenticator,
  token: string,
  calls: number,
): () => Promise<number> {
  const [header, payload, signature = ""] = token.split(".");
  const bad = [`Bearer ${header}.${payload}.${signature.toLowerCase()}`];
  return async () => {
    // It is verified again after a time.
    await (async () => authenticator.authenticate(bad))().catch(() => undefined);
    for (let call = 0; call < calls; call += 1) {
      try {
        void authenticator.authenticate(bad);
      } catch {
        continue;
      }
      throw new Error("not refused at once");
    }
    return calls;
  };
}

async function prepare(bench: Bench): Promise<Prepared> {
  bench.progress(`${CALLERS} tokens of each algorithm are made`);
  const keys = await Promise.all(
    ALGORITHMS.map(async (alg) => ({ alg, ...(await generateKeyPair(alg)) })),
  );
  const jwks = await Promise.all(
    keys.map(async ({ alg, publicKey }) => ({ ...(await exportJWK(publicKey)), kid: alg })),
  );
  const signed = Object.fromEntries(
    await Promise.all(keys.map(async (key) => [key.alg, await tokensOf(key)] as const)),
  );
  const folder = mkdtempSync(join(tmpdir(), "bench-auth-"));
  bench.undo.defer(() => rmSync(folder, { recursive: true }));
  const set = JSON.stringify({ keys: jwks });
  writeFileSync(join(folder, "jwks.json"), set);
  const statics = Array.from({ length: CALLERS }, (_, n) => `static-token-of-the-bench-${n}`);
  const authenticator = createWith(join(folder, "jwks.json"), statics);
  await authenticator.start();
  bench.undo.defer(() => authenticator.stop());
  const own = new IssuerKeys();
  own.take(set);
  const options = { issuer: ISSUER, audience: AUDIENCE, algorithms: ALGORITHMS };
  const verifier = new OidcVerifier(
    { clock: systemClock, keys: own, lookAgain: () => Promise.resolve() },
    { ...options, rolesClaim: "roles", projectClaim: "project" },
  );
  return { authenticator, verifier, signed, statics };
}

type KeyOfAlgorithm = { readonly alg: string } & Awaited<ReturnType<typeof generateKeyPair>>;

async function tokensOf({ alg, privateKey }: KeyOfAlgorithm): Promise<readonly string[]> {
  const tokens: string[] = [];
  for (let caller = 0; caller < CALLERS; caller += 1) {
    const token = await new SignJWT({ roles: ["editor"], project: "bench" })
      .setProtectedHeader({ alg, kid: alg, typ: "JWT" })
      .setIssuer(ISSUER)
      .setAudience(AUDIENCE)
      .setSubject(`caller-${caller}`)
      .setIssuedAt()
      .setExpirationTime("2h")
      .sign(privateKey);
    tokens.push(token);
  }
  return tokens;
}

function createWith(oidcJwksFile: string, statics: readonly string[]): Authenticator {
  const log = createLogTo({ write: () => undefined }, "silent");
  const parts = { log, metrics: createMetrics(), clock: systemClock };
  const nobody = () => Promise.reject(new Error("the bench issues no tokens"));
  const keys = {
    readKeys: () => Promise.resolve([]),
    addKey: nobody,
    removeKeysMadeBefore: nobody,
    removeKeysOfTheFuture: nobody,
  };
  const tokens = statics.map((token, n) => ({ id: `bench-${n}`, token, roles: ["runner"] }));
  return createAuthenticator(
    { ...parts, audit: createAudit(parts), keys },
    {
      authTokens: JSON.stringify({ tokens }),
      authTokensFile: undefined,
      oidcIssuer: ISSUER,
      oidcAudience: AUDIENCE,
      oidcJwksUrl: undefined,
      oidcJwksFile,
      oidcAlgorithms: ALGORITHMS,
      oidcRolesClaim: "roles",
      oidcProjectClaim: "project",
      sessionTokenTtlMaxMs: 3_600_000,
      sessionTokenRotateAfterMs: 3_600_000,
    },
  );
}

async function rateOf(bench: Bench, run: () => Promise<number>): Promise<Rate> {
  const rounds: number[] = [];
  for (let round = -WARM_ROUNDS; round < ROUNDS; round += 1) {
    bench.signal.throwIfAborted();
    const beganMs = performance.now();
    const calls = await run();
    const perSecond = Math.round((calls * 1_000) / (performance.now() - beganMs));
    if (round >= 0) rounds.push(perSecond);
    await new Promise(setImmediate); // A signal is only seen between two turns of the loop.
  }
  return { median: median(rounds), rounds };
}
