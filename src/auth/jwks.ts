import { createLocalJWKSet, errors, type JWK, type JWSHeaderParameters } from "jose";
import { z } from "zod";
import { fileRefused } from "./watched-file.ts";

type Resolve = ReturnType<typeof createLocalJWKSet>;

/** One key of a set; the object itself is its identity. */
interface KeyInForce {
  readonly text: string;
  readonly resolve: Resolve;
}

const KEYS_MAX = 100;
const ASYMMETRIC = ["RSA", "EC", "OKP"];

const keySchema = z.looseObject({ kty: z.string(), kid: z.string().optional() });
const schema = z.object({
  keys: z.array(z.custom<JWK>((jwk) => keySchema.safeParse(jwk).success)).max(KEYS_MAX),
});

/**
 * The public keys of an issuer, from the last read. A key that is also in the next set stays the
 * same object, so the tokens it signed stay accepted without another check. A key that is missing
 * in the next set is out of force at once. Each key is a set of its own for jose, which checks the
 * allowed use of a key (`use`, `key_ops`, `alg`, the curve) and refuses private and symmetric keys.
 */
export class Jwks {
  #inForce: ReadonlySet<KeyInForce> = new Set();
  #byKid: ReadonlyMap<string, readonly KeyInForce[]> = new Map();

  get isEmpty(): boolean {
    return this.#inForce.size === 0;
  }

  /**
   * True when the set differs from the previous one. Throws a ServiceError when the set is
   * unusable.
   */
  take(text: string): boolean {
    const before = new Map(Array.from(this.#inForce, (key) => [key.text, key]));
    const inForce = new Set<KeyInForce>();
    const byKid = new Map<string, KeyInForce[]>();
    for (const jwk of keysOf(text)) {
      const own = JSON.stringify(jwk);
      const key = before.get(own) ?? { text: own, resolve: createLocalJWKSet({ keys: [jwk] }) };
      inForce.add(key);
      if (jwk.kid !== undefined) byKid.set(jwk.kid, [...(byKid.get(jwk.kid) ?? []), key]);
    }
    // An issuer without a key can sign nothing, so an empty set is a mistake and not an update.
    if (inForce.size === 0) throw fileRefused("expected at least one key for signatures");
    const isSame =
      inForce.size === before.size && [...inForce].every((key) => this.#inForce.has(key));
    this.#inForce = inForce;
    this.#byKid = byKid;
    return !isSame;
  }

  clear(): void {
    this.#inForce = new Set();
    this.#byKid = new Map();
  }

  trusts(key: object): boolean {
    const inForce: ReadonlySet<object> = this.#inForce;
    return inForce.has(key);
  }

  /** The one key that fits the header of a token; undefined when no key fits, or more than one. */
  async find(header: JWSHeaderParameters) {
    const named = header.kid === undefined ? this.#inForce : (this.#byKid.get(header.kid) ?? []);
    const fitting = await Promise.all(Array.from(named, (key) => fit(key, header)));
    const [found, another] = fitting.filter((one) => one !== undefined);
    return another === undefined ? found : undefined;
  }
}

async function fit(key: KeyInForce, header: JWSHeaderParameters) {
  try {
    return { key, cryptoKey: await key.resolve(header) };
  } catch (error) {
    // The key does not fit, or this runtime does not support its kind; other keys may fit.
    if (error instanceof errors.JOSEError || error instanceof DOMException) return undefined;
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

function keysOf(text: string): readonly JWK[] {
  const parsed = schema.safeParse(jsonOf(text));
  if (!parsed.success) throw fileRefused(`expected {"keys":[…]}, a key set of at most ${KEYS_MAX}`);
  return parsed.data.keys.filter((jwk) => ASYMMETRIC.includes(jwk.kty ?? "") && jwk.use !== "enc");
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw fileRefused("expected JSON");
  }
}
