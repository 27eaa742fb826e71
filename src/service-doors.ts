import { type Audit, createAudit } from "./auth/audit.ts";
import { createAuthenticator, type IssuingAuthenticator } from "./auth/authenticator.ts";
import { type Authorizer, createAuthorizer } from "./auth/authorizer.ts";
import type { Clock } from "./base/clock.ts";
import type { Unit } from "./base/unit.ts";
import type { Config } from "./config/config.ts";
import type { Log } from "./observability/log.ts";
import type { Metrics } from "./observability/metrics.ts";
import type { Database } from "./store/database.ts";
import { sessionNotFound } from "./store/failure.ts";
import { ownerOf } from "./store/sessions.ts";
import {
  addTokenKey,
  readTokenKeys,
  removeTokenKeysMadeBefore,
  removeTokenKeysOfTheFuture,
  type TokenKeyRecord,
} from "./store/token-keys.ts";
import { TlsMaterial } from "./transport/tls-material.ts";

/** Authentication and authorisation of callers. Part of service.ts. */
export interface Doors {
  readonly authenticator: IssuingAuthenticator;
  readonly authorizer: Authorizer;
  readonly audit: Audit;
  /** Undefined: neither server is encrypted. */
  readonly tls: TlsMaterial | undefined;
}

export interface DoorParts {
  readonly database: Database;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

export function createDoors({ database, ...parts }: DoorParts, config: Config): Doors {
  const audit = createAudit(parts);
  const keys = {
    readKeys: (limit: { readonly keysMax: number }) => readTokenKeys(database, limit),
    addKey: (key: TokenKeyRecord) => addTokenKey(database, key),
    removeKeysMadeBefore: (micros: bigint) => removeTokenKeysMadeBefore(database, micros),
    removeKeysOfTheFuture: (ids: readonly string[]) => removeTokenKeysOfTheFuture(database, ids),
  };
  const owners = { ownerOf: (sessionId: string) => ownerOf(database, sessionId) };
  return {
    tls: createTls(parts, config),
    authenticator: createAuthenticator({ ...parts, audit, keys }, config),
    authorizer: createAuthorizer({ owners, audit, notFound: sessionNotFound }),
    audit,
  };
}

/** A service with invalid files must not create or migrate a database first. */
export function checked({ authenticator }: Doors): Unit {
  return { start: () => authenticator.check(), stop: () => Promise.resolve() };
}

function createTls(
  parts: ConstructorParameters<typeof TlsMaterial>[0],
  { tlsCertFile: certFile, tlsKeyFile: keyFile, tlsClientCaFile: clientCaFile }: Config,
): TlsMaterial | undefined {
  if (certFile === undefined || keyFile === undefined) return undefined;
  return new TlsMaterial(parts, { certFile, keyFile, clientCaFile });
}
