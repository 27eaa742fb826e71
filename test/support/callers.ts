/** Callers of every kind, with the keys and files by which a service knows them. */
import { writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomBytes, randomUUID } from "node:crypto";
import {
  type CryptoKey,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  importJWK,
  type JWK,
  SignJWT,
} from "jose";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ANONYMOUS, type Principal, type CallerRole, ROLES } from "../../src/auth/principal.ts";
import type { RpcClient } from "./grpc-client.ts";
import { Budget, CallMemory } from "../../src/base/budget.ts";
import type { CallContext } from "../../src/contract/context.ts";
import type { Authenticator } from "../../src/auth/authenticator.ts";

export interface Caller {
  readonly name: string;
  readonly token: string;
  readonly roles: readonly CallerRole[];
  readonly projectId: string | undefined;
  readonly sessionId: string | undefined;
}

export interface IssuedClaims {
  readonly roles?: readonly string[] | string;
  readonly project?: unknown;
  readonly audience?: string;
  readonly issuer?: string;
  readonly subject?: string;
  readonly expiresAtS?: number;
}

const ISSUER = "https://issuer.example";
const AUDIENCE = "ledger";
const KID = "k1";
const ALGORITHM = "RS256";
const HOUR_S = 3_600;

/** Signs tokens of callers as an OpenID Connect issuer. */
export class Issuer {
  readonly #keys: Keys;

  protected constructor(keys: Keys) {
    this.#keys = keys;
  }

  /** With the private key of another process. */
  static async of(signingKey: JWK): Promise<Issuer> {
    return new Issuer(await keysOf(signingKey));
  }

