/**
 * Tokens for one session, which the service itself issues and verifies.
 *
 * The `typ` in the header distinguishes them from an OIDC issuer's tokens. It only chooses the
 * verifier: each verifier uses its own keys and its own issuer. OIDC_ISSUER is a URL, so it never
 * equals the issuer name used here. The session is the whole scope. A session never changes its
 * project, so a project claim would decide nothing.
 */
import { randomUUID } from "node:crypto";
import type { JWTPayload } from "jose";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { RefusedToken, refusedBy, type TokenVerifier, type Verified } from "./refused-token.ts";
import type { SessionKey, SessionKeys } from "./session-keys.ts";

/** The roles of a session token; `admin` is reserved for the issuers of tokens. */
export const SESSION_TOKEN_ROLES = ["runner", "viewer", "editor"] as const;
export type SessionTokenRole = (typeof SESSION_TOKEN_ROLES)[number];

export interface SessionTokens {
  /** The caller must check that the session exists. */
  issue(of: {
    readonly sessionId: string;
    readonly role: SessionTokenRole;
    readonly ttlMs: number;
  }): Promise<IssuedToken>;
}

export interface IssuedToken {
  /** The `jti`, for the audit record, which must not contain the token. */
  readonly id: string;
  readonly token: string;
  readonly expiresAtMs: number;
}

/** RFC 8725, section 3.11: a type of their own, so that no other verifier accepts them. */
export const SESSION_TOKEN_TYPE = "session-ledger+jwt";
const ISSUER = "session-ledger";
const ALGORITHM = "EdDSA";

interface Parts {
  readonly keys: SessionKeys;
  readonly clock: Clock;
}

export function createSessionTokens({ keys, clock }: Parts): SessionTokens {
  return {
    async issue({ sessionId, role, ttlMs }) {
      const { SignJWT } = await import("jose");
      const key = await keys.signer();
      const nowMs = nowMsOf(clock);
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
    },
  };
}

export class SessionTokenVerifier implements TokenVerifier {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  trusts(key: object): boolean {
    return this.#parts.keys.trusts(key);
  }

  async verify(token: string): Promise<Verified> {
    const signedWith: { key?: SessionKey } = {};
    try {
      const { jwtVerify } = await import("jose");
      const { payload } = await jwtVerify(
        token,
        async ({ kid = "" }) => {
          const key = await this.#parts.keys.find(kid);
          if (key === undefined) throw new RefusedToken("unknown_key");
          signedWith.key = key;
          return key.publicKey;
        },
        {
          issuer: ISSUER,
          typ: SESSION_TOKEN_TYPE,
          algorithms: [ALGORITHM],
          requiredClaims: ["sub", "sid", "role", "exp"],
          // No tolerance: the clocks are ours, and the answer stated the end.
          currentDate: new Date(nowMsOf(this.#parts.clock)),
        },
      );
      return { principal: principalOf(payload), key: signedWith.key ?? {} };
    } catch (error) {
      throw refusedBy(error);
    }
  }
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

function nowMsOf(clock: Clock): number {
  return Number(clock.nowMicros() / 1_000n);
}