  signingKey(): Promise<JWK> {
    return exportJWK(this.#keys.privateKey);
  }

  async signed(name: string, roles: readonly CallerRole[], projectId?: string): Promise<Caller> {
    const project = projectId === undefined ? {} : { project: projectId };
    const token = await this.sign({ roles, subject: name, ...project });
    return { name: `oidc ${name}`, token, roles, projectId, sessionId: undefined };
  }

  sign(claims: IssuedClaims, key: CryptoKey = this.#keys.privateKey): Promise<string> {
    return jwtOf(claims).setProtectedHeader({ alg: ALGORITHM, kid: KID }).sign(key);
  }

  /** Every kind of invalid token. A valid one of these would be an admin's. */
  async badTokens(): Promise<readonly (readonly [string, string])[]> {
    const claims = { roles: ["admin"] } as const;
    const stranger = await newKeys();
    const good = await this.sign(claims);
    const [header = "", payload = "", signature = ""] = good.split(".");
    const unsigned = partOf({ alg: "none", kid: KID });
    const publicKey = new TextEncoder().encode(await exportSPKI(this.#keys.publicKey));
    const shared = jwtOf(claims).setProtectedHeader({ alg: "HS256", kid: KID }).sign(publicKey);
    const other = partOf({ ...decoded(payload), roles: ["admin"], project: undefined, sub: "eve" });
    const issued = { typ: "session-ledger+jwt", alg: ALGORITHM, kid: KID };
    const own = jwtOf({ ...claims, issuer: "session-ledger" }).setProtectedHeader(issued);
    return [
      ["expired", await this.sign({ ...claims, expiresAtS: nowS() - HOUR_S })],
      ["for another audience", await this.sign({ ...claims, audience: "another" })],
      ["of another issuer", await this.sign({ ...claims, issuer: "https://evil.example" })],
      ["signed with a wrong key", await this.sign(claims, stranger.privateKey)],
      ["without algorithm", `${unsigned}.${payload}.`],
      ["without algorithm, with a signature", `${unsigned}.${payload}.${signature}`],
      ["signed by the public key as a secret", await shared],
      ["with other claims", `${header}.${other}.${signature}`],
      ["as a session token, signed by another", await own.sign(this.#keys.privateKey)],
      ["garbage", "not-a-token-of-anybody"],
    ];
  }
}

/** An issuer, and static tokens that `save` brings to a service. */
export abstract class Callers extends Issuer {
  readonly #tokens: StaticToken[] = [];

  /** A token is known once it is saved and read. */
  add(id: string, roles: readonly CallerRole[], projectId?: string): Caller {
    const token = randomBytes(24).toString("base64url");
    const project = projectId === undefined ? {} : { project: projectId };
    this.#tokens.push({ id, token, roles, ...project });
    return { name: `static ${id}`, token, roles, projectId, sessionId: undefined };
  }

  remove({ token }: Caller): void {
    const at = this.#tokens.findIndex((one) => one.token === token);
    this.#tokens.splice(at, 1);
  }

  save(): Promise<void> {
    return this.write(this.#tokens);
  }

  protected abstract write(tokens: readonly StaticToken[]): Promise<void>;
}

/** Of a service in another process, which other test files use too. */
export class SharedCallers extends Callers {
  readonly #url: string;

  private constructor(keys: Keys, url: string) {
    super(keys);
    this.#url = url;
  }

  /** The tokens are put to this URL. */
  static async at(url: string, signingKey: JWK): Promise<SharedCallers> {
    return new SharedCallers(await keysOf(signingKey), url);
  }

  /** Ids of different files are different. */
  override add(id: string, roles: readonly CallerRole[], projectId?: string): Caller {
    return super.add(`${id}-${randomUUID()}`, roles, projectId);
  }

  /** Resolves when the service knows them. */
  protected async write(tokens: readonly StaticToken[]): Promise<void> {
    const answer = await fetch(this.#url, { method: "PUT", body: JSON.stringify(tokens) });
    if (!answer.ok) throw new Error(`the tokens were not taken: ${await answer.text()}`);
  }
}

/** An issuer whose keys are in a file, and static tokens in another. */
export class Doors extends Callers {
  readonly tokensFile = join(tmpdir(), `ledger-tokens-${randomUUID()}.json`);
  readonly #jwksFile = join(tmpdir(), `ledger-jwks-${randomUUID()}.json`);

  static async make(): Promise<Doors> {
    const keys = await newKeys();
    const doors = new Doors(keys);
    const jwk = { ...(await exportJWK(keys.publicKey)), kid: KID, alg: ALGORITHM, use: "sig" };
    await writeFile(doors.#jwksFile, JSON.stringify({ keys: [jwk] }));
    await doors.save();
    return doors;
  }

  /** The settings with which a service knows these callers. */
  get env(): Readonly<Record<string, string>> {
    return {
      AUTH_TOKENS_FILE: this.tokensFile,
      OIDC_ISSUER: ISSUER,
      OIDC_AUDIENCE: AUDIENCE,
      OIDC_JWKS_FILE: this.#jwksFile,
    };
  }

  async write(tokens: readonly StaticToken[]): Promise<void> {
    writeFileSync(this.tokensFile, JSON.stringify({ tokens }));
  }
}

interface Keys {
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

export interface StaticToken {
  readonly id: string;
  readonly token: string;
  readonly roles: readonly CallerRole[];
  readonly project?: string;
}

/** Static and signed tokens of each role, with and without a project, and with several roles or none. */
export async function everyCaller(
  doors: Doors,
  { project }: { readonly project: string },
): Promise<readonly Caller[]> {
  const callers: Caller[] = [];
  for (const role of ROLES) {
    for (const projectId of [undefined, project]) {
      const name = `${role}-of-${projectId ?? "all"}`;
      callers.push(doors.add(name, [role], projectId));
      callers.push(await doors.signed(name, [role], projectId));
    }
  }
  callers.push(doors.add("editor-and-runner", ["editor", "runner"], project));
  callers.push(await doors.signed("nothing", []));
  await doors.save();
  return callers;
}

const { issueSessionToken } = SessionService.method;

/** Tokens as the service issues them. */
export async function sessionCaller(
  client: RpcClient,
  admin: Caller,
  of: { readonly sessionId: string; readonly role: CallerRole; readonly ttlS?: number },
): Promise<Caller> {
  const { sessionId, role, ttlS = HOUR_S } = of;
  const { token } = await client.unary(
    issueSessionToken,
    { sessionId, role, ttl: { seconds: BigInt(ttlS) } },
    { metadata: bearer(admin) },
  );
  return { name: `session ${role}`, token, roles: [role], projectId: undefined, sessionId };
}

export function bearer({ token }: Pick<Caller, "token">): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${token}` };
}

async function keysOf(signingKey: JWK): Promise<Keys> {
  const { kty = "", n = "", e = "" } = signingKey;
  const [privateKey, publicKey] = await Promise.all([
    importJWK(signingKey, ALGORITHM, { extractable: true }),
    importJWK({ kty, n, e }, ALGORITHM, { extractable: true }),
  ]);
  if (privateKey instanceof Uint8Array || publicKey instanceof Uint8Array)
    throw new Error("the key of the issuer is a pair");
  return { privateKey, publicKey };
}

function newKeys(): Promise<Keys> {
  return generateKeyPair(ALGORITHM, { extractable: true });
}

function jwtOf({
  roles,
  project,
  audience = AUDIENCE,
  issuer = ISSUER,
  subject = "somebody",
  expiresAtS = nowS() + HOUR_S,
}: IssuedClaims): SignJWT {
  const claims = { roles, ...(project === undefined ? {} : { project }) };
  return new SignJWT(claims)
    .setSubject(subject)
    .setIssuer(issuer)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(expiresAtS);
}

function nowS(): number {
  return Math.floor(Date.now() / 1_000);
}

function partOf(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

function decoded(part: string): object {
  return JSON.parse(Buffer.from(part, "base64url").toString());
}

/** A call of the named caller. */
export function callOf(id: string): CallContext {
  const controller = new AbortController();
  const end = (error: Error): void => controller.abort(error);
  const memory = new CallMemory(new Budget({ max: 1e9 }), `static:${id}`, { end });
  const principal: Principal = { ...ANONYMOUS, kind: "static", id };
  return { principal, signal: controller.signal, hasEnded: false, memory };
}

/** Without tokens: every caller is let in as the anonymous caller. */
export const ANYBODY: Pick<Authenticator, "asks" | "authenticate" | "refusalOf"> = {
  asks: false,
  authenticate: () => ANONYMOUS,
  refusalOf: () => undefined,
};
